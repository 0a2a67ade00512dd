"""The pictures in CONTRIBUTING.md are what the code says now, and can be read."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import findfont
from PIL import ImageFont

from pictures import PICTURES, tracing, ways

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "expunge"
SVG = "{http://www.w3.org/2000/svg}"


def committed(name):
    return (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8")


def parsed(name):
    return ElementTree.fromstring(committed(name))  # noqa: S314 - our own file


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_code_says(name):
    assert PICTURES[name]() == committed(name), "the code has changed: run `make pictures`, look at them, commit them"


@pytest.mark.parametrize("name", PICTURES)
def test_contributing_shows_a_picture(name):
    assert f"](docs/figures/{name})" in (ROOT / "CONTRIBUTING.md").read_text()


def test_every_room_and_every_part_of_the_vault_is_in_the_picture():
    shown = {element.text for element in parsed("rooms.svg").iter(f"{SVG}text")}
    for path in [*SRC.iterdir(), *(SRC / "vault").iterdir()]:
        if not path.name.startswith("_") and path.name != "py.typed":
            assert (f"{path.name}/" if path.is_dir() else path.name) in shown


def spaces(root):
    """The place that each text takes, in a font that is wider than most: left, top, right, bottom."""
    for element in root.iter(f"{SVG}text"):
        family = "DejaVu Sans Mono" if element.get("class") == "m" else "DejaVu Sans"
        size, text = float(element.get("font-size")), "".join(element.itertext())
        font = ImageFont.truetype(findfont(f"{family}:bold" if element.get("font-weight") else family), 100)
        wide, x, y = font.getlength(text) * size / 100, float(element.get("x")), float(element.get("y"))
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[element.get("text-anchor", "start")]
        yield text, (left, y - 0.75 * size, left + wide, y + 0.22 * size)


def within(inner, outer):
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_leaves_its_box_or_covers_another(name):
    root = parsed(name)
    boxes = []
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
    texts = list(spaces(root))
    assert len(texts) > 50
    for text, space in texts:
        middle = (space[0], (space[1] + space[3]) / 2) * 2
        home = min((box for box in boxes if within(middle, box)), key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
        assert within(space, home), text
    for (one, first), (other, second) in combinations(texts, 2):
        apart = first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]
        assert apart, (one, other)


def test_a_function_that_is_no_longer_on_the_way_is_an_error():
    way = ways.Way("A way", "", lambda: None, ("Nothing.at_all",))
    with pytest.raises(LookupError, match=re.escape("no longer entered: ['Nothing.at_all']")):
        ways._shown(way, [])


def test_steps_in_another_order_than_the_writer_names_them_are_an_error():
    trace = [tracing.Step("a", "second"), tracing.Step("a", "first")]
    way = ways.Way("A way", "", lambda: None, ("first", "second"), {"first": 1, "second": 2})
    with pytest.raises(LookupError, match=re.escape("in the order [2, 1]")):
        ways._shown(way, trace)
