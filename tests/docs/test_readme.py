"""The README's example runs as it stands, and says the truth."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = README.read_text().partition("\n## From Python\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names = {}
    exec(example, names)  # noqa: S102 - our own text
    model = names["model"]
    assert model.n_rows_ == 10_000 - 2 + 9
    assert model.digest() == model.retrained().digest() == names["CodedRegressor"].load("m.expunge").digest()
