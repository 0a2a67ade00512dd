"""Schemas: what is declared is what is computed, and a proposal takes the data that it came from."""

import decimal
import hashlib
import math
import re
import tomllib
from collections import defaultdict
from dataclasses import fields
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from expunge.errors import InvalidFile, InvalidInput, InvalidSetting
from expunge.vault.tables import proposal
from expunge.vault.tables.kinds import Boolean, Category, Date, Ignore, Number
from expunge.vault.tables.proposal import propose
from expunge.vault.tables.reading import blocks, types
from expunge.vault.tables.schema import Schema

DOCS = Path(__file__).parents[2] / "docs" / "schema.md"
EPOCH = datetime(1970, 1, 1)
CANARY = "Xq7" + "canary"
Y = '[columns.y]\nkind = "number"\n'
X = '[columns.x]\nkind = "number"\n'


def one(keys, *, more=""):
    """A schema of one input, x."""
    return Schema.parse(f'target = "y"\n{Y}\n[columns.x]\n{keys}\n{more}')


def encoded(keys, cells, arrow_type=None):
    """The inputs that one column becomes."""
    column = cells if isinstance(cells, pa.Array) else pa.array(cells, arrow_type)
    return one(keys).encode(pa.record_batch({"x": column}), targets=False)[0]


# What a schema says


def test_the_example_in_the_docs_makes_what_the_docs_say(tmp_path):
    toml, table = re.search(r"```toml\n(.*?)```.*?```csv\n(.*?)```", DOCS.read_text(), re.DOTALL).groups()
    (tmp_path / "customers.csv").write_text(table)
    (tmp_path / "schema.toml").write_text(toml, encoding="utf-8-sig")  # as some editors save it
    schema = Schema.load(tmp_path / "schema.toml")
    assert schema == Schema.parse(toml)
    assert (schema.id, schema.targets) == ("customer_id", ("spend",))
    assert schema.inputs == ("age", "discount", "newsletter", "joined", "city=Berlin", "city=Paris")
    low, high = schema.bounds()
    np.testing.assert_array_equal(low, [0, np.nan, 0, (datetime(2015, 1, 1) - EPOCH).days, 0, 0])
    np.testing.assert_array_equal(high, [120, np.nan, 1, (datetime(2030, 1, 1) - EPOCH).days, 1, 1])
    assert [side.tolist() for side in schema.target_bounds()] == [[0], [5000]]
    (block,) = blocks(tmp_path / "customers.csv", schema, targets=True, ids=True)
    days = [
        (t - EPOCH) / timedelta(days=1)
        for t in (datetime(2019, 5, 1), datetime(2024, 2, 29, 18), datetime(2021, 12, 31))
    ]
    expected = [[34, 0.1, 1, days[0], 1, 0], [40, 0, 0, days[1], 0, 0], [51, 0.25, 0, days[2], 0, 0]]
    np.testing.assert_array_equal(block.X, expected)
    assert (block.y.tolist(), block.ids) == ([[120.5], [80], [0]], [b"007", b"4711", b"4712"])


def test_the_kinds_in_the_docs_are_the_kinds_there_are():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*)\|$", DOCS.read_text(), re.MULTILINE)
    keys = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    kinds = {kind.kind: {field.name for field in fields(kind)} for kind in (Number, Boolean, Date, Category, Ignore)}
    assert keys == kinds


def test_targets_come_in_the_order_of_the_schema_and_booleans_are_bounded():
    schema = Schema.parse(f'target = ["won", "y"]\n{Y}{X}[columns.won]\nkind = "boolean"\n')
    batch = pa.record_batch({"y": [5.0, -0.0], "x": [1, 2], "won": [True, False]})
    X_, y = schema.encode(batch, targets=True)
    assert (X_.tolist(), y.tolist()) == ([[1], [2]], [[1, 5], [0, 0]])
    np.testing.assert_array_equal(schema.target_bounds(), [[0, np.nan], [1, np.nan]])
    assert schema.inputs == ("x",)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("target = ", "schema: Invalid value"),
        ("target = " + "1" * 5000, "schema: "),
        (f'target = "y"\nids = "i"\n{Y}{X}', "unknown keys 'ids'; a schema has id, target"),
        (f"{Y}{X}", "target must be the name"),
        (f"target = 5\n{Y}{X}", "target must be the name"),
        (f"target = []\n{Y}{X}", "target must be the name"),
        (f"target = [5]\n{Y}{X}", "target must be the name"),
        (f'target = ["y", "y"]\n{Y}{X}', "list of different ones"),
        (f'target = "z"\n{Y}{X}', r"target 'z' must be declared under \[columns\]"),
        ('target = "y"', "no columns; declare each"),
        ('target = "y"\ncolumns = 5', "no columns; declare each"),
        (f'target = "y"\nid = "x"\n{Y}{X}', r"id must be .* not declared under \[columns\]"),
        (f'target = "y"\nid = 5\n{Y}{X}', "id must be the name"),
        (f'target = "y"\n{Y}', "there are no inputs"),
        (f'target = "y"\n{Y}[columns.x]\nkind = "ignore"', "there are no inputs"),
        (f'target = "y"\n{X}[columns.y]\nkind = "date"', "target 'y' must be .* a number or a boolean"),
        (f'target = "y"\n{X}[columns.y]\nkind = "number"\nfill = 1', "target 'y' must have no fill"),
        (f'target = "y"\n{Y}[columns]\nx = 5', "schema: Cannot declare|column 'x': kind must be one of"),
        (f'target = "y"\ncolumns.x = 5\n{Y}', "column 'x': kind must be one of 'number', 'boolean'|Invalid|Cannot"),
        (
            f'target = "y"\n{Y}[columns.c]\nkind = "category"\nvalues = ["a"]\n[columns."c=a"]\nkind = "number"',
            "different names; there more than once: 'c=a'",
        ),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(text, match):
    with pytest.raises(InvalidSetting, match=match):
        Schema.parse(text)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ("", "kind must be one of 'number', 'boolean', 'date', 'category', 'ignore'"),
        ("kind = 5", "kind must be one of"),
        ('kind = "text"', "kind must be one of"),
        ('kind = "number"\nvalues = [1]', "unknown keys 'values'; kind 'number' takes"),
        ('kind = "ignore"\nfill = 1', "unknown keys 'fill'"),
        ('kind = "number"\nlow = 1', "low and high come together"),
        ('kind = "number"\nlow = 1\nhigh = 0', "low must not be above high, got low = 1.0, high = 0.0"),
        ('kind = "number"\nlow = 1\nhigh = 2\nfill = 3', "fill must be between low and high, got 3"),
        ('kind = "number"\nfill = inf', "fill must be a finite number"),
        ('kind = "number"\nfill = nan', "fill must be a finite number"),
        ('kind = "number"\nfill = true', "fill must be a finite number, got True"),
        ('kind = "number"\nfill = "1"', "fill must be a finite number"),
        (f'kind = "number"\nfill = {10**400}', "fill must be a finite number"),
        ('kind = "number"\nlow = -1.7e308\nhigh = 1.7e308', "high - low must be finite"),
        ('kind = "boolean"\nfill = 1', "fill must be true or false, got 1"),
        ('kind = "date"\nfill = 5', "fill must be a date without quotes, like 2024-12-31"),
        ('kind = "date"\nfill = "2024-12-31"', "fill must be a date without quotes"),
        ('kind = "date"\nfill = 10:00:00', "fill must be a date without quotes"),
        ('kind = "date"\nlow = 2024-01-01\nhigh = 2023-01-01', "low must not be above high"),
        ('kind = "date"\nlow = 2024-01-01\nhigh = 2024-01-01\nfill = 2024-01-01T00:00:01', "fill must be between"),
        ('kind = "category"', "values must be a list of texts"),
        ('kind = "category"\nvalues = []', "values must be a list of texts"),
        ('kind = "category"\nvalues = "a"', "values must be a list of texts"),
        ('kind = "category"\nvalues = [1]', "values must be a list of texts"),
        ('kind = "category"\nvalues = [""]', "values must be a list of texts"),
        ('kind = "category"\nvalues = ["a", "b", "a"]', "values must differ; there more than once: 'a'"),
        ('kind = "category"\nvalues = ["a", "other"]', "values must not contain 'other'"),
        ('kind = "category"\nvalues = ["a"]\nfill = "b"', "fill must be one of the values or 'other'"),
        ('kind = "category"\nvalues = ["a"]\nfill = 1', "fill must be one of the values or 'other'"),
    ],
)
def test_a_column_that_cannot_be_is_refused_by_name(keys, match):
    with pytest.raises(InvalidSetting, match=f"schema: column 'x': {match}"):
        one(keys)


def test_a_date_that_leaves_the_calendar_is_refused():
    with pytest.raises(InvalidSetting, match="schema: "):
        one('kind = "date"\nfill = 0001-01-01T00:00:00+05:00')


def test_a_schema_that_cannot_be_read_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidSetting, match="schema.toml cannot be read"):
        Schema.load(tmp_path / "schema.toml")
    (tmp_path / "schema.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidSetting, match="schema.toml cannot be read"):
        Schema.load(str(tmp_path / "schema.toml"))
    (tmp_path / "schema.toml").write_text("target = 5")
    with pytest.raises(InvalidSetting, match="schema.toml: no columns"):
        Schema.load(tmp_path / "schema.toml")


# The canonical form

names = st.text(max_size=5)
finite = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes()


def ranges(kind, values, *, fills=True):
    def made(three, bounded, filled):
        low, fill, high = sorted(three)
        assume(not isinstance(low, float) or math.isfinite(high - low))
        return kind(*((low, high) if bounded else (None, None)), fill if filled and fills else None)

    return st.builds(made, st.lists(values, min_size=3, max_size=3), st.booleans(), st.booleans())


def categories():
    values = st.lists(st.text(min_size=1).filter(lambda value: value != "other"), min_size=1, unique=True)
    return values.flatmap(
        lambda some: st.builds(Category, st.just(tuple(some)), st.sampled_from([None, "other", *some]))
    )


@st.composite
def schemas(draw):
    inputs = st.one_of(
        ranges(Number, finite),
        st.builds(Boolean, st.sampled_from([None, True, False])),
        ranges(Date, moments),
        categories(),
        st.just(Ignore()),
    )
    columns = draw(st.dictionaries(names, inputs, max_size=5))
    targets = draw(
        st.dictionaries(names, st.just(Boolean()) | ranges(Number, finite, fills=False), min_size=1, max_size=3)
    )
    id_ = draw(st.none() | names)
    try:
        return Schema(id_, tuple(targets), tuple((columns | targets).items()))
    except InvalidSetting:  # no inputs, or names that clash
        assume(False)


@pytest.mark.slow
@settings(max_examples=60)
@given(schemas())
def test_a_stored_schema_comes_back_and_its_text_is_its_identity(schema):
    text = schema.to_json()
    again = Schema.from_json(text)
    assert again == schema
    assert again.to_json() == text
    assert again.inputs == schema.inputs
    np.testing.assert_array_equal(again.bounds(), schema.bounds())
    assert text.isascii()
    assert schema.hash() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.slow
@settings(max_examples=60)
@given(schemas(), st.data())
def test_a_stored_schema_with_one_character_changed_is_refused_or_another_schema(schema, data):
    text = schema.to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    assume(changed != text)
    try:
        other = Schema.from_json(changed)
    except InvalidFile:
        return
    assert other.to_json() == changed
    assert other.hash() != schema.hash()


@pytest.mark.parametrize(
    "text",
    ["", "5", "null", "[]", "{}", '{"columns":5}', '{"columns":[5]}', '{"columns":[{"name":[]}]}', "[" * 100_000]
    + ['{"columns":[{"kind":"date","low":5,"name":"x"}],"id":null,"target":["y"]}'],
)
def test_what_is_not_a_stored_schema_is_refused(text):
    with pytest.raises(InvalidFile, match="not a stored schema"):
        Schema.from_json(text)


def test_a_stored_schema_has_one_form_only():
    text = one('kind = "number"\nlow = 0\nhigh = 1').to_json()
    assert Schema.from_json(text)
    for other in (text + " ", text.replace("0.0", "0"), text.replace('"x"', '"\\u0078"')):
        assert other != text
        with pytest.raises(InvalidFile, match="canonical"):
            Schema.from_json(other)


def test_equal_facts_give_equal_hashes_and_the_order_of_columns_is_a_fact():
    whole, floating = (one(f'kind = "number"\nlow = {low}\nhigh = 1{end}') for low, end in ((0, ""), ("-0.0", ".0")))
    assert whole.hash() == floating.hash()
    a, b = (
        Schema.parse(f'target = "y"\n{Y}{columns}') for columns in (X + X.replace("x", "z"), X.replace("x", "z") + X)
    )
    assert a.inputs == b.inputs[::-1]
    assert a.hash() != b.hash()


# From cells to floats


@pytest.mark.parametrize(
    "arrow_type", [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
def test_whole_numbers_of_every_width_are_numbers(arrow_type):
    largest = 2 ** (arrow_type.bit_width - ("uint" not in str(arrow_type))) - 1
    assert encoded('kind = "number"\nfill = 5', [0, None, largest], arrow_type).ravel().tolist() == [
        0,
        5,
        float(largest),
    ]


@pytest.mark.parametrize("arrow_type", [pa.float16(), pa.float32(), pa.float64()])
def test_floats_of_every_width_are_numbers_and_nan_is_a_gap(arrow_type):
    cells = pa.array(np.array([1.5, 7, math.nan, -0.0], arrow_type.to_pandas_dtype()), mask=np.arange(4) == 1)
    values = encoded('kind = "number"\nfill = 5', cells).ravel()
    assert values.tolist() == [1.5, 5, 5, 0]
    assert not np.signbit(values).any()


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.decimals(-(10**20), 10**20, places=10), min_size=1))
def test_decimals_become_the_nearest_float(cells):
    assert encoded('kind = "number"', cells, pa.decimal128(38, 10)).ravel().tolist() == [float(cell) for cell in cells]


def test_other_decimals_are_numbers_too():
    cells = pa.array([decimal.Decimal("1.25"), None], pa.decimal256(60, 2))
    assert encoded('kind = "number"\nfill = 0', cells).ravel().tolist() == [1.25, 0]


@pytest.mark.parametrize("cells", [pa.array([7, 7, None]).dictionary_encode(), pa.nulls(3)])
def test_dictionaries_of_numbers_are_numbers_and_an_empty_column_is_gaps(cells):
    assert encoded('kind = "number"\nfill = 7', cells).ravel().tolist() == [7, 7, 7]


@settings(max_examples=200)
@given(st.lists(st.none() | st.text(max_size=2), min_size=1), st.sampled_from(["", "other", "value"]), st.data())
def test_a_category_is_one_hot_as_pandas_computes_it(cells, fill, data):
    pool = sorted({cell for cell in cells if cell} | {"b", "ü"})
    values = data.draw(st.permutations(pool)).copy()[: data.draw(st.integers(1, len(pool)))]
    kind = Category(tuple(values), {"": None, "other": "other", "value": values[0]}[fill])
    text = pd.Series(cells, dtype=object).replace({"": None})
    made = data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    column = pa.array(cells, made)
    if made != pa.string_view() and data.draw(st.booleans()):
        column = column.dictionary_encode()
    schema = Schema(None, ("y",), (("x", kind), ("y", Number())))
    batch = pa.record_batch({"x": column})
    if text.isna().any() and not fill:
        with pytest.raises(InvalidInput, match=f"'x' has {text.isna().sum()} gaps in {len(cells)} rows"):
            schema.encode(batch, targets=False)
        return
    filled = text.where(text.notna(), kind.fill)
    dummies = pd.get_dummies(filled, dtype=float).reindex(columns=values, fill_value=0.0)
    np.testing.assert_array_equal(schema.encode(batch, targets=False)[0], dummies.to_numpy())
    assert schema.inputs == tuple(f"x={value}" for value in values)


def test_whole_numbers_are_categories_by_their_decimal():
    keys = 'kind = "category"\nvalues = ["-5", "10115"]\nfill = "10115"'
    assert encoded(keys, [10115, -5, 7, None], pa.int32()).tolist() == [[0, 1], [1, 0], [0, 0], [0, 1]]


def test_booleans_may_be_numbers():
    for cells in ([True, False, None], [1, 0, None], [1.0, -0.0, math.nan]):
        assert encoded('kind = "boolean"\nfill = true', cells).ravel().tolist() == [1, 0, 1]


UNITS = {"s": 10**6, "ms": 10**3, "us": 1}


@settings(max_examples=200)
@given(st.lists(moments, min_size=1), st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([None, "Asia/Tokyo"]))
@example([datetime(1969, 12, 31, 23, 59, 59, 999_999)], "ns", None)
def test_times_are_days_since_1970_in_utc(cells, unit, zone):
    exact = [(cell - EPOCH) // timedelta(microseconds=1) for cell in cells]
    if unit == "ns":
        ticks = [1000 * us + 999 for us in exact]  # nanoseconds do not count
        assume(max(map(abs, ticks)) < 2**63)
    else:
        ticks = [us // UNITS[unit] for us in exact]
        exact = [tick * UNITS[unit] for tick in ticks]
    column = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit, zone))
    expected = [float(us) / (24 * 3600 * 10**6) for us in exact]
    assert encoded('kind = "date"', column).ravel().tolist() == expected
    assert all(abs(day - us / (24 * 3600 * 10**6)) < 1e-9 for day, us in zip(expected, exact, strict=True))


@given(st.lists(st.dates(), min_size=1))
def test_dates_are_days_since_1970(cells):
    expected = [(cell - EPOCH.date()).days for cell in cells]
    for arrow_type in (pa.date32(), pa.date64()):
        assert encoded('kind = "date"', cells, arrow_type).ravel().tolist() == expected
    assert encoded('kind = "date"', [cell.isoformat() for cell in cells]).ravel().tolist() == expected


@settings(max_examples=200)
@given(
    st.lists(st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)), min_size=1), st.booleans(), st.sampled_from(" T")
)
def test_a_time_in_text_is_the_time_in_a_timestamp(cells, with_zone, between):
    zone = timedelta(hours=5, minutes=30)
    text = [cell.isoformat(between) + ("+05:30" if with_zone and k % 2 else "") for k, cell in enumerate(cells)]
    moved = [cell - zone if with_zone and k % 2 else cell for k, cell in enumerate(cells)]
    column = pa.array(moved, pa.timestamp("us"))
    np.testing.assert_array_equal(encoded('kind = "date"', text), encoded('kind = "date"', column))


def test_forms_of_a_date_in_text():
    text = ["2024-02-29", "2024-02-29 12", "2024-02-29T12:00", "2024-02-29T12:00:00Z", "2024-02-29 13:00:00+01"]
    text += ["2024-02-29T12:00:00.000000999", "2024-02-29T12:00:00.000000999-0000", "", None, "NaN"]
    noon = (datetime(2024, 2, 29, 12) - EPOCH) / timedelta(days=1)
    keys = 'kind = "date"\nfill = 2024-02-29T21:00:00+09:00'
    assert encoded(keys, text).ravel().tolist() == [noon - 0.5] + [noon] * 9


@given(moments)
def test_a_row_on_a_bound_is_not_outside(moment):
    schema = Schema(None, ("y",), (("x", Date(moment, moment)), ("y", Number())))
    batch = pa.record_batch({"x": pa.array([moment], pa.timestamp("us"))})
    assert schema.encode(batch, targets=False)[0].ravel().tolist() == schema.bounds()[0].tolist()


def test_a_timestamp_beyond_all_calendars_is_refused():
    with pytest.raises(InvalidInput, match="column 'x' must hold dates"):
        encoded('kind = "date"', pa.array([2**62], pa.int64()).cast(pa.timestamp("s")))


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("number", [CANARY]),
        ("number", [True]),
        ("number", [date(2024, 1, 1)]),
        ("number", [[1.0]]),
        ("boolean", [CANARY]),
        ("boolean", [0, 2]),
        ("boolean", [0.5]),
        ("date", [20240101]),
        ("date", [20240101.0]),
        ("date", [CANARY]),
        ("date", ["2024-02-30"]),
        ("category", [1.0]),
        ("category", [True]),
        ("category", [date(2024, 1, 1)]),
    ],
)
def test_cells_of_another_kind_are_refused_by_column_and_not_quoted(kind, cells):
    with pytest.raises(InvalidInput, match="column 'x' must hold") as caught:
        encoded(f'kind = "{kind}"' + ('\nvalues = ["a"]' if kind == "category" else ""), cells)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("kind", ["number", "boolean", "date", "category"])
def test_a_gap_without_a_fill_is_refused_by_column(kind):
    cells = {"number": [1.0, None, math.nan], "boolean": [True, None, None], "date": [date(2024, 1, 1), None, None]}
    keys = f'kind = "{kind}"' + ('\nvalues = ["a"]' if kind == "category" else "")
    with pytest.raises(InvalidInput, match="column 'x' has 2 gaps in 3 rows; leave those rows out or"):
        encoded(keys, cells.get(kind, ["a", "", None]))


def test_infinities_are_refused_by_column_also_beside_gaps():
    for cells in ([1.0, math.inf], [-math.inf, None]):
        with pytest.raises(InvalidInput, match="column 'x' has 1 infinite values in 2 rows"):
            encoded('kind = "number"\nfill = 0', cells)


def test_columns_that_lack_or_that_nobody_declared_are_named():
    schema = Schema.parse(f'id = "i"\ntarget = "y"\n{Y}{X}[columns.z]\nkind = "ignore"')
    schema.check(["x", "y", "i"], targets=True, ids=True)
    schema.check(["x", "y", "z", "i", "__index_level_0__"], targets=True)
    schema.check(["x", "new"], targets=False)
    with pytest.raises(InvalidInput, match="no columns 'y', 'i'; there are 'x', 'z'"):
        schema.check(["x", "z"], targets=True, ids=True)
    with pytest.raises(InvalidInput, match="does not mention: 'new', 'newer'; declare them; kind = \"ignore\" leaves"):
        schema.check(["x", "new", "y", "newer"], targets=True)
    with pytest.raises(InvalidInput, match="no column 'x'; there are 'new'"):
        schema.encode(pa.record_batch({"new": [1]}), targets=False)


# Without a schema


def test_without_a_schema_all_columns_are_numbers_with_observed_bounds():
    cells = {
        "i": pa.string(),
        "a": pa.int8(),
        "y": pa.bool_(),
        "b": pa.decimal128(5, 2),
        "__index_level_0__": pa.int64(),
    }
    schema = Schema.plain(pa.schema(cells.items()), ["y"], "i")
    assert schema == Schema("i", ("y",), (("a", Number()), ("y", Boolean()), ("b", Number())))
    assert np.isnan(schema.bounds()).all()
    assert Schema.plain(pa.schema([("a", pa.int8()), ("b", pa.float32())]), "b").id is None


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
        Schema.plain(pa.schema(cells.items()), "y")
    with pytest.raises(InvalidInput, match="not numbers: 'text'"):
        Schema.plain(pa.schema([("a", pa.int8()), ("text", pa.string())]), "text")
    with pytest.raises(InvalidInput, match="no columns 'z', 'i'; there are 'a'"):
        Schema.plain(pa.schema([("a", pa.int8())]), "z", "i")


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
@settings(max_examples=200)
@given(frames(), st.integers(1, 3), st.booleans())
def test_a_proposal_takes_the_data_it_came_from(frame, people, with_id):
    table, kinds = frame
    source = table if with_id else table.drop("id")
    schema = Schema.parse(propose(source, target="y", id="id" if with_id else None, people=people))
    declared = dict(schema.columns)
    assert list(declared) == [name for name in table.column_names if name != "id"]
    (block,) = blocks(source, schema, targets=True, ids=with_id)
    assert within(block.X, *schema.bounds())
    assert within(block.y, *schema.target_bounds())
    np.testing.assert_array_equal(block.y, np.array(table["y"].to_pylist())[:, None] + 0.0)
    whose = table["id"].to_pylist() if with_id else range(len(table))
    found = iter(block.X.T)
    for name, kind in {"n": "whole", **kinds}.items():
        cells = table[name].to_pylist()
        if kind == "text":
            values = shared(cells, whose, people)
            assert getattr(declared[name], "values", ()) == tuple(values)
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


@settings(max_examples=100)
@given(frames(), st.integers(1, 3))
def test_a_proposal_for_a_csv_file_takes_it_whatever_the_cells_look_like(tmp_path_factory, frame, people):
    path = tmp_path_factory.mktemp("proposal") / "t.csv"
    pyarrow.csv.write_csv(frame[0], path)
    assume(set(types(path).names) == set(frame[0].column_names))
    schema = Schema.parse(propose(path, target="y", id="id", people=people))
    (block,) = blocks(path, schema, targets=True, ids=True)
    assert block.ids == [str(cell).encode() for cell in frame[0]["id"].to_pylist()]
    assert within(block.X, *schema.bounds())


def proposed(people=1, **columns):
    """What is proposed for each column, and the text."""
    text = propose(pa.table({"y": np.zeros(len(next(iter(columns.values())))), **columns}), target="y", people=people)
    return dict(Schema.parse(text).columns), text


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        ([18, 97], 18, 97),
        ([183, 9712], 100, 9800),
        ([-183, 9712], -200, 9800),
        ([0.1234, 0.5678], 0.12, 0.57),
        ([0.1, 0.9], 0.1, 0.9),
        ([-1e-300, 7.77e-300], -1e-300, 7.8e-300),
        ([12345.0, 12345.0], 12000, 13000),
        ([0.0, 0.0], 0, 0),
        ([1e300, 2.34e300], 1e300, 2.4e300),
    ],
)
def test_bounds_are_rounded_outward_to_two_digits_of_the_span(cells, low, high):
    number = proposed(x=cells)[0]["x"]
    assert (number.low, number.high) == (low, high)


@pytest.mark.parametrize(
    ("first", "last", "low", "high"),
    [
        ("1931-05-05", "2006-07-07", date(1931, 1, 1), date(2007, 1, 1)),
        ("1931-01-01", "2006-01-01", date(1931, 1, 1), date(2006, 1, 1)),
        ("2020-05-05", "2023-12-07", date(2020, 5, 1), date(2024, 1, 1)),
        ("2020-05-05T10:00:00", "2020-05-07T10:00:00", date(2020, 5, 5), date(2020, 5, 8)),
    ],
)
def test_dates_are_rounded_outward_to_years_months_or_days(first, last, low, high):
    cells = pa.array([datetime.fromisoformat(first), datetime.fromisoformat(last), None])
    kind = proposed(x=cells)[0]["x"]
    assert (kind.low.date(), kind.high.date(), kind.fill.date()) == (low, high, low)


def test_dates_at_and_beyond_the_end_of_the_calendar_are_taken():
    kind = proposed(x=pa.array([date(1900, 1, 1), date(9999, 12, 31)]))[0]["x"]
    assert kind == Date(datetime(1900, 1, 1), datetime.max)
    columns, text = proposed(n=[1, 2], x=pa.array([0, 10**7], pa.int32()).cast(pa.date32()))
    assert columns["x"] == Date()
    assert "beyond the years 1 to 9999" in text
    assert proposed(n=[1, 2], x=pa.array([None, 10**7], pa.int32()).cast(pa.date32()))[0]["x"].fill == EPOCH


def test_gaps_get_a_fill_in_the_middle():
    columns, _ = proposed(
        x=[10.0, None, 30.0], b=[True, None, False], c=["a", "", "b"], d=["a", None, "b"], e=["a", "b", "b"]
    )
    assert columns["x"] == Number(10, 30, 20)
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
        "rare": "has no value that 2 or more have",
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
    assert dict(Schema.parse(propose(table, target="y", id="who", people=2)).columns)["city"].values == ("Bonn",)
    rows = propose(table.drop("who"), target="y", people=2)
    assert dict(Schema.parse(rows).columns)["city"].values == ("Bonn", "Ulm")
    assert "at least 2 rows have" in rows
    with pytest.raises(InvalidInput, match="column 'who' has 1 rows without an id"):
        propose(table.set_column(2, "who", pa.array(["a", "", "b", "c"])), target="y", id="who")


def test_text_with_very_many_values_is_ignored_and_not_kept_in_memory(monkeypatch):
    columns, text = proposed(n=np.arange(101), x=[str(k) + "x" for k in range(101)])
    assert columns["x"] == Ignore()
    assert "more than 100 values that would be a category" in text
    monkeypatch.setattr(proposal, "MOST_TRACKED", 50)
    columns, text = proposed(n=np.arange(101), x=[str(k) + "x" for k in range(101)])
    assert columns["x"] == Ignore()
    assert "more than 50 different values" in text
    assert proposed(n=np.arange(50), x=[str(k) + "x" for k in range(50)])[0]["x"] != Ignore()


def test_a_proposal_keeps_no_more_people_in_memory_than_it_has_to_count(monkeypatch):
    texts = proposal._Texts(3)
    for start in (0, 50):
        texts.add(pa.array(["a", "b"] * 25), pa.array(range(start, start + 50)))
    assert {value: len(who) for value, who in texts.who.items()} == {"a": 3, "b": 3}
    monkeypatch.setattr(proposal, "MOST_TRACKED", 1)
    texts.add(pa.array(["c"]), pa.array([0]))
    texts.add(pa.array(["d"]), pa.array([0]))
    assert texts.who == {}


def test_rows_of_many_batches_count_together(monkeypatch):
    monkeypatch.setattr("expunge.vault.tables.reading.BLOCK_ROWS", 2)
    columns, _ = proposed(3, n=[5, 1, 2, 9, 3], x=["a", "b", "a", "b", "a"], t=[None, 1.0, 2.0, 3.0, 4.0])
    assert columns["n"] == Number(1, 9)
    assert columns["t"] == Number(1, 4, 2.5)
    assert columns["x"].values == ("a",)


def test_a_proposal_says_where_it_comes_from_and_what_to_check(tmp_path):
    path = tmp_path / "customers\n.csv"
    path.write_text("i,y,x\n1,2,3\n2,3,4\n")
    text = propose(path, target="y", id="i", people=7)
    header = text[: text.index("id =")]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    for words in (
        'read from "customers\\n.csv"',
        "tell about the people",
        "facts that are public",
        "at least 7 people",
    ):
        assert words in header
    assert tomllib.loads(text)["id"] == "i"
    without = propose(path, target=["y", "x"][:1])
    assert "# id = ..." in without
    assert "id" not in tomllib.loads(without)


def test_several_targets_are_proposed_without_a_fill():
    table = pa.table({"a": [1.0, None], "b": [True, False], "x": [1, 2]})
    text = propose(table, target=["a", "b"])
    schema = Schema.parse(text)
    assert schema.targets == ("a", "b")
    assert dict(schema.columns) == {"a": Number(1, 1), "b": Boolean(), "x": Number(1, 2)}
    assert "# has gaps: leave rows without a target out of the data\n[columns.a]" in text


def test_a_csv_column_that_starts_like_numbers_or_dates_and_goes_on_as_text_is_text(tmp_path):
    path = tmp_path / "t.csv"
    head = "y,n,phone,day,flag,late\n" + "1,1,030,2024-01-01,true,\n" * 100_000
    path.write_text(head + "1,2,+49 30,unknown,maybe,x\n")
    columns = dict(Schema.parse(propose(path, target="y")).columns)
    assert columns["phone"] == Category(("030",))
    assert columns["day"] == Category(("2024-01-01",))
    assert columns["flag"] == Category(("true",))
    assert columns["late"] == Ignore()
    path.write_bytes(head.encode() + b"1,2,+49 30,unknown,maybe,\xff\n")
    with pytest.raises(InvalidInput, match="column 'late' must hold text in UTF-8"):
        propose(path, target="y")


@pytest.mark.parametrize("y", [["a", "b"], [date(2024, 1, 1)] * 2, [math.inf, 1.0], [None, None]])
def test_a_target_that_cannot_be_predicted_is_refused(y):
    with pytest.raises(InvalidInput, match="target 'y' must hold finite numbers, or true and false"):
        propose(pa.table({"y": y, "x": [1, 2]}), target="y")


def test_a_proposal_needs_rows_columns_and_people():
    with pytest.raises(InvalidInput, match="without rows"):
        propose(pa.table({"y": pa.array([], pa.int8()), "x": pa.array([], pa.int8())}), target="y")
    with pytest.raises(InvalidInput, match="no column 'z'"):
        propose(pa.table({"y": [1]}), target="z")
    with pytest.raises(InvalidSetting, match="there are no inputs"):
        propose(pa.table({"y": [1]}), target="y")
    with pytest.raises(InvalidSetting, match="people must be a whole number"):
        propose(pa.table({"y": [1], "x": [1]}), target="y", people=0)
