"""What is printed: columns line up, counts agree with their words, and progress is for people only."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.cli import terminal


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_printed(text):
    shown = terminal.escape(text)
    assert shown.isprintable()
    assert terminal.escape(shown) == shown
    assert shown == text or not text.isprintable()


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1))
def test_the_cells_of_a_table_stand_below_each_other(rows):
    lines = terminal.format_table(rows).split("\n")
    assert len(lines) == len(rows)
    cells = [[terminal.escape(cell) for cell in row] for row in rows]
    for column in (1, 2):
        start = sum(max(len(row[k]) for row in cells) + 2 for k in range(column))
        for line, row in zip(lines, cells, strict=True):
            assert line[start:].startswith(row[column].rstrip())


@pytest.mark.parametrize(("count", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")])
def test_one_is_not_many(count, said):
    assert terminal.pluralize(count, "row", "rows") == said


class Screen(io.StringIO):
    def isatty(self):
        return True


def told(stream, monkeypatch, *, quiet=False):
    monkeypatch.setattr("sys.stderr", stream)
    with terminal.show_progress(quiet=quiet) as tell:
        tell("reading \x1b[31m", 10, None)
        tell("training", 5, 30)
    return stream.getvalue()


def test_progress_is_a_line_that_vanishes(monkeypatch):
    monkeypatch.setattr("time.monotonic", iter(range(99)).__next__)
    shown = told(Screen(), monkeypatch).split("\r")
    assert [text.rstrip() for text in shown] == ["", r"reading \x1b[31m: 10 rows", "training: 5 of 30 rows", "", ""]
    assert len(shown[2]) >= len(shown[1])  # nothing of the longer text is left


def test_progress_is_for_people_only(monkeypatch):
    assert told(io.StringIO(), monkeypatch) == ""
    assert told(Screen(), monkeypatch, quiet=True) == ""


def test_a_progress_line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    line = terminal.ProgressLine()
    line.show("x" * 100)
    assert screen.getvalue() == "\r" + "x" * 19
