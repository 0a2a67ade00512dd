"""Cells: what is declared is what is computed, as Python computes it."""

import decimal
import math
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from expunge.errors import InvalidInput, InvalidSetting
from expunge.tables.cells import encode_batch
from expunge.tables.kinds import Category, Date, Number
from expunge.tables.notations import DATE_FORMATS
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema

from support.sampling import examples

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
    return encode_batch(one(keys), pa.record_batch({"x": column}), targets=False)[0]


moments = st.datetimes()


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


@examples(200)
@given(st.lists(st.decimals(-(10**20), 10**20, places=10), min_size=1))
def test_decimals_become_the_nearest_float(cells):
    assert encoded('kind = "number"', cells, pa.decimal128(38, 10)).ravel().tolist() == [float(cell) for cell in cells]


def test_other_decimals_are_numbers_too():
    cells = pa.array([decimal.Decimal("1.25"), None], pa.decimal256(60, 2))
    assert encoded('kind = "number"\nfill = 0', cells).ravel().tolist() == [1.25, 0]


numerals = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers(-(10**20), 10**20).map(str)
spaced = st.sampled_from(["", " ", "\t", "  "])


@examples(200)
@given(
    st.lists(
        st.tuples(spaced, numerals | st.sampled_from(["+1", ".5", "1.", "1E5", "?"]), spaced).map("".join)
        | st.sampled_from(["", "NA", "n/a"]),
        min_size=1,
    )
)
def test_numbers_in_text_are_what_they_are_in_a_csv_file(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    plain = ["" if "?" in text else text for text in texts]
    pyarrow.csv.write_csv(pa.table({"x": plain}), path)
    (expected,) = read_blocks(path, one('kind = "number"\nfill = 5'), targets=False, ids=False)
    for gaps in ('["?"]', '"text"'):
        keys = f'kind = "number"\nfill = 5\ngaps = {gaps}'
        column = pa.array(texts)
        for made in (column, column.cast(pa.large_string()), column.cast(pa.string_view()), column.dictionary_encode()):
            np.testing.assert_array_equal(encoded(keys, made), expected.X)
        pyarrow.csv.write_csv(pa.table({"x": texts}), path)
        (found,) = read_blocks(path, one(keys), targets=False, ids=False)
        np.testing.assert_array_equal(found.X, expected.X)


def test_texts_that_count_as_gaps_are_filled_and_others_are_refused_by_row():
    cells = ["1", " ? ", "-", None, "2.5"]
    assert encoded('kind = "number"\nfill = 7\ngaps = ["?", "-"]', cells).ravel().tolist() == [1, 7, 7, 7, 2.5]
    with pytest.raises(InvalidInput, match=r"gaps: 3 in column 'x' \(of 5 rows\)"):
        encoded('kind = "number"\ngaps = ["?", "-"]', cells)
    for gaps in ('["?"]', "[]"):
        with pytest.raises(
            InvalidInput, match="column 'x' must hold numbers, but row 2 does not; correct it, list its"
        ):
            encoded(f'kind = "number"\nfill = 7\ngaps = {gaps}', ["1", CANARY, "-"])
    assert encoded('kind = "number"\nfill = 7\ngaps = "text"', ["1", CANARY, "1 000"]).ravel().tolist() == [1, 7, 7]
    assert encoded('kind = "number"\ngaps = []', ["1", "2"]).ravel().tolist() == [1, 2]


def test_a_number_that_stands_for_a_gap_does_so_however_it_is_written():
    keys = 'kind = "number"\nfill = 7\ngaps = ["-999", "?"]'
    for cells in (["1", "-999", "-999.0", "-9.99e2"], [1, -999, -999, -999], [1.0, -999.0, -999.0, -999.0]):
        assert encoded(keys, cells).ravel().tolist() == [1, 7, 7, 7]
    assert encoded(keys, [decimal.Decimal("-999.00")], pa.decimal128(9, 2)).ravel().tolist() == [7]
    for text in ("inf", "nan", "1_0", "1٣"):  # no number that anybody writes: a text and nothing else
        assert encoded(f'kind = "number"\nfill = 7\ngaps = ["{text}"]', [10.0, 13.0]).ravel().tolist() == [10, 13]


@pytest.mark.parametrize("cells", [pa.array([7, 7, None]).dictionary_encode(), pa.nulls(3)])
def test_dictionaries_of_numbers_are_numbers_and_an_empty_column_is_gaps(cells):
    assert encoded('kind = "number"\nfill = 7', cells).ravel().tolist() == [7, 7, 7]


@examples(200)
@given(st.lists(st.none() | st.text(max_size=2), min_size=1), st.sampled_from(["", "other", "value"]), st.data())
def test_a_category_is_one_hot(cells, fill, data):
    pool = sorted({cell for cell in cells if cell} | {"b", "ü"})
    values = data.draw(st.permutations(pool)).copy()[: data.draw(st.integers(1, len(pool)))]
    kind = Category(tuple(values), {"": None, "other": "other", "value": values[0]}[fill])
    gaps = sum(not cell for cell in cells)
    made = data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    column = pa.array(cells, made)
    if made != pa.string_view() and data.draw(st.booleans()):
        column = column.dictionary_encode()
    schema = Schema(None, ("y",), (("x", kind), ("y", Number())))
    batch = pa.record_batch({"x": column})
    if gaps and not fill:
        with pytest.raises(InvalidInput, match=rf"gaps: {gaps} in column 'x' \(of {len(cells)} row"):
            encode_batch(schema, batch, targets=False)
        return
    expected = [[float((cell or kind.fill) == value) for value in values] for cell in cells]
    np.testing.assert_array_equal(encode_batch(schema, batch, targets=False)[0], expected)
    assert schema.inputs == tuple(f"x={value}" for value in values)


def test_whole_numbers_are_categories_by_their_decimal():
    keys = 'kind = "category"\nvalues = ["-5", "10115"]\nfill = "10115"'
    assert encoded(keys, [10115, -5, 7, None], pa.int32()).tolist() == [[0, 1], [1, 0], [0, 0], [0, 1]]


def test_booleans_may_be_numbers():
    for cells in ([True, False, None], [1, 0, None], [1.0, -0.0, math.nan]):
        assert encoded('kind = "boolean"\nfill = true', cells).ravel().tolist() == [1, 0, 1]


UNITS = {"s": 10**6, "ms": 10**3, "us": 1}


@examples(200)
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


@examples(200)
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
    assert encode_batch(schema, batch, targets=False)[0].ravel().tolist() == schema.bounds()[0].tolist()


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
    with pytest.raises(InvalidInput, match=r"gaps: 2 in column 'x' \(of 3 rows\); leave those rows out or"):
        encoded(keys, cells.get(kind, ["a", "", None]))


def test_infinities_are_refused_by_column_also_beside_gaps():
    for cells in ([1.0, math.inf], [-math.inf, None]):
        with pytest.raises(InvalidInput, match=r"infinite values: 1 in column 'x' \(of 2 rows\)"):
            encoded('kind = "number"\nfill = 0', cells)


def test_columns_that_lack_or_that_nobody_declared_are_named():
    schema = Schema.parse(f'id = "i"\ntarget = "y"\n{Y}{X}[columns.z]\nkind = "ignore"')
    schema.check_columns(["x", "y", "i"], targets=True, ids=True)
    schema.check_columns(["x", "y", "z", "i", "__index_level_0__"], targets=True)
    schema.check_columns(["x", "new"], targets=False)
    with pytest.raises(InvalidInput, match="no columns 'y', 'i'; there are 'x', 'z'"):
        schema.check_columns(["x", "z"], targets=True, ids=True)
    with pytest.raises(InvalidInput, match="does not mention: 'new', 'newer'; declare them, with kind = \"ignore\""):
        schema.check_columns(["x", "new", "y", "newer"], targets=True)
    with pytest.raises(InvalidInput, match="no column 'x'; the table has 1 column with another name"):
        encode_batch(schema, pa.record_batch({"new": [1]}), targets=False)


# Formats

MARKS = {
    "1234,56": ("", ","),
    "1.234,56 €": (".", ","),
    "$1,234.56": (",", "."),
    "1 234,56": (" ", ","),
    "1'234.56%": ("'", "."),
}


@examples(100)
@given(st.sampled_from(sorted(MARKS)), st.integers(-(10**12), 10**12), st.integers(0, 3), st.booleans(), st.booleans())
def test_numbers_are_read_as_their_format_writes_them(form, digits, places, with_group, with_unit):
    number = decimal.Decimal(digits).scaleb(-places)
    group, mark = MARKS[form]
    text = f"{number:,f}" if with_group and group else f"{number:f}"
    text = text.replace(".", "#").replace(",", group).replace("#", mark)
    if with_unit:
        text = {"1.234,56 €": f"{text} €", "$1,234.56": f"${text}", "1'234.56%": f"{text}%"}.get(form, text)
    keys = f'kind = "number"\nformat = "{form}"'
    assert encoded(keys, [f" {text} "]).tolist() == [[float(number)]]
    assert encoded(keys, [float(number)]).tolist() == [[float(number)]]  # a cell that is a number needs no format


@examples(50)
@given(st.dates(date(1900, 1, 1), date(2999, 12, 31)), st.booleans())
def test_dates_are_read_as_their_format_writes_them(day, padded):
    width = 2 if padded else 1
    d, m, y = f"{day.day:0{width}}", f"{day.month:0{width}}", f"{day.year}"
    written = {
        "31.12.2020": f"{d}.{m}.{y}", "31/12/2020": f"{d}/{m}/{y}", "31-12-2020": f"{d}-{m}-{y}",
        "12/31/2020": f"{m}/{d}/{y}", "12-31-2020": f"{m}-{d}-{y}", "2020/12/31": f"{y}/{m}/{d}",
        "2020.12.31": f"{y}.{m}.{d}",
    }  # fmt: skip
    assert tuple(written) == DATE_FORMATS
    days = (day - date(1970, 1, 1)).days
    for form, text in written.items():
        cells = [text, f"{text} 18:00", day.isoformat()]
        assert encoded(f'kind = "date"\nformat = "{form}"', cells)[:, 0].tolist() == [days, days + 0.75, days]


NOT_WRITTEN = {
    "1.234,56": [
        "1,234.56",
        "1.23",
        "12.34,5",
        "1234.567,8",
        "01,5",
        "1,5,5",
        ",5",
        "5,",
        "--5",
        "1e5",
        "€5",
        "\uff15",
    ],
    "$1,234.56": ["€5", "5,00", "1,23", "$", "5 USD"],
    "31.12.2020": ["31.02.2020", "12.31.2020", "1.1.20", "31/12/2020", "32.1.2020", "0.1.2020", "31.12.2020x"],
    "12/31/2020": ["31/12/2020", "1/30/20", "2/30/2020"],
}


@pytest.mark.parametrize("form", NOT_WRITTEN)
def test_cells_in_another_notation_are_refused_without_showing_them(form):
    kind = "date" if form.endswith("2020") else "number"
    for cell in NOT_WRITTEN[form]:
        with pytest.raises(InvalidInput, match="column 'x' must hold") as refusal:
            encoded(f'kind = "{kind}"\nformat = "{form}"', [form, cell])
        assert cell not in str(refusal.value) or len(cell) < 3
    if kind == "number":
        keys = f'kind = "number"\nformat = "{form}"\ngaps = "text"\nfill = 7'
        assert encoded(keys, NOT_WRITTEN[form]).tolist() == [[7]] * len(NOT_WRITTEN[form])


@pytest.mark.parametrize("form", ["1234.5", "1,234,56", "€1234.56€", "", "31.12.2020"])
def test_a_format_of_numbers_is_an_example(form):
    with pytest.raises(InvalidSetting, match="column 'x': format must be the number 1234.56 as written in the cells"):
        one(f'kind = "number"\nformat = "{form}"')


@pytest.mark.parametrize("form", ["%d.%m.%Y", "1.2.2020", "1234.56"])
def test_a_format_of_dates_is_one_of_the_examples(form):
    with pytest.raises(InvalidSetting, match="column 'x': format must be the last day of 2020"):
        one(f'kind = "date"\nformat = "{form}"')
