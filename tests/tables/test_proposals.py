"""Proposals: a schema that was proposed takes the data that it came from."""

import math
import re
import tomllib
from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from expunge.errors import InvalidInput, InvalidSetting
from expunge.tables.kinds import Boolean, Category, Date, Ignore, Number
from expunge.tables.proposal import draft_schema, propose_schema, texts
from expunge.tables.proposal.draft import plain_schema_from_types
from expunge.tables.reader import read_blocks, read_column_types
from expunge.tables.schema import Schema
from expunge.tables.toml import toml_literal

from support.sampling import examples
from support.tables import csv, whole

EPOCH = datetime(1970, 1, 1)


moments = st.datetimes()


# Without a schema


def test_without_a_schema_all_columns_are_numbers_with_observed_bounds():
    cells = {
        "i": pa.string(),
        "a": pa.int8(),
        "y": pa.bool_(),
        "b": pa.decimal128(5, 2),
        "__index_level_0__": pa.int64(),
    }
    schema = plain_schema_from_types(pa.schema(cells.items()), ["y"], "i")
    assert schema == Schema("i", ("y",), (("a", Number()), ("y", Boolean()), ("b", Number())))
    assert np.isnan(schema.bounds()).all()
    assert plain_schema_from_types(pa.schema([("a", pa.int8()), ("b", pa.float32())]), "b").id is None


def test_without_a_schema_other_columns_are_named_and_the_way_out_too():
    others = {
        "text": pa.string(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "none": pa.null(),
        "list": pa.list_(pa.int8()),
    }
    cells = {"a": pa.int8(), **others, "y": pa.float64()}
    with pytest.raises(InvalidInput, match="'text', 'flag', 'day', 'none', 'list'; `expunge schema FILE --target y`"):
        plain_schema_from_types(pa.schema(cells.items()), "y")
    with pytest.raises(InvalidInput, match="not numbers: 'text'"):
        plain_schema_from_types(pa.schema([("a", pa.int8()), ("text", pa.string())]), "text")
    with pytest.raises(InvalidInput, match="no columns 'z', 'i'; the table has 1 column with another"):
        plain_schema_from_types(pa.schema([("a", pa.int8())]), "z", "i")


# Proposals

WORDS = ["Berlin", "Paris", 'a "b"', "ü\n\x7f\\", "other", "NA", "1", "true", "2024-01-01", "x" * 101]
CELLS = {
    "whole": (st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), pa.int64()),
    "float": (st.floats(width=64) | st.floats(-1, 1), pa.float64()),
    "text": (st.sampled_from(WORDS) | st.text(max_size=2), pa.string()),
    "flag": (st.booleans(), pa.bool_()),
    "date": (st.dates(), pa.date32()),
    "time": (moments, pa.timestamp("us")),
}


labels = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3
)  # Arrow ends names at \0


@st.composite
def frames(draw):
    n = draw(st.integers(1, 12))

    def column(kind, gaps):
        cells, arrow_type = CELLS[kind]
        return pa.array(draw(st.lists(cells | st.none() if gaps else cells, min_size=n, max_size=n)), arrow_type)

    kinds = draw(st.dictionaries(labels.map("c".__add__), st.sampled_from(sorted(CELLS)), max_size=5))
    columns = {name: column(kind, draw(st.booleans())) for name, kind in kinds.items()}
    whose = pa.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    y = pa.array(draw(st.lists(st.floats(-9, 9), min_size=n, max_size=n)))
    return pa.table({"id": whose, "y": y, "n": pa.array(range(n)), **columns}), kinds


MARKED = pa.table({"id": [0] * 4, "y": [0.0] * 4, "n": range(4), "c": ["1", None, "NA", " 2.5"]})


def shared(cells, whose, people):
    """The values that so many people have, counted one by one."""
    who = defaultdict(set)
    for cell, one_ in zip(cells, whose, strict=True):
        who[cell].add(one_)
    return sorted(cell for cell in who if cell and len(cell) <= 100 and cell != "other" and len(who[cell]) >= people)


def within(values, low, high):
    """Whether no value is outside, where there are bounds."""
    return not ((values < low) | (values > high)).any()


def column_expected(cells, kind, declared):
    """The inputs of a column, by hand."""
    if kind == "text":
        return [[float(cell == value) for value in declared.values] for cell in cells]
    filled = [declared.fill if cell is None or cell != cell else cell for cell in cells]  # or NaN
    if kind == "date":
        return [
            [(cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)) - EPOCH]
            for cell in filled
        ]
    return [[cell - EPOCH if kind == "time" else float(cell)] for cell in filled]


@pytest.mark.slow
@examples(200)
@given(frames(), st.integers(1, 3), st.booleans())
@example((MARKED, {"c": "text"}), 2, False)
def test_a_proposal_takes_the_data_it_came_from(frame, people, with_id):
    table, kinds = frame
    source = table if with_id else table.drop("id")
    schema = Schema.parse(propose_schema(source, target="y", id="id" if with_id else None, people=people))
    declared = dict(schema.columns)
    assert list(declared) == [name for name in table.column_names if name != "id"]
    (block,) = read_blocks(source, schema, targets=True, ids=with_id)
    assert within(schema.clip(block.X), *schema.bounds())  # no row is refused
    assert within(schema.clip_targets(block.y), *schema.target_bounds())
    np.testing.assert_array_equal(block.y, np.array(table["y"].to_pylist())[:, None] + 0.0)
    whose = table["id"].to_pylist() if with_id else range(len(table))
    found = iter(block.X.T)
    for name, kind in {"n": "whole", **kinds}.items():
        cells = table[name].to_pylist()
        if isinstance(declared[name], Ignore) and kind != "text":
            continue
        if kind == "text" and isinstance(declared[name], Number):  # numerals, and marks of cells that have none
            empty = (None, "", *declared[name].gaps)
            kind, cells = "float", [None if cell in empty or cell.strip() in empty else float(cell) for cell in cells]
        if kind == "text":
            values = shared(cells, whose, people)
            numerals = all(cell in (None, "", "NA") or cell.strip().isdigit() for cell in cells)
            assert getattr(declared[name], "values", ()) == tuple(values) or (numerals and declared[name] == Ignore())
        if isinstance(declared[name], Ignore):
            continue
        inputs = (
            np.column_stack([next(found) for _ in declared[name].values]) if kind == "text" else next(found)[:, None]
        )
        expected = column_expected(cells, kind, declared[name])
        if kind in ("date", "time"):
            expected = [[float(cell // timedelta(microseconds=1)) / 86_400_000_000] for (cell,) in expected]
        np.testing.assert_array_equal(inputs, np.array(expected) + 0.0)
    assert next(found, None) is None


@examples(100)
@given(frames(), st.integers(1, 3))
def test_a_proposal_for_a_csv_file_takes_it_whatever_the_cells_look_like(tmp_path_factory, frame, people):
    path = tmp_path_factory.mktemp("proposal") / "t.csv"
    pyarrow.csv.write_csv(frame[0], path)
    assume(set(read_column_types(path).names) == set(frame[0].column_names))
    schema = Schema.parse(propose_schema(path, target="y", id="id", people=people))
    (block,) = read_blocks(path, schema, targets=True, ids=True)
    assert block.ids == [str(cell).encode() for cell in frame[0]["id"].to_pylist()]
    assert within(schema.clip(block.X), *schema.bounds())


def proposed(people=1, **columns):
    """What is proposed for each column, and the text."""
    text = propose_schema(
        pa.table({"y": np.zeros(len(next(iter(columns.values())))), **columns}), target="y", people=people
    )
    return dict(Schema.parse(text).columns), text


def test_gaps_get_a_fill():
    columns, _ = proposed(
        x=[10.0, None, 30.0], b=[True, None, False], c=["a", "", "b"], d=["a", None, "b"], e=["a", "b", "b"]
    )
    assert columns["x"] == Number(fill=10)
    assert columns["b"] == Boolean(False)
    assert [columns[name] for name in "cde"] == [Category(("a", "b"), fill) for fill in ("other", "other", None)]


def test_a_column_that_is_no_use_is_ignored_and_the_text_says_why():
    columns, text = proposed(
        2,
        ok=[1, 2, 3],
        endless=[1.0, math.inf, 2.0],
        empty=pa.nulls(3),
        blank=pa.array([None] * 3, pa.float64()),
        wide=[-1.7e308, 1.7e308, 0],
        rare=["a", "b", "c"],
        lists=[[1], [2], [3]],
    )
    notes = {name: note for note, name in re.findall(r"# (has .*)\n\[columns.(\w+)\]", text)}
    assert notes == {
        "endless": "has infinite values",
        "empty": "has no values",
        "blank": "has no values",
        "wide": "has values that are too far apart for float64",
        "rare": "has no value shared by at least 2 people (or rows)",
        "lists": "has cells of a type that cannot be used",
    }
    assert [name for name, kind in columns.items() if kind == Ignore()] == list(notes)


def test_long_text_is_no_category():
    columns, _ = proposed(x=["a" * 100, "b" * 101], z=["c" * 101] * 2)
    assert columns["x"] == Category(("a" * 100,))
    assert columns["z"] == Ignore()


def test_a_category_counts_people_and_not_rows():
    table = pa.table(
        {"y": [0.0] * 4, "n": [1] * 4, "who": ["a", "a", "b", "c"], "city": ["Ulm", "Ulm", "Bonn", "Bonn"]}
    )
    assert dict(Schema.parse(propose_schema(table, target="y", id="who", people=2)).columns)["city"].values == ("Bonn",)
    rows = propose_schema(table.drop("who"), target="y", people=2)
    assert dict(Schema.parse(rows).columns)["city"].values == ("Bonn", "Ulm")
    assert "at least 2 rows have" in rows
    with pytest.raises(InvalidInput, match=r"rows without an id: 1 in column 'who' \(of 4 rows\)"):
        propose_schema(table.set_column(2, "who", pa.array(["a", "", "b", "c"])), target="y", id="who")


def test_text_with_very_many_values_is_ignored_and_not_kept_in_memory(monkeypatch):
    columns, text = proposed(n=np.arange(101), x=[str(k) + "x" for k in range(101)])
    assert columns["x"] == Ignore()
    assert "more than 100 values, each of which would be a category" in text
    monkeypatch.setattr(texts, "MAX_TRACKED_VALUES", 50)
    columns, text = proposed(n=np.arange(101), x=[str(k) + "x" for k in range(101)])
    assert columns["x"] == Ignore()
    assert "more than 50 different values" in text
    assert proposed(n=np.arange(50), x=[str(k) + "x" for k in range(50)])[0]["x"] != Ignore()


def test_a_proposal_keeps_no_more_people_in_memory_than_it_has_to_count(monkeypatch):
    values = texts.TextValues(3)
    for start in (0, 50):
        values.add(pa.array(["a", "b"] * 25), pa.array(range(start, start + 50)))
    assert {value: len(who) for value, who in values.people_by_text.items()} == {"a": 3, "b": 3}
    monkeypatch.setattr(texts, "MAX_TRACKED_VALUES", 1)
    values.add(pa.array(["c"]), pa.array([0]))
    values.add(pa.array(["d"]), pa.array([0]))
    assert values.people_by_text == {}


def test_rows_of_many_batches_count_together(monkeypatch):
    monkeypatch.setattr("expunge.tables.reader.BLOCK_ROWS", 2)
    columns, _ = proposed(3, n=[5, 1, 2, 9, 3], x=["a", "b", "a", "b", "a"], t=[None, 1.0, 2.0, 3.0, 4.0])
    assert columns["n"] == Number()
    assert columns["t"] == Ignore()  # gaps, and too few people for a fill
    assert columns["x"].values == ("a",)


def test_a_proposal_says_where_it_comes_from_and_what_to_check(tmp_path):
    path = tmp_path / "customers\n.csv"
    path.write_text("i,y,x\n1,2,3\n2,3,4\n")
    text = propose_schema(path, target="y", id="i", people=7)
    header = text[: text.index("id =")]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    for words in (
        'read from "customers\\n.csv"',
        "rounded and supported by at least 7 people. In training they count as your",
        "public facts",
        "median of people",
    ):
        assert words in header
    assert tomllib.loads(text)["id"] == "i"
    without = propose_schema(path, target=["y", "x"][:1])
    assert "# id = ..." in without
    assert "id" not in tomllib.loads(without)


@examples(100)
@given(
    st.dictionaries(labels.map("c".__add__), st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1),
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=9),
)
@example({"c\x1b[31m\x9b2J\u202e\n": "\x9b\u202e\x85\u2028\U000e0001"}, "\x1b]0;\x07\n# id = 5\n")
def test_a_proposal_holds_only_what_a_terminal_prints_and_names_come_back(columns, name):
    table = pa.table({"y": [1.0], "n": [1], **{column: [value] for column, value in columns.items()}})
    text = propose_schema(table, target="y", people=1)
    header = f"# read from {toml_literal(name)}"
    assert all(line.isprintable() for line in [*text.split("\n"), header])
    declared = dict(Schema.parse(text).columns)
    assert list(declared) == table.column_names
    short = {column: value for column, value in columns.items() if value != "other" and len(value) <= 100}
    assert {column: declared[column].values for column in short} == {column: (short[column],) for column in short}


# Numbers among text


def numerals(rng, n, odd):
    """Numbers as text, with other texts among them."""
    cells = [f"{value:.2f}" for value in rng.normal(10, 3, n)]
    places = rng.permutation(n)[: len(odd)]
    for place, text in zip(places, odd, strict=True):
        cells[place] = text
    return cells


@pytest.mark.parametrize(
    ("odd", "gaps"),
    [
        (["?"] * 5 + ["n/a", " - ", "NA", "Unknown"], ("-", "?", "NA", "Unknown", "n/a")),
        ([" "] * 3, ()),  # blank: read as text, and nothing else is a gap
        (["too high"] * 10 + ["?"], ("?", "too high")),
        (["too high"] * 9, "text"),  # fewer than ten have it: it could tell who
        (["Anna", "?"], "text"),
        (["x" * 101] * 20, "text"),
    ],
)
def test_a_number_column_with_a_few_other_cells_is_one_of_numbers(tmp_path, rng, odd, gaps):
    cells = numerals(rng, 300, odd)
    values = [float(cell) for cell in cells if cell not in odd]
    path = tmp_path / "t.csv"
    pyarrow.csv.write_csv(pa.table({"y": np.zeros(300), "x": cells}), path)
    for source in (path, pa.table({"y": np.zeros(300), "x": cells})):
        text = propose_schema(source, target="y")
        schema = Schema.parse(text)
        kind = dict(schema.columns)["x"]
        assert (kind.kind, kind.gaps) == ("number", gaps)
        assert kind.low <= min(values) <= max(values) <= kind.high
        assert abs(kind.fill - np.median(values)) < 1
        cells_are = (
            "1 cell is not a number: it counts" if len(odd) == 1 else f"{len(odd)} cells are not numbers: they count"
        )
        assert f"# {cells_are} as empty\n[columns.x]" in text
        (block,) = read_blocks(source, schema, targets=True, ids=False)
        expected = [kind.fill if cell in odd else float(cell) for cell in cells]
        assert block.X[:, 0].tolist() == expected
    assert "Anna" not in text


def test_words_among_numbers_are_categories_if_they_are_many_or_the_numbers_few(rng):
    many = numerals(rng, 300, ["a"] * 20 + ["b"] * 20)
    codes = [str(k % 5) for k in range(280)] + ["A"] * 20
    zeros = ["0" + str(k % 5) for k in range(290)] + ["?"] * 10
    plain = [str(k % 5) for k in range(300)]  # text that somebody meant to be text
    marked = [str(k % 5) for k in range(299)] + ["?"]
    columns, _ = proposed(10, many=many, codes=codes, zeros=zeros, plain=plain, marked=marked)
    assert columns["many"] == Category(("a", "b"))
    assert columns["codes"] == Category(("0", "1", "2", "3", "4", "A"))
    assert columns["zeros"] == Category(("00", "01", "02", "03", "04", "?"))
    assert columns["plain"] == Category(("0", "1", "2", "3", "4"))
    assert columns["marked"] == Number(0, 4, 2, gaps=["?"], clip=True)


def test_a_csv_column_that_is_empty_at_first_and_goes_on_with_numbers_is_one_of_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("y,n,late\n" + "1,1,\n" * 300_000 + "".join(f"1,2,{k % 9}\n" for k in range(900)))
    kind = dict(Schema.parse(propose_schema(path, target="y")).columns)["late"]
    assert kind == Number(0, 8, 4, clip=True)


def test_a_target_with_a_few_other_cells_is_one_of_numbers(rng):
    cells = numerals(rng, 300, ["?"] * 5)
    text = propose_schema(pa.table({"y": cells, "x": np.arange(300)}), target="y")
    kind = dict(Schema.parse(text).columns)["y"]
    assert (kind.fill, kind.scale, kind.gaps) == (None, None, ("?",))
    assert (
        "# 5 cells are not numbers: they count as empty; has gaps: leave rows without a target out of the data\n"
        in text
    )


def test_several_targets_are_proposed_without_a_fill():
    table = pa.table({"a": [1.0, None], "b": [True, False], "x": [1, 2]})
    text = propose_schema(table, target=["a", "b"])
    schema = Schema.parse(text)
    assert schema.targets == ("a", "b")
    assert dict(schema.columns) == {"a": Number(), "b": Boolean(), "x": Number()}
    assert "# has gaps: leave rows without a target out of the data\n[columns.a]" in text


def test_a_csv_column_that_starts_like_numbers_or_dates_and_goes_on_as_text_is_text(tmp_path):
    path = tmp_path / "t.csv"
    head = "y,n,phone,day,flag,late\n" + "1,1,030,2024-01-01,true,\n" * 100_000
    path.write_text(head + "1,2,+49 30,unknown,maybe,x\n")
    columns = dict(Schema.parse(propose_schema(path, target="y")).columns)
    assert columns["phone"] == Category(("030",))
    assert columns["day"] == Category(("2024-01-01",))
    assert columns["flag"] == Category(("true",))
    assert columns["late"] == Ignore()
    path.write_bytes(head.encode() + b"1,2,+49 30,unknown,maybe,\xff\n")
    with pytest.raises(InvalidInput, match="column 'late' must hold text in UTF-8"):
        propose_schema(path, target="y")


@pytest.mark.parametrize("y", [["a", "b"], [date(2024, 1, 1)] * 2, [math.inf, 1.0], [None, None]])
def test_a_target_that_cannot_be_predicted_is_refused(y):
    with pytest.raises(InvalidInput, match="target 'y' must hold finite numbers, or true and false"):
        propose_schema(pa.table({"y": y, "x": [1, 2]}), target="y")


def test_a_proposal_needs_rows_columns_and_people():
    with pytest.raises(InvalidInput, match="the table has no rows"):
        propose_schema(pa.table({"y": pa.array([], pa.int8()), "x": pa.array([], pa.int8())}), target="y")
    with pytest.raises(InvalidInput, match="no column 'z'"):
        propose_schema(pa.table({"y": [1]}), target="z")
    with pytest.raises(InvalidSetting, match="there are no inputs"):
        propose_schema(pa.table({"y": [1]}), target="y")
    with pytest.raises(InvalidSetting, match="people must be a whole number"):
        propose_schema(pa.table({"y": [1], "x": [1]}), target="y", people=0)


# Notes on the terminal

WRITTEN = {  # cells of 60 people, the kind that is proposed, and the numbers (or days) that they are
    "31.12.2020": (Date, lambda k: (f"{k % 28 + 1}.{k % 12 + 1}.2020", f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}")),
    "31/12/2020": (Date, lambda k: (f"{k % 28 + 1:02}/{k % 12 + 1}/2020", f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}")),
    "12/31/2020": (Date, lambda k: (f"{k % 12 + 1}/{k % 28 + 1}/2020", f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}")),
    "2020/12/31": (Date, lambda k: (f"2020/{k % 12 + 1}/{k % 28 + 1}", f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}")),
    "1234,56": (Number, lambda k: (f"{k},5", f"{k}.5")),
    "1.234,56": (Number, lambda k: (f"{k + 1}.{k:03},50", f"{k + 1}{k:03}.5")),
    "1,234.56": (Number, lambda k: (f"{k + 1},{k:03},000", f"{k + 1}{k:03}000")),
    "1 234.56": (Number, lambda k: (f"{k + 1} {k:03}", f"{k + 1}{k:03}")),
    "1'234.56": (Number, lambda k: (f"-{k + 1}'{k:03}.5", f"-{k + 1}{k:03}.5")),
    "€1234.56": (Number, lambda k: (f"€ {k}.50", f"{k}.5")),
    "$1,234.56": (Number, lambda k: (f"-${k + 1},000.50", f"-{k + 1}000.5")),
    "1.234,56 €": (Number, lambda k: (f"{k + 1}.000,00 €", f"{k + 1}000")),
    "1234.56%": (Number, lambda k: (f"{k}%", f"{k}")),
}


@pytest.mark.parametrize("example", WRITTEN)
def test_numbers_and_dates_in_other_notations_are_read_where_only_one_fits(tmp_path, example):
    kind, write = WRITTEN[example]
    cells, plain = zip(*map(write, range(60)), strict=True)
    path, y = tmp_path / "t.csv", np.arange(60.0)
    csv(pa.table({"y": y, "n": np.arange(60) % 7, "x": cells}), path)
    draft = draft_schema(path, target="y")
    schema = Schema.parse(draft.text)
    assert isinstance(proposal := schema.input_kinds["x"], kind)
    assert proposal.format == example
    assert f"are read like {example} (format)" in "\n".join(draft.notes)
    other = Schema(None, ("y",), (("y", Number()), ("x", kind())))
    values = [np.float64(cell) for cell in plain] if kind is Number else list(plain)
    expected = whole(pa.table({"y": y, "x": values}), other, ids=False)[0]
    assert whole(path, schema, ids=False)[0][:, 1:].tolist() == expected.tolist()
    assert Schema.from_json(schema.to_json()) == schema


AMBIGUOUS = {
    "days or months": ([f"{k % 12 + 1}/{k % 12 + 1}/2020" for k in range(60)], ['"31/12/2020"', '"12/31/2020"']),
    "one person shows it": (["31/1/2020"] + [f"{k % 12 + 1}/1/2020" for k in range(59)], ['"31/12/2020"']),
    "thousands or decimals": ([f"{k + 1},250" for k in range(60)], ['"1,234.56"', '"1234,56"']),
    "thousands or decimals with a unit": ([f"{k + 1}.250 €" for k in range(60)], ['"1234.56 €"', '"1.234,56 €"']),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_cells_that_may_mean_two_things_are_left_out_and_the_note_names_the_formats(case):
    cells, formats = AMBIGUOUS[case]
    draft = draft_schema(pa.table({"y": np.arange(60.0), "n": np.arange(60) % 7, "x": cells}), target="y")
    (note,) = draft.notes
    assert "can be read in more than one way" in note
    assert all(f"format = {example}" in note for example in formats)
    assert isinstance(dict(Schema.parse(draft.text).columns)["x"], Ignore | Category)
    assert not any(cell in note for cell in cells)


UNREAD = {
    "dates like 31.12.2020": ["soon", *(f"{k % 28 + 1}.{k % 12 + 1}.2020" for k in range(59))],
    "dates like 12/31/2020": [f"{k % 12 + 1}/{k % 28 + 1}/20" for k in range(60)],
    "numbers with a decimal comma": ["many", *(f"{k},5" for k in range(59))],
    "amounts with a currency sign": [f"{'€$'[k % 2]}{k}.50" for k in range(60)],
}


@pytest.mark.parametrize("words", UNREAD)
def test_cells_that_are_not_all_alike_are_said_to_be_unread(words):
    cells = UNREAD[words]
    draft = draft_schema(pa.table({"y": np.arange(60.0), "n": np.arange(60) % 7, "x": cells}), target="y")
    assert f"it has {words}, which are not read as" in "\n".join(draft.notes)
    assert not any(cell in note for cell in cells for note in draft.notes)


def test_a_target_in_another_notation_is_read_and_an_ambiguous_one_is_refused_with_the_formats():
    table = pa.table({"x": np.arange(60), "y": [f"{k + 1}.000,50 €" for k in range(60)]})
    assert Schema.parse(propose_schema(table, target="y")).target_kinds["y"].format == "1.234,56 €"
    table = pa.table({"x": np.arange(60), "y": [f"{k + 1},000" for k in range(60)]})
    with pytest.raises(InvalidInput, match=r'more than one way: .* format = "1,234.56" or format = "1234,56"'):
        propose_schema(table, target="y")


def test_gaps_among_cells_in_another_notation_get_a_fill(tmp_path):
    path = tmp_path / "t.csv"
    days = ["" if k % 7 == 0 else f"{k % 28 + 1}.{k % 12 + 1}.2020" for k in range(90)]
    prices = ["?" if k % 7 == 0 else f"{k},5" for k in range(90)]
    csv(pa.table({"y": np.arange(90.0), "day": days, "price": prices}), path)
    schema = Schema.parse(propose_schema(path, target="y"))
    assert schema.input_kinds["day"].fill is not None
    assert schema.input_kinds["price"].gaps == ("?",)
    assert len(whole(path, schema, ids=False)[0]) == 90


def test_dates_in_a_column_of_text_are_dates():
    cells = [f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}" for k in range(60)]
    draft = draft_schema(pa.table({"y": np.arange(60.0), "x": cells}), target="y")
    assert isinstance(Schema.parse(draft.text).input_kinds["x"], Date)
    assert draft.notes == ()


def notes_on(name, cells, y):
    """The notes on one column, and that no other column has any."""
    draft = draft_schema(pa.table({"y": y, "n": np.arange(len(y)) % 7, name: cells}), target="y")
    assert all(note.startswith(f"column {name!r}") for note in draft.notes)
    return [note.removeprefix(f"column {name!r}").lstrip(": ") for note in draft.notes]


def test_columns_that_look_odd_are_named(rng):
    y = rng.normal(0, 1, 500).clip(-2, 2)
    assert notes_on("x", rng.normal(0, 1, 500).clip(-2, 2), y) == []
    assert notes_on("twin", 3 * y + 7, y) == [
        "nearly equals a linear function of the target 'y': is it known before the target is?"
    ]
    assert "looks like an id" in notes_on("number", rng.permutation(500) + 1000, y)[0]
    assert notes_on("count", rng.integers(0, 100, 500).clip(5, 95), y) == []
    for name in ("", "Unnamed: 0"):
        (note,) = notes_on(name, np.arange(500), y)
        assert note == 'is left out (kind = "ignore"): it has no real name and looks like row numbers'
        assert "has no real name: if it numbers the rows" in notes_on(name, np.arange(500) // 2, y)[0]
    assert notes_on("name", [f"person {k}" for k in range(500)], y) == [
        'is left out (kind = "ignore"): it has no value shared by at least 10 people (or rows)'
    ]
    cities = [f"city {k % 60}" for k in range(900)]
    assert notes_on("city", cities, rng.normal(0, 1, 900).clip(-2, 2)) == [
        "becomes 60 categories, one input each: is that intended?"
    ]


def test_numbers_of_rows_look_like_an_id_even_if_people_have_many_rows(rng):
    table = pa.table({"y": rng.random(600), "who": rng.integers(0, 90, 600), "row": rng.permutation(600) + 5000})
    notes = "\n".join(draft_schema(table, target="y", id="who").notes)
    assert "column 'row' looks like an id" in notes
