"""Tables: the same rows give the same blocks, wherever they come from, and no error tells what is in them."""

import decimal
import inspect
import subprocess
import sys
import unicodedata
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import tables as door
from expunge.errors import InvalidInput, InvalidSetting
from expunge.tables import reader as tables
from expunge.tables.ids import id_bytes
from expunge.tables.kinds import Category, Number
from expunge.tables.proposal.draft import plain_schema, plain_schema_from_types
from expunge.tables.reader import read_batches, read_blocks, read_column_types
from expunge.tables.schema import Schema

from support.sampling import examples
from support.tables import CANARY, FORMS, SCHEMA, arrow, numbers, parquet, whole


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


@examples(100)
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


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "table"])
def test_a_block_is_65_536_rows(tmp_path, form):
    table, schema = numbers(x=np.arange(2 * 65_536 + 1), y=np.zeros(2 * 65_536 + 1))
    sizes = [len(part.X) for part in read_blocks(FORMS[form](table, tmp_path), schema, targets=True, ids=False)]
    assert sizes == [65_536, 65_536, 1]


@pytest.mark.slow
def test_the_first_rows_of_a_csv_file_do_not_decide_about_the_others(tmp_path):
    path = tmp_path / "t.csv"
    n = 200_000  # beyond the first block that pyarrow reads
    path.write_text("who,x,city,y\n" + "007,1,12,1\n" * n + "08,1.5,Ulm,2.5\n")
    assert read_column_types(path).field("x").type == pa.int64()
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
    assert "__index_level_0__" in read_column_types(tmp_path / "t.parquet").names
    schema = plain_schema(tmp_path / "t.parquet", "y")
    assert schema.inputs == ("x",)
    assert whole(tmp_path / "t.parquet", schema, ids=False)[0].ravel().tolist() == [1.0, 2.0, 3.0]


def test_a_look_at_its_types_does_not_use_a_stream_up(frame):
    reader = arrow(frame).to_reader()
    assert read_column_types(reader).names == frame.columns.tolist()
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
    with pytest.raises(InvalidInput, match="a path, a list of paths, or a frame"):
        read_column_types(np.zeros((1, 1)))


# Ids


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(min_size=1).filter(lambda t: t.isascii() or t.isalpha())))
def test_ids_are_their_decimal_or_their_text_in_utf_8(ids):
    ids = [one for one in ids if not isinstance(one, str) or one.encode("utf-8", "ignore").decode() == one]
    assert id_bytes(ids) == [unicodedata.normalize("NFC", str(one).strip()).encode() for one in ids]
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
    schema = plain_schema_from_types(table.schema, "y", "whose")
    with pytest.raises(InvalidInput, match="column 'whose'"):
        whole(table, schema)


def test_ids_are_asked_of_a_schema_that_names_no_column():
    table, schema = numbers(x=[1], y=[1])
    with pytest.raises(InvalidSetting, match="id = "):
        whole(table, schema)


@pytest.mark.parametrize("form", FORMS)
def test_batches_hold_the_columns_asked_for_and_no_others(frame, tmp_path, form):
    table = arrow(frame)
    wanted = {"y": "float64", "age": "float64"}
    (batch,) = read_batches(FORMS[form](table, tmp_path), wanted, lambda batch: batch)
    assert batch.schema.names == ["y", "age"]
    assert batch.column("y").to_pylist() == table["y"].to_pylist()


def test_batches_name_a_column_that_is_not_there():
    with pytest.raises(InvalidInput, match="no column 'z'"):
        read_batches(pa.table({"x": [1]}), {"z": "float64"}, len)


# The door


def test_the_door_leads_to_what_it_names():
    assert set(door.__all__) >= set(door._WITH_PYARROW)
    found = [getattr(door, name) for name in door.__all__]
    assert not [thing for thing in found if thing is None or inspect.ismodule(thing)]
    with pytest.raises(AttributeError, match="no attribute 'blocks_of'"):
        door.blocks_of  # noqa: B018 (the look is the test)


FRESH = """
import sys
import unicodedata
from expunge import tables
schema = tables.Schema.from_json(sys.argv[1])
assert schema.inputs and len(schema.bounds()[0]) == len(schema.inputs) and len(schema.target_bounds()[0]) == 2
assert tables.id_bytes(["a", 5]) == [b"a", b"5"] and tables.id_bytes("a") == [b"a"]
assert "pyarrow" not in sys.modules
assert tables.read_blocks and "pyarrow" in sys.modules
"""


def test_a_schema_and_ids_are_understood_without_pyarrow():
    command = [sys.executable, "-c", FRESH, SCHEMA.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


cells = st.sampled_from(
    [0, 1, 1.0, -0.0, 2.5, -999, None, True, False, "1", 2**53, 2**53 + 1, 2**63, 10**400, 1e300, [1]]
)


@examples(300)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=4))
def test_numbers_in_json_are_what_arrow_makes_of_them(rows):
    keys = 'target = "y"\n[columns.y]\nkind = "number"\n[columns.b]\nkind = "boolean"\nfill = true\n'
    schema = Schema.parse(keys + '[columns.x]\nkind = "number"\nfill = 5\ngaps = ["-999"]')
    columns = {"x": [x for x, _ in rows], "b": [b for _, b in rows]}

    def outcome(source):
        try:
            blocks = list(read_blocks(source(), schema, targets=False, ids=False))
            return np.concatenate([block.X for block in blocks]).tobytes()
        except (InvalidInput, pa.ArrowException, TypeError, OverflowError):
            return None

    assert outcome(lambda: door.Upload(columns, 9)) == outcome(lambda: pa.table(columns))
