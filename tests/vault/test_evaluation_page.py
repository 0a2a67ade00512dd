"""The page of an evaluation: whole, without anything from elsewhere, and its pictures show what the rows say."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from expunge.errors import InvalidSetting
from expunge.reports.svg import SvgChart, format_tick, ticks
from expunge.vault.evaluation import report
from expunge.vault.evaluation.evaluation import evaluate_predictions

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta"}


def judged(y, predicted, **about):
    """An evaluation of one target."""
    y, predicted = (np.asarray(values, dtype=float)[:, None] for values in (y, predicted))
    three = {"vault": predicted, "linear": predicted + 1, "mean": np.full(y.shape, y.mean())}
    about = {"people": None, "known": None, "outside": 0, "notes": ()} | about
    return evaluate_predictions((about.pop("target", "y"),), y, three, np.arange(len(y)), resamples=5, seed=0, **about)


def parsed(svg):
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


class Balanced(HTMLParser):
    """Elements that are closed in the order in which they were opened; what they are, and the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_one_whole_file_that_runs_nothing_and_loads_nothing(tmp_path, rng):
    y = rng.normal(size=300)
    path = tmp_path / "e.html"
    found = judged(y, y + rng.normal(0, 0.1, 300), people=300, outside=3, notes=("3 of 300 rows lie outside",))
    found.report(path, title="a.vault on b.csv")
    text = path.read_text(encoding="utf-8")
    page = Balanced(text)
    assert page.open == []
    assert page.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "a"} & set(page.tags)
    assert "default-src 'none'" in text
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"] * 3  # a name, not an address
    said = "".join(page.text)
    for words in ("a.vault on b.csv", "300 rows of 300 people", "3 of 300 rows lie outside.", "R2", "draws of people"):
        assert words in said
    assert [name.name for name in tmp_path.iterdir()] == ["e.html"]


def test_names_are_text_and_nothing_else(tmp_path):
    name = "<script>alert('x')</script>&amp;"
    judged([1, 2, 3], [1, 2, 4], target=name).report(tmp_path / "e.html", title=name)
    page = Balanced((tmp_path / "e.html").read_text())
    assert "script" not in page.tags
    assert "".join(page.text).count(name) >= 3


def test_a_page_needs_a_folder(tmp_path):
    with pytest.raises(InvalidSetting, match="there is no folder"):
        judged([1, 2], [1, 2]).report(tmp_path / "none" / "e.html")
    with pytest.raises(InvalidSetting, match="is a folder: name a file for the page"):
        judged([1, 2], [1, 2]).report(tmp_path)


def bars(svg):
    """Left, top, right, bottom and tip of every box."""
    for rect in parsed(svg).iter(f"{SVG}rect"):
        x, y, wide, high = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        tip = rect.find(f"{SVG}title")
        yield x, y, x + wide, y + high, "" if tip is None else tip.text


def test_the_bars_count_the_errors(rng):
    errors = rng.normal(5, 2, 1_000)
    svg = report.draw_error_sizes("y", errors)
    low, high = np.quantile(errors, [0.005, 0.995])
    room = 0.03 * (high - low)
    counts, _ = np.histogram(errors, 40, (low - room, high + room))
    drawn = list(bars(svg))
    heights = np.array([bottom - top for _, top, _, bottom, _ in drawn])
    np.testing.assert_allclose(heights / heights.max(), counts[counts > 0] / counts.max(), atol=0.003)
    assert [int(tip.split()[0].replace(",", "")) for *_, tip in drawn] == counts[counts > 0].tolist()
    beyond = 1_000 - counts.sum()
    assert beyond > 0
    assert f"({beyond} of 1,000 rows are beyond)" in svg


def test_the_cells_are_where_the_rows_are(rng):
    y = rng.normal(size=500)
    predicted = y + rng.normal(0, 0.3, 500)
    ends = report._axis_range(np.concatenate([y, predicted]))
    counts, *_ = np.histogram2d(predicted, y, 40, [ends, ends])
    shades = [
        (float(path.get("fill-opacity")), path.get("d").count("M"))
        for path in parsed(report.draw_predicted_against_true("y", y, predicted)).iter(f"{SVG}path")
    ]
    assert sum(cells for _, cells in shades) == np.count_nonzero(counts)
    assert [shade for shade, _ in shades] == sorted({shade for shade, _ in shades})
    darkest = np.count_nonzero(np.sqrt(counts / counts.max()) > 5 / 6)
    assert shades[-1] == (1.0, darkest)


def test_the_strips_are_the_quantiles_of_rows_with_about_the_same_prediction(rng):
    predicted = rng.uniform(0, 10, 400)
    y = predicted + np.where(predicted > 5, rng.normal(2, 1, 400), rng.normal(0, 0.1, 400))
    drawn = list(bars(report.draw_errors_along_predictions("y", y, predicted)))
    tips = [tip for *_, tip in drawn if tip]
    order = np.argsort(predicted)
    expected = [np.quantile((y - predicted)[some], [0.25, 0.75]) for some in np.array_split(order, 16)]
    assert tips == [f"half of the errors are between {low:.4g} and {high:.4g}" for low, high in expected]
    first, last = (bar for bar in (drawn[1], drawn[-1]))
    assert last[3] < first[3]  # higher up: these errors are larger


AWKWARD = {
    "one row": ([1.0], [2.0]),
    "two rows": ([1.0, 2.0], [2.0, 1.0]),
    "all the same": ([3.0] * 50, [3.0] * 50),
    "one prediction": (np.arange(50.0), [3.0] * 50),
    "tiny": (np.arange(50) * 1e-300, np.zeros(50)),
    "huge": (np.arange(50) * 1e300, np.zeros(50)),
    "far from zero": (1e9 + np.arange(50.0), 1e9 + np.arange(50.0)[::-1]),
    "an outlier": ([*np.arange(500.0), 1e12], [*np.arange(500.0), 0.0]),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_pictures_of_awkward_rows_stay_within_their_frame(case):
    y, predicted = (np.asarray(values, dtype=float) for values in AWKWARD[case])
    for svg in report.draw_plots("y", y, predicted):
        root = parsed(svg)
        wide, high = map(float, root.get("viewBox").split()[2:])
        assert "nan" not in svg.replace("</title>", "")
        assert "inf" not in svg
        for left, top, right, bottom, _ in bars(svg):
            assert 0 <= left <= right <= wide + 1
            assert 0 <= top <= bottom <= high
        for line in root.iter(f"{SVG}line"):
            assert all(0 <= float(line.get(key)) <= wide for key in ("x1", "x2", "y1", "y2"))
        labels = [text.text for text in root.iter(f"{SVG}text")]
        assert len(labels) >= 5


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-3, 4, [-3, -2, -1, 0, 1, 2, 3, 4]),
        (990, 1040, [990, 1000, 1010, 1020, 1030, 1040]),
        (0, 39, [0, 5, 10, 15, 20, 25, 30, 35]),
    ],
)
def test_ticks_are_round_numbers(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("size", [1e-300, 1e-9, 0.01, 1, 37, 1e6, 1e9, 1e300])
@pytest.mark.parametrize("begin", [0, -1, 5])
def test_ticks_are_few_and_their_labels_differ(size, begin):
    ends = (begin * size, (begin + 1) * size)
    found = ticks(*ends)
    assert 4 <= len(found) <= 10
    assert len({format_tick(tick, ends) for tick in found}) == len(found)
    for tick in found:
        assert math.isclose(float(format_tick(tick, ends).replace(",", "")), tick, abs_tol=size / 50)


def test_what_is_beyond_an_axis_is_drawn_at_its_end():
    frame = SvgChart("t", (0.0, 1.0), (0.0, 1.0), ("x", "y"))
    frame.box(-5, -5, 5, 5, "#000")
    ((left, top, right, bottom, _),) = bars(frame.to_svg())
    assert (left, top, right, bottom) == (66, 34, 424, 278)
