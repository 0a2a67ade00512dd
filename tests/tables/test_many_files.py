"""Tables of many files: the rows of all of them in the order of their paths, as if they were in one."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.tables import reader
from expunge.tables.predictions import write_predictions
from expunge.tables.proposal import propose_schema
from expunge.tables.proposal.draft import plain_schema
from expunge.tables.reader import read_blocks, read_column_types
from expunge.tables.schema import Schema

from support.many import OWNED, PLAIN, WRITERS, files, same, some
from support.sampling import examples
from support.tables import arrow_file, csv, numbers, parquet, refused, whole, written

# What a source may be


SOURCES = {
    "list": lambda folder, paths: paths[::-1],
    "tuple of text": lambda folder, paths: tuple(map(str, paths)),
    "folder": lambda folder, paths: folder,
    "folder as text": lambda folder, paths: f"{folder}/",
    "glob": lambda folder, paths: folder / "*",
    "glob by ending": lambda folder, paths: f"{folder}/*{paths[0].name[-4:]}",
    "glob of folders": lambda folder, paths: f"{folder.parent}/dat[!b]",
    "glob at any depth": lambda folder, paths: f"{folder.parent}/**/*.*",
    "only stars": lambda folder, paths: f"{folder}/**",
    "uri of a folder": lambda folder, paths: folder.as_uri(),
    "uri of a glob": lambda folder, paths: folder.as_uri() + "/*.*",
    "uris": lambda folder, paths: [path.as_uri() for path in paths],
    "list of all kinds": lambda folder, paths: [str(paths[0]), paths[1].as_uri(), *paths[2:]],
}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("how", SOURCES)
def test_many_files_are_read_as_one_table_in_the_order_of_their_paths(tmp_path, monkeypatch, form, how):
    monkeypatch.setattr(reader, "BLOCK_ROWS", 16)
    paths = files(tmp_path / "data", form)
    source = SOURCES[how](tmp_path / "data", paths)
    same(source, some(0, 81))
    sizes = [len(block) for block in read_blocks(source, OWNED, targets=True, ids=True)]
    assert sizes == [16] * 5 + [1]


def test_relative_paths_have_the_same_order_as_absolute_ones(tmp_path, monkeypatch):
    paths = files(tmp_path / "data", "csv")
    monkeypatch.chdir(tmp_path / "data")
    for source in (".", "*", "**", "**/*.csv", "../data/**/*", [f"./{p.name}" for p in paths[:2]] + paths[2:]):
        same(source, some(0, 81))


@pytest.mark.parametrize("name", ["a[1].csv", "a*.csv", "a?.csv", "**", "[", "a%20b.csv", "a://b.csv", "\udcff.csv"])
def test_a_path_that_is_there_is_no_glob(tmp_path, monkeypatch, name):
    csv(some(9, 1), tmp_path / "a1.csv")
    monkeypatch.chdir(tmp_path)
    path = f"folder/{name}" if name.endswith(".csv") else f"{name}/t.csv"
    Path(path).parent.mkdir(parents=True)
    written(Path(path), b"who,x,y\n0,0,0\n")
    same(path if name.endswith(".csv") else name, some(0, 1))


def test_a_glob_whose_path_is_not_there_is_one(tmp_path):
    csv(some(0, 1), tmp_path / "a1.csv")
    csv(some(1, 1), tmp_path / "a2.csv")
    csv(some(9, 1), tmp_path / ".a3.csv")
    same(tmp_path / "a[1].csv", some(0, 1))
    same(tmp_path / "*a?.csv", some(0, 2))
    same(tmp_path / ".a*.csv", some(9, 1))


def test_a_uri_of_this_machine_may_have_blanks_and_what_is_written_for_them(tmp_path):
    csv(some(0, 1), tmp_path / "a [b].csv")
    for uri in (f"file://{tmp_path}/a [b].csv", f"file://{tmp_path}/a%20%5Bb%5D.csv", f"FILE://{tmp_path}/a%20[[]b].*"):
        same(uri, some(0, 1))


def test_a_glob_of_folders_leaves_files_beside_them_alone(tmp_path):
    files(tmp_path / "data", "csv", (1, 1))
    csv(some(9, 9), tmp_path / "beside.csv")
    same(tmp_path / "*" / "*.csv", some(0, 2))


def test_a_folder_stands_for_the_tables_below_it_that_are_not_hidden(tmp_path):
    files(tmp_path / "data", "parquet", (4, 3))
    files(tmp_path / "data" / "part-3", "parquet", (1, 1, 1))
    left_out = ["_temporary/t.parquet", ".git/t.parquet", "_t.parquet", ".t.parquet", "_SUCCESS", "readme.txt", "t.crc"]
    for name in left_out:
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        parquet(some(9, 9), tmp_path / "data" / name)
    (tmp_path / "data" / "latest").symlink_to(tmp_path / "data" / "part-3")
    names = ["part-10.parquet", "part-2.parquet", *(f"part-3/{p}.parquet" for p in ("a b", "part-10", "part-2"))]
    expected = [tmp_path / "data" / name for name in names]
    read = whole(tmp_path / "data", OWNED)
    assert read[2] == whole(expected, OWNED)[2] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"0", b"1", b"2"]
    assert whole(tmp_path / "data" / "**" / "[a-p]*.parquet", OWNED)[2] == read[2]


def test_the_order_and_the_types_of_columns_may_differ_between_files(tmp_path):
    table = some(0, 4)
    parquet(table.slice(0, 2), tmp_path / "a.parquet")
    other = table.slice(2).select(["y", "who", "x"])
    other = other.set_column(1, "who", other["who"].cast(pa.int32())).set_column(2, "x", other["x"].cast(pa.int16()))
    labelled = other.append_column("__index_level_0__", pa.array([5, 6]))
    parquet(labelled, tmp_path / "b.parquet")
    same(tmp_path, table)
    assert plain_schema(tmp_path, "y", "who") == OWNED


NUMBERS = [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(50, 1)]
CATEGORIES = pa.dictionary(pa.int8(), pa.string())
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.int32(), pa.int64(), CATEGORIES]
TIMES = [pa.date32(), pa.date64(), *(pa.timestamp(unit, zone) for unit in ("s", "us", "ns") for zone in (None, "UTC"))]
ONE_EACH = Schema.parse(
    'id="i"\ntarget="n"\n[columns.n]\nkind="number"\n[columns.c]\nkind="category"\nvalues=["1", "7"]\nfill="7"\n'
    '[columns.t]\nkind="date"\nfill=2000-01-01'
)


def cells(values, kind):
    """Cells of a type, by way of a type that leads to it."""
    if pa.types.is_dictionary(kind):
        return pa.array(values).cast(pa.string()).dictionary_encode()
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    return pa.array(values).cast(kind, safe=False) if any(values) else pa.nulls(len(values), kind)


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.tuples(*map(st.sampled_from, (NUMBERS, TEXTS, TEXTS, TIMES))),
            st.lists(st.tuples(*[st.sampled_from([1, 7, 77])] * 2, st.sampled_from([1, 7, None])), min_size=1),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_a_cell_is_read_alike_in_whichever_type_other_files_have_its_column(tmp_path_factory, parts):
    folder, expected = tmp_path_factory.mktemp("types"), []
    for k, ((n, i, c, t), rows) in enumerate(parts):
        ns, ids, cs = map(list, zip(*rows, strict=True))
        days = pa.array(cs, pa.int32()).cast(pa.date32()).cast(t)
        table = pa.table({"n": cells(ns, n), "i": cells(ids, i), "c": cells(cs, c), "t": days})
        arrow_file(table, folder / f"{k}.arrow", rows=2)
        expected.append(whole(table, ONE_EACH))
    X, y, found = whole(folder, ONE_EACH)
    np.testing.assert_array_equal(X, np.vstack([one[0] for one in expected]))
    np.testing.assert_array_equal(y, np.vstack([one[1] for one in expected]))
    assert found == [name for one in expected for name in one[2]]


def test_decimals_are_the_same_numbers_beside_floats(tmp_path, rng):
    decimals = pa.array([Decimal(int(k)).scaleb(-4) for k in rng.integers(1, 10**15, 2000)])
    table = pa.table({"x": decimals, "y": decimals})
    parquet(table, tmp_path / "a.parquet")
    parquet(numbers(x=[1.5], y=[1.5])[0], tmp_path / "b.parquet")
    expected = [float(str(one)) for one in decimals.to_pylist()]
    assert whole(tmp_path, PLAIN, ids=False)[0].ravel().tolist() == [*expected, 1.5]


def test_the_largest_integers_have_room_beside_negative_ones(tmp_path):
    for name, cells in (("a", pa.array([-5])), ("b", pa.array([2**63 + 5], pa.uint64()))):
        parquet(pa.table({"who": cells, "x": cells, "y": [1]}), tmp_path / f"{name}.parquet")
    X, _, ids = whole(tmp_path, OWNED)
    assert (X.ravel().tolist(), ids) == ([-5.0, float(2**63 + 5)], [b"-5", b"%d" % (2**63 + 5)])


def test_times_before_1970_are_cut_alike_in_nanoseconds_and_microseconds(tmp_path):
    ticks = pa.array([-1, -1001, 1999])
    parquet(pa.table({"t": ticks.cast(pa.timestamp("ns")), "n": [1, 1, 1]}), tmp_path / "a.parquet", version="2.6")
    parquet(pa.table({"t": ticks.cast(pa.timestamp("us")), "n": [1, 1, 1]}), tmp_path / "b.parquet")
    schema = Schema.parse('target="n"\n[columns.n]\nkind="number"\n[columns.t]\nkind="date"')
    days = whole(tmp_path, schema, ids=False)[0].ravel()
    assert days.tolist() == [k / 86_400_000_000 for k in (-1, -2, 1, -1, -1001, 1999)]


def test_a_proposal_and_predictions_take_many_files(tmp_path):
    files(tmp_path / "data", "csv")
    text = propose_schema([tmp_path / "data"], target="y", id="who")
    assert text.startswith('# A proposal for a schema, read from "data".')
    assert text.splitlines()[1:] == propose_schema(some(0, 81), target="y", id="who").splitlines()[1:]
    assert 'read from "2 files".' in propose_schema([*(tmp_path / "data").glob("part*")], target="y", id="who")
    with write_predictions(tmp_path / "data" / "p.csv", OWNED, tmp_path / "data") as write:
        assert sum(map(len, write.blocks())) == 81


# Partitions


def test_folders_named_like_column_and_value_are_columns(tmp_path, monkeypatch):
    for k, x in enumerate(["1", "02", "3.5", "%31%30"]):
        (tmp_path / "d" / f"x={x}").mkdir(parents=True)
        parquet(some(k, 1).drop(["x"]), tmp_path / "d" / f"x={x}" / "t.parquet")
    table = pa.table({"who": ["3", "1", "0", "2"], "x": [10.0, 2.0, 1.0, 3.5], "y": [9.0, 3.0, 0.0, 6.0]})
    for source in (tmp_path / "d", tmp_path / "d" / "*" / "*.parquet", [*(tmp_path / "d").iterdir()]):
        same(source, table)
    assert read_column_types(tmp_path / "d").field("x").type == pa.float64()
    same(tmp_path / "d" / "x=1" / "t.parquet", table.slice(2, 1))
    monkeypatch.chdir(tmp_path / "d" / "x=1")
    same("t.parquet", table.slice(2, 1))


def test_a_column_from_the_path_is_read_as_the_schema_says_and_may_be_all_that_is_read(tmp_path):
    for name, rows in (("c=a%20b/n=1", 2), ("c=__HIVE_DEFAULT_PARTITION__/n=2", 1), ("c=07/n=NA", 3), ("c=/n=4", 1)):
        (tmp_path / name).mkdir(parents=True)
        parquet(some(0, rows), tmp_path / name / "t.parquet")
    schema = Schema.parse(
        'target="y"\n[columns.y]\nkind="number"\n[columns.c]\nkind="category"\nvalues=["a b", "07", "?"]\nfill="?"\n'
        '[columns.n]\nkind="number"\nfill=-1'
    )
    X, _, _ = whole(tmp_path, schema, targets=False, ids=False)
    assert X.tolist() == [[0, 0, 1, 4], *[[0, 1, 0, -1]] * 3, [0, 0, 1, 2], *[[1, 0, 0, 1]] * 2]


def test_a_column_that_is_in_the_file_is_read_there(tmp_path):
    for k in range(2):
        (tmp_path / f"x={k + 5}").mkdir()
        csv(some(k, 1), tmp_path / f"x={k + 5}" / "t.csv")
    same(tmp_path, some(0, 2))


def test_a_column_may_be_in_one_file_and_in_the_path_of_another(tmp_path):
    for name, part in (("x=0", pa.table({"y": [0.0], "x": [7]})), ("x=07", pa.table({"y": [3.0]}))):
        (tmp_path / name).mkdir()
        parquet(part, tmp_path / name / "t.parquet")
    schema = Schema.parse('target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="category"\nvalues=["7", "07"]')
    assert whole(tmp_path, schema, ids=False)[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_cells_of_a_csv_file_that_nobody_asked_for_are_not_read(tmp_path):
    (tmp_path / "x=1").mkdir()
    path = written(tmp_path / "x=1" / "t.csv", "z,y\n" + "1,1\n" * 300_000 + "odd,1\n")  # odd beyond the first block
    X, _, _ = whole(path, PLAIN, targets=False, ids=False)
    assert (len(X), X.sum()) == (300_001, 300_001)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "02"], pa.int64()),
        (["1", "-1.5e3"], pa.float64()),
        (["2024-02-29", "2024-03-01"], pa.date32()),
        (["1", "a"], pa.large_string()),
        (["nan", "inf"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__", "5"], pa.int64()),
        (["\udcff", "a"], pa.string()),
    ],
)
def test_the_type_of_a_column_from_the_path_is_guessed(tmp_path, values, kind):
    for value in values:
        (tmp_path / "d" / f"z={value}").mkdir(parents=True)
        parquet(some(0, 1), tmp_path / "t.parquet").rename(tmp_path / "d" / f"z={value}" / "t.parquet")
    assert read_column_types(tmp_path / "d").field("z").type == kind


def test_a_value_of_the_path_that_is_no_number_is_refused_by_column_and_file(tmp_path):
    for value in ("1", "many", "\udcff"):
        (tmp_path / "d" / f"x={value}").mkdir(parents=True)
        parquet(some(0, 1).drop(["x"]), tmp_path / "t.parquet").rename(tmp_path / "d" / f"x={value}" / "t.parquet")
    refused(
        tmp_path / "d", PLAIN.with_id("who"), match="'x' must hold numbers, but row 1 of .*x=many/t.parquet does not"
    )
    schema = Schema.parse(
        'target="y"\nid="who"\n[columns.y]\nkind="number"\n[columns.x]\nkind="category"\nvalues=["1"]'
    )
    refused(tmp_path / "d", schema, match=r"'x' must hold text in UTF-8, but row 1 of '.*x=\\udcff/t.parquet' does not")
