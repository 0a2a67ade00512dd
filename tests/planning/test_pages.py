"""Plans to look at: text, page, picture and frame say what the table says."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas
import pytest
from markupsafe import escape

from expunge import RandomFourier
from expunge.errors import InvalidSetting
from expunge.planning.candidates import features_in_words
from expunge.planning.planner import plan
from expunge.planning.report import candidate_cells, draw_figure, render_html


def test_the_text_has_every_candidate_and_marks_the_choice(planned):
    lines = str(planned).splitlines()
    for one in planned.table:
        (line, *_) = [line for line in lines if all(cell in line for cell in candidate_cells(one))]
        assert line.startswith("*") == (one == planned.choice)
    assert sum(line.startswith("*") for line in lines) == 1
    for other in planned.references:
        assert any(other.name in line and f"{other.r2:.4f}" in line for line in lines)
    assert planned.advice in str(planned)
    assert str(planned).startswith(repr(planned))
    assert len(repr(planned).splitlines()) == 1 + len(planned.table) + len(planned.references) <= 25
    assert lines[-1] == f"used 300 of 300 rows; the plan reveals at most {planned.bits:,.0f} bits about them"


def test_a_notebook_shows_the_table_and_escapes_it(planned):
    page = planned._repr_html_()
    rows = Cells(page).rows
    assert all(list(candidate_cells(one)) in [row[-10:] for row in rows] for one in planned.table)
    assert page.count("font-weight: bold") == 1
    odd = replace(planned.choice, code="<script>")
    assert "<script>" not in replace(planned, table=[odd], choice=odd)._repr_html_()


def test_a_model_is_never_called_better_than_itself(planned):
    linear = replace(planned.references[0], error=1.001 * planned.choice.error)
    assert "Its error is that of the best reference (linear)." in replace(planned, references=[linear]).advice


class Cells(HTMLParser):
    """The rows of the tables in a page, and its elements."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tags, self._cell = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._cell = tag == "td"
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        if self._cell:
            self.rows[-1].append(data)

    def handle_endtag(self, tag):
        self._cell = False


def test_the_page_has_every_candidate_and_no_script(planned, tmp_path):
    planned.report(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    read = Cells(page)
    assert [row for row in read.rows if len(row) == 10] == [list(candidate_cells(one)) for one in planned.table]
    assert [row[0] for row in read.rows if len(row) == 4] == [other.name for other in planned.references]
    assert page.count('<tr class="chosen">') == 1
    assert "svg" in read.tags
    assert not {"script", "link", "iframe"} & set(read.tags)
    assert escape(planned.advice) in page
    assert f"{planned.bits:,.0f} bits" in page


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, "the inputs themselves"),
        (RandomFourier(9, kernel="gaussian"), "9 cosines (gaussian kernel)"),
        (RandomFourier(9, kernel="gaussian+gaussian"), "9 cosines (2 gaussian kernels)"),
        (RandomFourier(9, kernel="gaussian+laplacian"), "9 cosines (gaussian and laplacian kernels)"),
        (
            RandomFourier(9, kernel="gaussian+gaussian+exponential"),
            "9 cosines (2 gaussian and 1 exponential kernels)",
        ),
        (
            RandomFourier(9, kernel="laplacian+gaussian+exponential"),
            "9 cosines (laplacian, gaussian and exponential kernels)",
        ),
        (RandomFourier(9, kernel="laplacian", order=4), "9 cosines (laplacian kernel, each of at most 4 inputs)"),
        (RandomFourier(9, kernel="laplacian", order=1), "9 cosines (laplacian kernel, each of 1 input)"),
    ],
    ids=str,
)
def test_features_are_described_in_words(features, words):
    assert features_in_words(features) == words


def test_what_a_person_reads_has_words_and_the_option_to_copy(planned):
    features, words = "fourier:30,kernel=gaussian+gaussian,linear", "30 cosines (2 gaussian kernels)"
    blend = replace(planned.choice, features=features, in_words=words)
    made = replace(planned, table=[blend], choice=blend)
    assert f"Train {blend.code} with {words} and alpha=" in made.advice
    for text in (str(made), render_html(made)):
        assert text.count(words) == 2  # in the advice and in the table
        assert text.count("gaussian+gaussian") == text.count(f"--features {features}") == 1
    assert "--features identity" in str(replace(made, choice=replace(blend, features="identity")))


def test_the_page_escapes_what_it_shows(planned):
    odd = replace(planned.choice, code="<script>&\"'")
    page = render_html(replace(planned, table=[odd, *planned.table[1:]], choice=odd))
    assert "<script" not in page
    assert "&lt;script&gt;&amp;" in page


@pytest.mark.parametrize(("name", "start"), [("plan.png", b"\x89PNG\r\n"), ("plan.svg", b"<?xml")])
def test_the_picture_is_a_file(planned, tmp_path, name, start):
    planned.figure(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("what", ["report", "figure"])
def test_a_place_where_nothing_can_be_written_is_told(planned, tmp_path, what):
    write = getattr(planned, what)
    (tmp_path / "folder.svg").mkdir()
    for path, reason in (
        (tmp_path / "none" / "plan.svg", f"there is no folder {tmp_path / 'none'}"),
        (tmp_path / "folder.svg", f"{tmp_path / 'folder.svg'} cannot be written: Is a directory"),
    ):
        with pytest.raises(InvalidSetting) as refused:
            write(str(path))
        assert str(refused.value) == reason
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.open", refuses)
        patched.setattr("io.open", refuses)
        with pytest.raises(InvalidSetting, match="plan.svg cannot be written: Permission denied"):
            write(tmp_path / "plan.svg")


def refuses(*given, **named):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("factor", [1.0, 30.0, 1e6, 0.0])
def test_the_picture_has_every_reference_and_tells_the_candidates_apart(planned, factor):
    far = [replace(one, error=one.error * factor) for one in planned.references[:1]]
    made = replace(planned, references=[*far, *planned.references[1:]])
    (axes,) = draw_figure(made).axes
    low, high = axes.get_ylim()
    shown = [one.error for one in (*made.table, *made.references)]
    assert low < min(shown) < max(shown) < high
    cosines = [one.error for one in made.table if one.cosines]
    place = axes.transAxes.inverted().transform
    ends = place(axes.transData.transform([(1, max(cosines)), (1, min(cosines))]))[:, 1]
    assert ends[0] - ends[1] > (0.03 if factor else 0)  # of the height
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 3


def test_the_table_is_a_frame(planned):
    frame = pandas.DataFrame(planned.table)
    assert frame["error"].tolist() == [one.error for one in planned.table]
    assert frame.loc[frame["error"].idxmin(), "r2"] == frame["r2"].max()
    assert {"code", "features", "alpha", "forget_ms", "train_s", "mb"} <= set(frame)


def test_the_table_has_one_learner_uncoded_and_codes_and_the_advice_says_what_they_buy(planned):
    assert {(one.shards, one.rate) for one in planned.table} >= {(1, 1), (2, 2), (5, 5), (5, 1), (10, 10)}
    assert planned.choice.code in planned.advice
    assert f"R2 {planned.choice.r2:.4f}" in planned.advice
    assert re.search(r"Benefits of .+: ", planned.advice)
    assert "reference" in planned.advice


def test_a_limit_that_nothing_meets_is_told(planned):
    assert "No candidate forgets within 0.01 ms; this is the fastest." in replace(planned, forget_ms=0.01).advice


def test_a_constant_target_has_a_plan_a_page_and_a_picture(tmp_path):
    X = np.random.default_rng(0).random((60, 2))
    for constant in (0.0, 3.7):
        made = plan(X, np.full(60, constant), max_features=16, references=False, quick=True)
        assert made.choice.error < 1e-12
        assert "Train one learner" in str(made)
        render_html(replace(made, table=[*made.table, replace(made.choice, rate=2, shards=2, error=0.0)]))
        assert made.best.fit(X, np.full(60, constant)).predict(X) == pytest.approx(constant)


def test_no_error_at_all_has_advice_and_a_picture(planned):
    none = [replace(one, error=0.0, spread=0.0) for one in planned.table]
    page = render_html(
        replace(planned, table=none, choice=none[0], references=[replace(planned.references[0], error=0.0)])
    )
    assert "<svg" in page
