"""The README's example runs as it stands, and says the truth."""

import re
from pathlib import Path

from support.planning import short_search

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = README.read_text().partition("\n## From Python\n")[2].partition("\n## ")[0]
    first, second, third = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names = {}
    exec(first, names)  # noqa: S102 - our own text
    model = names["model"]
    assert model.n_rows_ == 10_000 - 2 + 9
    assert model.digest() == model.retrained().digest() == names["CodedRegressor"].load("m.expunge").digest()
    with short_search():
        exec(second.replace("\nmodel.unlearn", "\nreport = model.unlearn"), names)  # noqa: S102 - our own text
        planned = names["model"]
        assert (names["report"].complete, planned.complete_) == (False, True)
        assert planned.digest() == planned.retrained().digest()
    exec(third.replace("\nmodel.unlearn", "\nreport = model.unlearn"), names)  # noqa: S102 - our own text
    assert repr(names["report"]).endswith("classes_moved=False)")
    assert names["model"].digest() == names["model"].retrained().digest()


def test_the_page_on_classes_runs_as_it_stands():
    (code,) = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / "classification.md").read_text(), re.DOTALL)
    exec(code, {})  # noqa: S102 - our own text
