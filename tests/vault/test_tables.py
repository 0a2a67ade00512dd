"""Tables: the same rows give the same blocks, wherever they come from, and no error tells what is in them."""

import decimal
import gzip
import io
import pickle
import subprocess
import sys
import traceback
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expunge
from expunge.encoding.bounds import Bounds
from expunge.errors import CountedInput, InvalidFile, InvalidInput, InvalidSetting
from expunge.vault import tables as door
from expunge.vault.tables import reading as tables
from expunge.vault.tables.ids import id_bytes
from expunge.vault.tables.kinds import Category, Number
from expunge.vault.tables.predictions import written_predictions
from expunge.vault.tables.proposal import propose
from expunge.vault.tables.proposal.plain import plain_schema, plain_schema_of
from expunge.vault.tables.reading import checked_batches, column_types, read_blocks
from expunge.vault.tables.schema import Schema

CANARY = "Xq7" + "canary"

SCHEMA = Schema.parse("""
id = "who"
target = ["y", "won"]
[columns.y]
kind = "number"
[columns.won]
kind = "boolean"
[columns.age]
kind = "number"
fill = 40
[columns.member]
kind = "boolean"
fill = false
[columns.city]
kind = "category"
values = ["Berlin", "a, \\"b\\"\\nc", "7"]
fill = "Berlin"
[columns.joined]
kind = "date"
fill = 2000-01-01
[columns.seen]
kind = "date"
[columns.note]
kind = "ignore"
""")


@pytest.fixture
def frame(rng):
    n = 200
    seconds = rng.integers(-(10**9), 2 * 10**9, n)
    frame = pd.DataFrame(
        {
            "note": [CANARY] * n,
            "seen": pd.to_datetime(seconds, unit="s") + pd.to_timedelta(rng.integers(0, 10**6, n), unit="us"),
            "city": rng.choice(["Berlin", 'a, "b"\nc', "7", "Ulm", None], n),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 20, n)),
            "who": [f"00{k}" for k in rng.integers(0, 50, n)],
            "member": rng.choice(np.array([True, False, None], dtype=object), n),
            "joined": rng.choice(np.array([date(1969, 5, 5), date(2024, 2, 29), None], dtype=object), n),
            "y": rng.normal(size=n),
            "won": rng.random(n) < 0.5,
        }
    )
    return frame.astype({"member": "boolean"})


def expected(frame):
    city = frame["city"].fillna("Berlin")
    joined = [datetime.combine(day, time()) if day else datetime(2000, 1, 1) for day in frame["joined"]]
    columns = [frame["age"].fillna(40), frame["member"].fillna(False).astype(float)]
    columns += [(city == value).astype(float) for value in ("Berlin", 'a, "b"\nc', "7")]
    seen = [stamp.to_pydatetime() for stamp in frame["seen"]]
    columns += [[(t - datetime(1970, 1, 1)) / timedelta(days=1) for t in times] for times in (joined, seen)]
    return np.column_stack(columns), frame[["y", "won"]].astype(float).to_numpy(), [w.encode() for w in frame["who"]]


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()


def csv(table, path, *, delimiter=","):
    options = pyarrow.csv.WriteOptions(delimiter=delimiter)
    if path.suffix == ".gz":
        with gzip.open(path, "wb") as file:
            pyarrow.csv.write_csv(table, file, options)
    else:
        pyarrow.csv.write_csv(table, path, options)
    return path


def parquet(table, path, **options):
    pyarrow.parquet.write_table(table, path, **options)
    return path


def arrow_file(table, path, new=pyarrow.ipc.new_file, rows=64):
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


FORMS = {
    "csv": lambda t, d: csv(t, d / "t.csv"),
    "csv.gz": lambda t, d: csv(t, d / "t.CSV.gz"),
    "tsv": lambda t, d: csv(t, d / "t.tsv", delimiter="\t"),
    "path as text": lambda t, d: str(csv(t, d / "t.csv")),
    "parquet": lambda t, d: parquet(t, d / "t.parquet", row_group_size=33),
    "pq": lambda t, d: parquet(t, d / "t.pq", use_dictionary=False, compression="none"),
    "arrow": lambda t, d: arrow_file(t, d / "t.arrow"),
    "arrow stream": lambda t, d: arrow_file(t, d / "t.arrow", pyarrow.ipc.new_stream),
    "feather": lambda t, d: pyarrow.feather.write_feather(t, str(d / "t.feather")) or d / "t.feather",
    "ipc": lambda t, d: arrow_file(t, d / "t.ipc", rows=1),
    "table": lambda t, d: t,
    "reader": lambda t, d: t.to_reader(max_chunksize=9),
    "polars": lambda t, d: pl.from_arrow(t),
    "polars categories": lambda t, d: pl.from_arrow(t).with_columns(pl.col("city", "who").cast(pl.Categorical)),
    "pandas": lambda t, d: t.to_pandas(),
}


def whole(source, schema=SCHEMA, *, targets=True, ids=True):
    parts = list(read_blocks(source, schema, targets=targets, ids=ids))
    y = np.vstack([part.y for part in parts]) if targets else None
    return np.vstack([part.X for part in parts]), y, [one for part in parts for one in part.ids] if ids else None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [64, 65_536])
def test_every_format_gives_the_rows_that_pandas_computes(frame, tmp_path, monkeypatch, form, rows):
    monkeypatch.setattr(tables, "BLOCK_ROWS", rows)
    source = FORMS[form](arrow(frame), tmp_path)
    X, y, ids = whole(source)
    expected_X, expected_y, expected_ids = expected(frame)
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)
    assert ids == expected_ids
    assert X.flags.c_contiguous


@pytest.mark.parametrize("form", FORMS)
def test_to_predict_needs_neither_targets_nor_ids_and_takes_columns_nobody_declared(frame, tmp_path, form):
    table = arrow(frame).drop(["y", "won", "who", "note"]).append_column("new", pa.array(frame["note"]))
    X, y, ids = whole(FORMS["csv" if "categories" in form else form](table, tmp_path), targets=False, ids=False)
    np.testing.assert_array_equal(X, expected(frame)[0])
    assert y is None
    assert ids is None


@settings(max_examples=100)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 20))
def test_blocks_have_the_same_size_whatever_the_batches(sizes, rows):
    schema = Schema.parse('id="i"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"')
    ends = np.cumsum([0, *sizes])
    parts = [np.arange(a, b) for a, b in pairwise(ends)]
    made = [pa.record_batch({"i": part, "x": part * 2, "y": part * 3}) for part in parts]
    n = int(ends[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_ROWS", rows)
        source = pa.Table.from_batches(made, pa.schema([(name, pa.int64()) for name in "ixy"]))
        found = list(read_blocks(source, schema, targets=n > 0, ids=True))
    assert [len(part.X) for part in found] == [rows] * (n // rows) + [n % rows] * (n % rows > 0)
    assert [one for part in found for one in part.ids] == [b"%d" % k for k in range(n)]
    np.testing.assert_array_equal(
        np.concatenate([part.X for part in found] or [np.empty((0, 1))])[:, 0], 2 * np.arange(n)
    )


def numbers(**columns):
    table = pa.table(columns)
    return table, plain_schema_of(table.schema, "y")


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "table"])
def test_a_block_is_65_536_rows(tmp_path, form):
    table, schema = numbers(x=np.arange(2 * 65_536 + 1), y=np.zeros(2 * 65_536 + 1))
    sizes = [len(part.X) for part in read_blocks(FORMS[form](table, tmp_path), schema, targets=True, ids=False)]
    assert sizes == [65_536, 65_536, 1]


def test_the_first_rows_of_a_csv_file_do_not_decide_about_the_others(tmp_path):
    path = tmp_path / "t.csv"
    n = 200_000  # beyond the first block that pyarrow reads
    path.write_text("who,x,city,y\n" + "007,1,12,1\n" * n + "08,1.5,Ulm,2.5\n")
    assert column_types(path).field("x").type == pa.int64()
    schema = Schema.parse(
        'id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"\n'
        '[columns.city]\nkind="category"\nvalues=["12", "Ulm"]'
    )
    X, y, ids = whole(path, schema)
    assert X.tolist() == [[1.0, 1.0, 0.0]] * n + [[1.5, 0.0, 1.0]]
    assert y[-1].tolist() == [2.5]
    assert ids == [b"007"] * n + [b"08"]


def test_without_a_schema_every_number_of_a_csv_file_is_a_float(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x,y\n" + "007,1,1\n" * 200_000 + "x,1.5,2.5\n")
    X, y, ids = whole(path, plain_schema(path, "y", "who"))
    assert (X[-1, 0], y[-1, 0], ids[-1], ids[0]) == (1.5, 2.5, b"x", b"007")


def test_only_the_empty_cell_is_a_gap_in_text_and_the_usual_words_are_gaps_in_numbers_and_dates(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,age,city,joined,y\nNA,NA,NA,NA,1\nnull,nan,,,2\n-,,NA,2000-01-02,3\n")
    schema = Schema.parse("""
        id = "who"
        target = "y"
        [columns.y]
        kind = "number"
        [columns.age]
        kind = "number"
        fill = -1
        [columns.city]
        kind = "category"
        values = ["NA", "none"]
        fill = "none"
        [columns.joined]
        kind = "date"
        fill = 2000-01-01
    """)
    X, _, ids = whole(path, schema)
    assert ids == [b"NA", b"null", b"-"]
    assert X.tolist() == [[-1, 1, 0, 10957], [-1, 0, 1, 10957], [-1, 1, 0, 10958]]


def test_text_in_csv_may_hold_line_breaks_anywhere(tmp_path):
    path = tmp_path / "t.csv"
    n = 60_000  # so many that a break falls where pyarrow cuts the file
    path.write_text("x,y\n" + f'"{"a" * 32}{chr(10) * 15}b",1\n' * n)
    kind = Category(("a" * 32 + "\n" * 15 + "b",))
    schema = Schema(None, ("y",), (("x", kind), ("y", Number())))
    assert whole(path, schema, ids=False)[0].ravel().tolist() == [1.0] * n


def test_booleans_in_csv_may_be_words_or_digits(tmp_path):
    path = tmp_path / "t.csv"
    words = ["true", "True", "TRUE", "1", "false", "False", "FALSE", "0"]
    path.write_text("x,y\n" + "".join(f"{word},1\n" for word in words))
    schema = Schema.parse('target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="boolean"')
    assert whole(path, schema, ids=False)[0].ravel().tolist() == [1] * 4 + [0] * 4


def test_the_labels_of_rows_that_pandas_writes_are_no_column(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}, index=[5, 6, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    assert "__index_level_0__" in column_types(tmp_path / "t.parquet").names
    schema = plain_schema(tmp_path / "t.parquet", "y")
    assert schema.inputs == ("x",)
    assert whole(tmp_path / "t.parquet", schema, ids=False)[0].ravel().tolist() == [1.0, 2.0, 3.0]


def test_a_look_at_its_types_does_not_use_a_stream_up(frame):
    reader = arrow(frame).to_reader()
    assert column_types(reader).names == frame.columns.tolist()
    assert len(whole(reader)[0]) == len(frame)


def test_a_row_group_as_large_as_the_file_is_not_read_at_once(tmp_path, rng):
    n = 2_000_000
    table, schema = numbers(x=rng.random(n), y=rng.random(n))
    size = table.nbytes
    path = parquet(table, tmp_path / "t.parquet", row_group_size=n)
    del table
    before, most = pa.total_allocated_bytes(), 0
    for _ in read_blocks(path, schema, targets=True, ids=False):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < size / 3


# Arrays


def test_an_array_is_read_as_the_inputs_in_their_order(rng, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 8)
    schema = Schema.parse(
        'target="y"\n[columns.y]\nkind="number"\n[columns.b]\nkind="boolean"\n[columns.a]\nkind="number"\nfill=9'
    )
    X = np.asfortranarray(np.column_stack([rng.integers(0, 2, 20), rng.normal(size=20)]))
    np.testing.assert_array_equal(whole(X, schema, targets=False, ids=False)[0], X)
    np.testing.assert_array_equal(whole(np.array([[1, 2]]), schema, targets=False, ids=False)[0], [[1.0, 2.0]])
    np.testing.assert_array_equal(whole(np.array([[True, False]]), schema, targets=False, ids=False)[0], [[1.0, 0.0]])
    X[3, 1] = np.nan
    assert whole(X, schema, targets=False, ids=False)[0][3, 1] == 9


@pytest.mark.parametrize(
    "array",
    [np.zeros(3), np.zeros((3, 2)), np.zeros((3, 1, 1)), np.array([[CANARY]]), np.array([[CANARY]], dtype=object)],
)
def test_an_array_of_another_shape_or_of_text_is_refused(array):
    _, schema = numbers(x=[1], y=[1])
    with pytest.raises(InvalidInput, match=r"shape \(n, 1\)") as caught:
        list(read_blocks(array, schema, targets=False, ids=False))
    assert CANARY not in str(caught.value)


def test_an_array_cannot_stand_for_dates_and_categories_nor_be_learned_from():
    with pytest.raises(InvalidInput, match="'city', 'joined', 'seen' are not"):
        list(read_blocks(np.zeros((1, 5)), SCHEMA, targets=False, ids=False))
    _, schema = numbers(x=[1], y=[1])
    with pytest.raises(InvalidInput, match="no column 'y'"):
        list(read_blocks(np.zeros((1, 1)), schema, targets=True, ids=False))
    with pytest.raises(InvalidInput, match="a path, or a frame"):
        column_types(np.zeros((1, 1)))


# Ids


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(min_size=1).filter(lambda t: t.isascii() or t.isalpha())))
def test_ids_are_their_decimal_or_their_text_in_utf_8(ids):
    ids = [one for one in ids if not isinstance(one, str) or one.encode("utf-8", "ignore").decode() == one]
    assert id_bytes(ids) == [str(one).encode() for one in ids]
    assert id_bytes([str(one) for one in ids]) == id_bytes(ids)
    assert [id_bytes(one) for one in ids] == [[one] for one in id_bytes(ids)]


@pytest.mark.parametrize(
    "ids",
    [
        np.array([7, 4711]),
        np.array([7, 4711], dtype=np.uint8 if np.iinfo(np.uint8).max > 4711 else np.uint16),
        np.array(["7", "4711"]),
        np.array([7, "4711"], dtype=object),
        (np.int8(7), "4711"),
        {7: None, "4711": None},
        pd.Series([7, 4711]),
        pd.Series(["7", "4711"]),
        pa.array([7, 4711]),
        pa.array([7, 4711], pa.uint64()),
        pa.array([decimal.Decimal(7), decimal.Decimal(4711)], pa.decimal128(38, 0)),
        pa.array(["7", "4711"]),
        pa.array(["7", "4711"], pa.large_string()),
        pa.array(["7", "4711"], pa.string_view()),
        pa.array(["7", "4711"]).dictionary_encode(),
        pa.array([7, 4711]).dictionary_encode(),
        pa.chunked_array([[7], [4711]]),
    ],
)
def test_an_id_is_the_same_however_it_is_given(ids):
    assert id_bytes(ids) == [b"7", b"4711"]


@pytest.mark.parametrize(
    "ids",
    [True, 1.0, None, "", b"47", [b"47"], [1, True], [4711.0], ["a", ""], ["\ud800"], np.array([1.5]), np.array([True])]
    + [np.array(["2024-01-01"], dtype="M8[D]"), date(2024, 1, 1)]
    + [pa.array([1.0]), pa.array([True]), pa.array([date(2024, 1, 1)]), pa.array(["a", None]), pa.array(["a", ""])]
    + [pa.array([1, None]), pa.array([None]), pa.array([decimal.Decimal("1.50")])],
)
def test_anything_else_is_no_id(ids):
    with pytest.raises(InvalidInput, match="id"):
        id_bytes(ids)


def test_an_array_of_numpy_that_holds_one_id_is_one_id():
    assert id_bytes(np.array(5)) == [b"5"]
    assert id_bytes([]) == []


@pytest.mark.parametrize(
    "cells", [[1.5, 2.0], [True, False], [datetime(2024, 1, 1, tzinfo=UTC)] * 2, ["a", None], ["", "b"]]
)
def test_a_column_of_ids_that_are_none_is_named(tmp_path, cells):
    table = pa.table({"whose": cells, "x": [1, 2], "y": [1, 2]})
    schema = plain_schema_of(table.schema, "y", "whose")
    with pytest.raises(InvalidInput, match="column 'whose'"):
        whole(table, schema)


def test_ids_are_asked_of_a_schema_that_names_no_column():
    table, schema = numbers(x=[1], y=[1])
    with pytest.raises(InvalidSetting, match="id = "):
        whole(table, schema)


# Refusals. None may quote a cell.


def refused(source, schema=None, *, error=InvalidInput, match, targets=True, ids=False):
    schema = schema or numbers(x=[1], y=[1])[1]
    with pytest.raises(error, match=match) as caught:
        list(read_blocks(source, schema, targets=targets, ids=ids))
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert type(caught.value) is not ValueError


@pytest.mark.parametrize(
    ("content", "error", "match"),
    [
        (f"x,y\n1,2\n{CANARY},3\n", InvalidInput, "column 'x' must hold numbers, but row 2 of .*t.csv .* does not"),
        ("x,y\n1,2\n" * 1 + "1,2\n" * 400_000 + f"3,{CANARY}\n", InvalidInput, "column 'y' .* row 400002 of"),
        (f"x,y\n1,2\n1,{CANARY},3\n", InvalidInput, "row 2 of .*t.csv .* has 3 cells, but the header has 2"),
        (f"x,y\n1,2\n{CANARY}\n", InvalidInput, "row 2 of .*t.csv .* has 1 cells, but the header has 2"),
        (f"x,y\n{CANARY * 400_000},1\n", InvalidFile, "damaged, or not CSV"),
        (f"x,y\n1,inf\n2,{5}\n", InvalidInput, r"infinite values: 1 in column 'y' \(of 2 rows\)"),
        ("x,y\n1,\n,1\n", InvalidInput, r"gaps: 1 in column 'x', 1 in column 'y' \(of 2 rows\); .* declare a fill"),
        ("x,y,x\n1,2,3\n", InvalidInput, "different names; duplicates: 'x'"),
        ("x,z\n1,2\n", InvalidInput, "no column 'y'; there are 'x', 'z'"),
        ("x,y,z,q\n1,2,3,4\n", InvalidInput, "does not mention: 'z', 'q'; .*ignore"),
        ("x,y\n", InvalidInput, "t.csv has no rows"),
        ("x,y", InvalidInput, "t.csv is empty"),
        ("\n", InvalidInput, "t.csv is empty"),
        ("", InvalidInput, "t.csv is empty"),
    ],
)
def test_a_csv_file_that_cannot_be_taken_is_refused_by_column_and_row(tmp_path, content, error, match):
    path = tmp_path / "t.csv"
    path.write_text(content)
    refused(path, error=error, match=match)


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"w,x,y\n\xff" + CANARY.encode() + b",1,2\n")
    schema = Schema.parse('id="w"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"')
    refused(path, schema, match="column 'w' must hold text in UTF-8, but row 1 of", ids=True)
    path.write_bytes(b"\xff" + CANARY.encode() + b",y\n1,2\n")
    refused(path, error=InvalidFile, match="not CSV in UTF-8")


@pytest.mark.parametrize("kind", ["boolean", "date"])
def test_a_cell_of_another_kind_is_refused_by_column(tmp_path, kind):
    path = tmp_path / "t.csv"
    path.write_text(f"x,y\n,2\n{CANARY},3\n")
    schema = Schema.parse(f'target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="{kind}"')
    refused(path, schema, match="column 'x' must hold")


def test_a_compressed_file_that_is_damaged_is_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    whole_file = gzip.compress(b"x,y\n" + b"".join(b"%d,%d\n" % (k, k * k) for k in range(100_000)))
    for content in (whole_file[: len(whole_file) // 2], b"x,y\n1,2\n", whole_file[:-9] + b"123456789"):
        path.write_bytes(content)
        refused(path, error=InvalidFile, match="t.csv.gz is damaged")
    path.write_bytes(gzip.compress(b""))
    refused(path, match="t.csv.gz is empty")


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrow stream", "feather"])
def test_a_damaged_file_is_refused_by_name(tmp_path, form):
    table = pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)})
    path = FORMS[form](table, tmp_path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[len(content) // 2 :], CANARY.encode() * 9, b"ARROW1"):
        path.write_bytes(damaged)
        refused(path, error=InvalidFile, match=f"{path.name} is damaged")
    path.write_bytes(b"")
    refused(path, match="is empty")


def test_an_arrow_file_whose_offsets_point_elsewhere_is_refused(tmp_path):
    table = pa.table({"w": ["abc", "def"], "x": [1, 2], "y": [1, 2]})
    offsets = np.array([0, 3, 6], dtype=np.int32).tobytes()
    path = arrow_file(table, tmp_path / "t.arrow")
    content = path.read_bytes()
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, np.array([0, 3, 10**9], dtype=np.int32).tobytes()))
    refused(path, plain_schema_of(table.schema, "y", "w"), error=InvalidFile, match="is damaged", ids=True)


def test_a_source_that_is_no_table_is_refused(tmp_path):
    refused(tmp_path / "t.csv", match="no such file: .*t.csv")
    refused(tmp_path / "t.xlsx", match=r"must end in one of .csv, .csv.gz, .*.parquet.*.arrow")
    (tmp_path / "folder.parquet").mkdir()
    refused(tmp_path / "folder.parquet", match="cannot be read: Is a directory")
    refused({"x": [1]}, match="a path, or a frame .* got dict")


def test_a_table_in_memory_without_rows_is_refused_in_training_only():
    table, schema = numbers(x=np.empty(0), y=np.empty(0))
    refused(table, schema, match="the table has no rows")
    assert list(read_blocks(table, schema, targets=False, ids=False)) == []


def test_a_frame_that_arrow_cannot_hold_is_refused():
    refused(pd.DataFrame({"x": [1, CANARY], "y": [1, 2]}), match="column 'x' has cells of mixed types")
    refused(pd.DataFrame([[1, 2, 3]], columns=["x", "y", "x"]), match="two columns have one name")


def test_a_stream_that_breaks_does_not_tell_why():
    def parts():
        yield pa.record_batch({"x": [1.0], "y": [1.0]})
        raise error

    types = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    error = pa.ArrowInvalid(CANARY)
    refused(pa.RecordBatchReader.from_batches(types, parts()), match="the table cannot be read")
    error = MemoryError("no memory left")
    with pytest.raises(MemoryError):
        whole(pa.RecordBatchReader.from_batches(types, parts()), numbers(x=[1], y=[1])[1], ids=False)


@pytest.mark.parametrize("form", FORMS)
def test_batches_hold_the_columns_asked_for_and_no_others(frame, tmp_path, form):
    table = arrow(frame)
    wanted = {"y": "float64", "age": "float64"}
    (batch,) = checked_batches(FORMS[form](table, tmp_path), wanted, lambda batch: batch)
    assert batch.schema.names == ["y", "age"]
    assert batch.column("y").to_pylist() == table["y"].to_pylist()


def test_batches_name_a_column_that_is_not_there():
    with pytest.raises(InvalidInput, match="no column 'z'"):
        checked_batches(pa.table({"x": [1]}), {"z": "float64"}, len)


# Refusals count the table, not one block of it


TWO = Schema.parse(
    'id="i"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.a]\nkind="number"\n'
    '[columns.b]\nkind="number"\nfill=0\n[columns.c]\nkind="category"\nvalues=["x"]'
)
ODD = {"y": [1.0, None], "a": [1.0, None], "b": [1.0, None, np.inf], "c": ["x", "z", ""]}


def counts_expected(table, problem):
    """The counts by column, from the cells one by one."""
    wrong = {
        "gaps": lambda name, cell: name in "yac" and cell in (None, ""),
        "infinite values": lambda name, cell: cell == np.inf,
        "rows without an id": lambda name, cell: name == "i" and cell is None,
    }[problem]
    counts = {f"column {name!r}": sum(wrong(name, c) for c in table[name].to_pylist()) for name in table.column_names}
    return {place: count for place, count in counts.items() if count}


@st.composite
def flawed(draw):
    n = draw(st.integers(1, 30))
    flaw = draw(st.sampled_from(["gaps", "infinite values", "rows without an id"]))
    column = lambda some: draw(st.lists(st.sampled_from(some), min_size=n, max_size=n))  # noqa: E731 (short)
    columns = {
        name: column(cells if flaw == "gaps" else cells[:2] * (name in "bc") or cells[:1])
        for name, cells in {**ODD, "b": [1.0, None]}.items()
    }
    if flaw == "infinite values":
        columns["b"] = column(ODD["b"])
    ids = column(["p", None] if flaw == "rows without an id" else ["p"])
    types = {"i": pa.string(), "c": pa.string()}
    cells = {"i": ids, **columns}
    return flaw, pa.table({name: pa.array(some, types.get(name, pa.float64())) for name, some in cells.items()})


@settings(max_examples=150)
@given(flawed(), st.integers(1, 10))
def test_a_refusal_counts_the_whole_table_in_every_column(case, rows):
    problem, table = case
    expected = counts_expected(table, problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_ROWS", rows)
        if not expected:
            assert sum(len(block.X) for block in read_blocks(table, TWO, targets=True, ids=True)) == len(table)
            return
        with pytest.raises(CountedInput) as caught:
            list(read_blocks(table, TWO, targets=True, ids=True))
    refusal = caught.value
    assert (refusal.problem, refusal.counts, refusal.rows) == (problem, expected, len(table))
    assert refusal.complete
    for place, count in expected.items():
        assert f"{count} in {place}" in str(refusal)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 10))
def test_rows_outside_declared_bounds_are_counted_over_the_whole_table(cells, rows):
    table = pa.table({"x": [float(x) for x, _ in cells], "y": [float(y) for _, y in cells]})
    schema, inside = plain_schema(table, "y"), Bounds.declared((2, 7), 1, name="bounds")

    def admit(X, y):
        return inside.admit(X, clip=False, name="X", columns=["x"]), y * 2

    outside = sum(not 2 <= x <= 7 for x, _ in cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_ROWS", rows)
        if not outside:
            found = list(read_blocks(table, schema, targets=True, ids=False, admit=admit))
            assert np.concatenate([block.y for block in found]).ravel().tolist() == [2.0 * y for _, y in cells]
            return
        match = rf"rows outside the declared bounds: {outside} in column 'x' \(of {len(cells)} rows?\);"
        with pytest.raises(CountedInput, match=match):
            list(read_blocks(table, schema, targets=True, ids=False, admit=admit))


def test_counts_of_a_table_larger_than_a_block_are_of_the_table():
    n = 200_000
    table = pa.table({"x": pa.array(np.arange(n), mask=np.arange(n) % 1000 == 7), "y": np.zeros(n)})
    with pytest.raises(InvalidInput, match=r"gaps: 200 in column 'x' \(of 200,000 rows\); leave those rows out"):
        whole(table, plain_schema(table, "y"), ids=False)
    ids = pa.array(np.arange(n).astype(str), mask=np.arange(n) % 1000 == 7)
    with pytest.raises(InvalidInput, match=r"rows without an id: 200 in column 'i' \(of 200,000 rows\); give each"):
        propose(table.append_column("i", ids), target="y", id="i")


def test_blocks_before_a_refusal_are_given_and_none_after_it(monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 2)
    table = pa.table({"x": [1.0, 1.0, None, 1.0, 1.0, 1.0, None], "y": [1.0] * 7})
    reading, seen = read_blocks(table, plain_schema(table, "y"), targets=True, ids=False), []
    with pytest.raises(CountedInput, match=r"gaps: 2 in column 'x' \(of 7 rows\)"):
        seen.extend(reading)
    assert [len(block.X) for block in seen] == [2]


def test_another_error_while_counting_makes_the_counts_a_minimum(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 2)
    match = r"gaps: at least 2 in column 'x' \(of the first 4 rows\); leave"
    infinite = pa.table({"x": [1.0, None, None, 1.0, np.inf, 1.0], "y": [1.0] * 6})
    with pytest.raises(CountedInput, match=match):
        whole(infinite, plain_schema(infinite, "y"), ids=False)

    def parts():
        yield pa.record_batch({"x": [1.0, None, None, 1.0], "y": [1.0] * 4})
        raise pa.ArrowInvalid(CANARY)

    types = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    stream = pa.RecordBatchReader.from_batches(types, parts())
    refused(stream, plain_schema_of(types, "y"), match=match)


def test_a_refusal_names_up_to_ten_columns_and_says_how_many_more_there_are():
    columns = {f"x{k:02}": pa.array([None, 1.0]) for k in range(12)}
    for some, match in (
        (10, r"1 in column 'x09' \(of"),
        (11, "'x09', and more in 1 other column "),
        (12, "2 other columns "),
    ):
        table = pa.table({**dict(list(columns.items())[:some]), "y": [1.0, 1.0]})
        with pytest.raises(CountedInput, match=match):
            whole(table, plain_schema(table, "y"), ids=False)


def test_a_refusal_that_counts_survives_the_way_between_processes():
    refusal = CountedInput("gaps", {"column 'x'": 2}, 5, "leave them out").at_least()
    again = pickle.loads(pickle.dumps(refusal))
    assert (str(again), again.counts, again.complete) == (str(refusal), {"column 'x'": 2}, False)


# Rows are counted from one, in the whole table, without the header


@pytest.mark.parametrize("before", ["1,1,a\n", '1,1,"a\n\nb"\n', "1,1,a\n\n\n", "1,1,a\r\n"])
@pytest.mark.parametrize("many", [0, 1, 300_000])
@pytest.mark.parametrize(("line", "match"), [("?,1,a\n", "'x' must hold numbers, but"), ("1,1\n", "")])
def test_a_row_of_a_csv_file_has_its_number_whatever_the_lines_look_like(tmp_path, before, many, line, match):
    path = tmp_path / "t.csv"
    path.write_text("x,y,c\n" + before * many + line + before, newline="")
    schema = Schema.parse(
        'target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"\n[columns.c]\nkind="ignore"'
    )
    refused(path, schema, match=rf"{match} ?row {many + 1} of .*t.csv \(the header is not counted\)")


@pytest.mark.parametrize(("kind", "good", "bad"), [("date", "2024-02-29", CANARY), ("boolean", 1, 2)])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_cell_of_another_kind_is_refused_by_its_row(tmp_path, monkeypatch, kind, good, bad, form):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 16)
    schema = Schema.parse(f'target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="{kind}"')
    for k in (0, 15, 16, 37):
        cells = [good] * 40
        cells[k], cells[39] = bad, bad
        refused(FORMS[form](pa.table({"x": cells, "y": [1] * 40}), tmp_path), schema, match=f"but row {k + 1} of .*t")


# A table with another separator


@pytest.mark.parametrize(
    ("name", "content", "mark"),
    [
        ("t.csv", "x;y\n1;2\n", ";"),
        ("t.csv", "x|y\n1|2\n", "|"),
        ("t.csv", "x\ty\n1\t2\n", "\\t"),
        ("t.csv", '"x";"y"\n1;2\n', ";"),
        ("t.csv", "sep=;\nx;y\n1;2\n", ";"),
        ("t.csv", "x;y\n1,5;2,5\n", ";"),
        ("t.csv", "x;y\n1;2\n1,5;2\n", ";"),
        ("t.csv", "x;income, a year;y\n1;2;3\n", ";"),
        ("t.csv", "x\ty\n1,5\t2,5\n", "\\t"),
        ("t.tsv", "x,y\n1,2\n", ","),
        ("t.tsv", "x;y\n1;2\n", ";"),
    ],
)
def test_a_file_with_another_separator_gets_a_hint(tmp_path, name, content, mark):
    path = tmp_path / name
    path.write_text(content)
    hint = f"; is the table separated by '{mark}'? A CSV file has commas, a .tsv file tabs"
    _, schema = numbers(x=[1], y=[1])
    for attempt in (
        lambda: whole(path, schema, ids=False),
        lambda: plain_schema(path, "y"),
        lambda: propose(path, target="y"),
        lambda: propose(path, target="y", id="x"),
    ):
        with pytest.raises(InvalidInput) as caught:
            attempt()
        assert str(caught.value).endswith(hint)


@pytest.mark.parametrize("content", ["x,z\n1,2\n", "x\n1\n", "x,y\n1,2\n1\n", '"a;b",z\n1,2\n', '"a,b"\n1\n'])
def test_a_file_that_has_its_separator_gets_no_hint(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        whole(path, numbers(x=[1], y=[1])[1], ids=False)
    assert "separated" not in str(caught.value)


# Names with escapes are shown escaped

NASTY = "a\x1b[31m\x9b2J\u202e\nb"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda d: column_types(d / f"{NASTY}.csv"),
        lambda d: column_types(d / NASTY),
        lambda d: Schema.load(d / f"{NASTY}.toml"),
        lambda d: Schema.load(written(d / f"{NASTY}.toml", "target = 5")),
        lambda d: Schema.load(written(d / f"{NASTY}.toml", b"\xff")),
        lambda d: column_types(written(d / f"{NASTY}.csv", "")),
        lambda d: column_types(written(d / f"{NASTY}.parquet", "damaged")),
        lambda d: column_types(written(d / f"{NASTY}.csv", "x,y\n1,2\n1\n")),
        lambda d: column_types(written(d / f"{NASTY}.csv", "x,x\n1,2\n")),
        lambda d: whole(csv(pa.table({"x": ["?"], "y": [1]}), d / f"{NASTY}.csv"), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: written_predictions(d / f"{NASTY}.txt", SCHEMA, None).__enter__(),
        lambda d: written_predictions(written(d / f"{NASTY}.csv", "x"), SCHEMA, d / f"{NASTY}.csv").__enter__(),
        lambda d: plain_schema(pa.table({NASTY: ["a"], "y": [1]}), "y"),
        lambda d: plain_schema(pa.table({NASTY: [1], "x": ["a"], NASTY * 2: [1]}), NASTY, NASTY * 2),
        lambda d: plain_schema(pa.table({NASTY: [1]}), NASTY * 2),
        lambda d: propose(pa.table({NASTY: ["a"], "x": [1]}), target=NASTY),
        lambda d: propose(pa.table({NASTY: ["", "a"], "x": [1, 1]}), target="x", id=NASTY),
        lambda d: whole(pa.table({NASTY: [None, 1.0], "y": [1, 2]}), numbers(**{NASTY: [1], "y": [1]})[1], ids=False),
        lambda d: whole(pa.table({NASTY: ["a"], "y": [1]}), numbers(**{NASTY: [1], "y": [1]})[1], ids=False),
        lambda d: whole(pa.table({"x": [{NASTY: 1}], "y": [1]}), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: whole(pd.DataFrame({NASTY: [1, "a"], "y": [1, 2]}), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: SCHEMA.rebounded({NASTY: (0, 1)}),
        lambda d: Schema("i", ("y",), ((NASTY, Number()), ("y", Number()))).rebounded({NASTY: (1, 0)}),
        lambda d: Schema("i", (NASTY,), ((NASTY, Category(("a",))),)),
        lambda d: Schema.parse('target = "y"\n[columns."\\u001b"]\nkind = "odd"'),
        lambda d: Schema.parse('target = "y"\n"\\u001b" = 1'),
        lambda d: id_bytes(pa.array([{NASTY: 1}])),
    ],
)
def test_no_message_holds_what_a_terminal_would_not_just_print(tmp_path, attempt):
    with pytest.raises((InvalidInput, InvalidSetting, InvalidFile)) as caught:
        attempt(tmp_path)
    assert str(caught.value).isprintable()


def written(path, content):
    (path.write_bytes if isinstance(content, bytes) else path.write_text)(content)
    return path


# Predictions into files


def test_no_rows_with_two_targets_have_their_columns(tmp_path):
    table = arrow(pd.DataFrame({"who": ["a"]})).slice(0, 0)
    empty = {"age": pa.float64(), "member": pa.bool_(), "city": pa.string(), "joined": pa.date32(), "seen": pa.date32()}
    for name, kind in empty.items():
        table = table.append_column(name, pa.array([], kind))
    stream, path = io.BytesIO(), tmp_path / "p.parquet"
    for out in (stream, path):
        with written_predictions(out, SCHEMA, table) as write:
            assert list(write.blocks()) == []
            write(door.Block(np.empty((0, 7)), None, []), np.empty((0, 2)))
            assert write.commit() == 0
    assert stream.getvalue() == b'"who","predicted_y","predicted_won"\n'
    assert pyarrow.parquet.read_table(path).column_names == ["who", "predicted_y", "predicted_won"]


def test_predictions_appear_in_one_step_and_only_with_a_commit(tmp_path):
    table, schema = numbers(x=[1.0, 2.0], y=[1.0, 2.0])
    path = written(tmp_path / "p.csv", "old")
    with written_predictions(path, schema, table) as write:
        write(next(write.blocks()), np.zeros(2))
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]
    assert path.read_text() == "old"
    with written_predictions(str(path), schema, table) as write:
        write(next(write.blocks()), np.zeros(2))
        assert path.read_text() == "old"
        assert write.commit() == 2
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]
    assert path.read_text() == '"predicted_y"\n0\n0\n'


# The door


def test_the_door_leads_to_what_it_names():
    assert set(door.__all__) >= set(door._WITH_PYARROW)
    assert all(getattr(door, name) is not None for name in door.__all__)
    with pytest.raises(AttributeError, match="no attribute 'blocks_of'"):
        door.blocks_of  # noqa: B018 (the look is the test)


ALONE = """
import sys, types
for name, path in (("expunge", ""), ("expunge.vault", "/vault")):  # only this room: not what the rooms above load
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + path]
for name in ("sklearn", "sklearn.exceptions"):  # it loads pyarrow if pandas is there
    sys.modules[name] = types.ModuleType(name)
sys.modules["sklearn.exceptions"].NotFittedError = ValueError
from expunge.vault import tables
schema = tables.Schema.from_json(sys.argv[2])
assert schema.inputs and len(schema.bounds()[0]) == len(schema.inputs) and len(schema.target_bounds()[0]) == 2
assert tables.id_bytes(["a", 5]) == [b"a", b"5"] and tables.id_bytes("a") == [b"a"]
assert "pyarrow" not in sys.modules
assert tables.read_blocks and "pyarrow" in sys.modules
"""


def test_a_schema_and_ids_are_understood_without_pyarrow():
    command = [sys.executable, "-c", ALONE, str(Path(expunge.__file__).parent), SCHEMA.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
