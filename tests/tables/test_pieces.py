"""Pieces: parts of a Parquet table that are read on their own, in any process, and make up the table."""

import json
import pickle
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import tables
from expunge.errors import InvalidColumns, InvalidFile, InvalidInput, InvalidSetting
from expunge.tables import reader
from expunge.tables.schema import Schema

from support.commands import python
from support.sampling import examples
from support.tables import arrow_file, csv, parquet

SCHEMA = Schema.parse(
    'id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"\n[columns.day]\nkind="number"\n'
    '[columns.city]\nkind="category"\nvalues=["a b", "7"]\nfill="7"'
)
CITIES = {"city=a%20b": "a b", "city=7": "7", "city=__HIVE_DEFAULT_PARTITION__": None}


def some(first, rows):
    numbers = np.arange(first, first + rows)
    return pa.table({"who": numbers, "x": numbers / 7, "y": -numbers})


@st.composite
def datasets(draw):
    """Files by their paths: rows, how many of them a row group has, and what the path says."""
    file = st.tuples(st.integers(0, 30), st.integers(1, 12))
    names = st.tuples(st.integers(0, 12), st.sampled_from(sorted(CITIES)), st.integers(0, 3))
    return draw(st.booleans()), draw(st.dictionaries(names, file, min_size=1, max_size=5))


def written(folder, hive, made):
    """Write the files, and return the table that they make up, in the order of their paths."""
    parts, first = [], 0
    paths = {
        f"day={day}/{city}/{k}.parquet" if hive else f"{day}-{city}-{k}.parquet": (day, city) for day, city, k in made
    }
    for path, (day, city), (rows, group) in zip(paths, paths.values(), made.values(), strict=True):
        table, first = some(first, rows), first + rows
        said = table.append_column("day", pa.array([day] * rows, pa.int64()))
        said = said.append_column("city", pa.array([CITIES[city]] * rows, pa.string()))
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        parquet(table if hive else said, folder / path, row_group_size=group)
        parts.append((str(folder / path), said))
    return pa.concat_tables([table for _, table in sorted(parts, key=lambda part: part[0])])


def joined(blocks):
    blocks = list(blocks)
    X, y = [block.X for block in blocks], [block.y for block in blocks]
    ids = [one for block in blocks for one in block.ids]
    return np.vstack([np.empty((0, 4)), *X]).tolist(), np.vstack([np.empty((0, 1)), *y]).tolist(), ids


@examples(150)
@given(datasets(), st.integers(1, 40), st.integers(1, 20))
def test_all_pieces_are_the_table(tmp_path_factory, dataset, most, block_rows):
    folder = tmp_path_factory.mktemp("data")
    table = written(folder, *dataset)
    found = tables.split_table(folder, max_rows=most)
    assert tables.count_rows(folder) == len(table) == sum(piece.rows for piece in found)
    assert [piece.before for piece in found] == np.cumsum([0, *(piece.rows for piece in found)])[:-1].tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BLOCK_ROWS", block_rows)
        blocks = [list(tables.read_piece(piece, SCHEMA)) for piece in found]
        expected = joined(tables.read_blocks(table, SCHEMA, targets=True, ids=True)) if len(table) else ([], [], [])
        assert joined(block for some in blocks for block in some) == expected
        if len(table):
            assert joined(tables.read_blocks(folder, SCHEMA, targets=True, ids=True)) == expected
    for piece, some_blocks in zip(found, blocks, strict=True):
        assert sum(map(len, some_blocks)) == piece.rows > 0
        assert all(len(block) == block_rows for block in some_blocks[:-1])
        assert all(len(block) <= block_rows for block in some_blocks)


@examples(100)
@given(datasets(), st.integers(1, 40))
def test_a_piece_has_as_many_row_groups_as_have_room(tmp_path_factory, dataset, most):
    folder = tmp_path_factory.mktemp("data")
    written(folder, *dataset)
    found = tables.split_table(folder, max_rows=most)
    sizes = {}
    for path in {piece.path for piece in found}:
        metadata = pyarrow.parquet.read_metadata(path)
        sizes[path] = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
    for piece in found:
        first, end = piece.groups
        assert piece.rows == sum(sizes[piece.path][first:end])
        assert piece.rows <= most or end == first + 1
    for one, other in pairwise(found):
        if one.path == other.path:
            assert one.groups[1] == other.groups[0]
            assert one.rows + sizes[one.path][other.groups[0]] > most


FRESH = """
import json, sys
from expunge import tables
piece = tables.Piece(**json.loads(sys.argv[1]))
schema = tables.Schema.from_json(sys.argv[2])
assert "pyarrow" not in sys.modules
print(json.dumps([one.decode() for block in tables.read_piece(piece, schema) for one in block.ids]))
"""


def test_a_piece_is_plain_data_that_another_process_can_read(tmp_path, monkeypatch):
    written(tmp_path, True, {(1, "city=a%20b", 0): (9, 2), (2, "city=__HIVE_DEFAULT_PARTITION__", 0): (3, 3)})
    monkeypatch.chdir(tmp_path)
    found = tables.split_table("*", max_rows=4)
    assert pickle.loads(pickle.dumps(found)) == found
    assert [piece.partition for piece in found[-2:]] == [
        (("day", "1"), ("city", "a b")),
        (("day", "2"), ("city", None)),
    ]
    done = python(FRESH, json.dumps(asdict(found[1])), SCHEMA.to_json())
    assert json.loads(done.stdout or "[]") == ["4", "5", "6", "7"], done.stderr


def test_only_what_is_asked_for_is_read_of_a_piece(tmp_path):
    table = written(tmp_path, False, {(1, "city=7", 0): (5, 2)}).drop(["y", "who"])
    parquet(table, tmp_path / "1-city=7-0.parquet")
    (piece,) = tables.split_table(tmp_path)
    (block,) = tables.read_piece(piece, SCHEMA, targets=False, ids=False)
    assert (len(block), block.y, block.ids) == (5, None, None)
    with pytest.raises(InvalidInput, match="no columns 'y', 'who'"):
        list(tables.read_piece(piece, SCHEMA))


def test_a_file_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    parquet(some(0, 6), path, row_group_size=2)
    schema = Schema.parse('id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"')
    found = tables.split_table(path, max_rows=2)
    content = path.read_bytes()
    for change in (lambda: parquet(some(1, 6), path, row_group_size=2), lambda: parquet(some(0, 6), path)):
        change()
        for piece in found:
            with pytest.raises(InvalidFile, match="t.parquet was changed while it was being read"):
                list(tables.read_piece(piece, schema))
    path.write_bytes(content)
    assert [one for piece in found for block in tables.read_piece(piece, schema) for one in block.ids] == [
        b"%d" % k for k in range(6)
    ]
    path.unlink()
    with pytest.raises(InvalidInput, match="no such file"):
        list(tables.read_piece(found[0], schema))


def test_a_row_of_a_piece_has_the_number_that_it_has_in_its_file_and_counts_are_the_pieces(tmp_path):
    path = tmp_path / "t.parquet"
    schema = Schema.parse('target="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="boolean"')
    parquet(pa.table({"x": [0, 1, 0, 1, 7, None], "y": [1] * 6}), path, row_group_size=2)
    found = tables.split_table(path, max_rows=4)
    list(tables.read_piece(found[0], schema, ids=False))
    with pytest.raises(InvalidInput, match="column 'x' must hold true and false, .* but row 5 of .*t.parquet does not"):
        list(tables.read_piece(found[1], schema, ids=False))
    parquet(pa.table({"x": [0, 1, 0, 1, 1, None], "y": [1] * 6}), path, row_group_size=2)
    with pytest.raises(InvalidColumns, match=r"1 in column 'x' \(of 2 rows\)"):
        list(tables.read_piece(tables.split_table(path, max_rows=4)[1], schema, ids=False))


def test_files_with_other_columns_have_no_pieces_together(tmp_path):
    parquet(some(0, 1), tmp_path / "a.parquet")
    parquet(some(0, 1).drop(["x"]), tmp_path / "b.parquet")
    for look in (tables.split_table, tables.count_rows):
        with pytest.raises(InvalidInput, match="b.parquet differ from those of .*a.parquet .*'x' missing"):
            look(tmp_path)


def test_a_large_footer_is_read_whole(tmp_path):
    table = pa.table({f"a column with a long name, number {k}": [1.0, 2.0] for k in range(2000)})
    path = parquet(table, tmp_path / "t.parquet", row_group_size=1)
    assert path.stat().st_size > 1 << 17
    assert [piece.groups for piece in tables.split_table(path, max_rows=1)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (lambda d: csv(some(0, 3), d / "t.csv"), None),
        (lambda d: [arrow_file(some(0, 3), d / "t.arrow"), arrow_file(some(0, 3), d / "u.arrow")], None),
        (lambda d: some(0, 3), 3),
        (lambda d: some(0, 3).to_pandas(), 3),
        (lambda d: pl.from_arrow(some(0, 3)), 3),
        (lambda d: pd.DataFrame({"x": []}), 0),
        (lambda d: np.zeros((3, 2)), 3),
        (lambda d: some(0, 3).to_reader(), None),
    ],
)
def test_what_is_no_parquet_has_no_pieces_and_a_frame_knows_its_length(tmp_path, source, rows):
    table = source(tmp_path)
    assert tables.split_table(table) is None
    assert tables.count_rows(table) == rows


def test_pieces_have_at_least_one_row(tmp_path):
    path = parquet(some(0, 3), tmp_path / "t.parquet")
    with pytest.raises(InvalidSetting, match="max_rows"):
        tables.split_table(path, max_rows=0)
    (piece,) = tables.split_table(path)
    assert replace(piece, footer="") == tables.Piece(str(path), (0, 1), 3, 0, "", ())
    assert tables.split_table(parquet(some(0, 0), path)) == []
    assert tables.count_rows(path) == 0
