"""Refusals of tables of many files: by the file, its row and its columns, counted over all, and without a cell."""

import os
import shutil

import pyarrow as pa
import pytest

from expunge.errors import InvalidColumns, InvalidFile, InvalidInput, InvalidSetting
from expunge.tables import reader
from expunge.tables.predictions import write_predictions
from expunge.tables.proposal import propose_schema
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema
from expunge.tables.sources import overwrites

from support.many import OWNED, PLAIN, WRITERS, files, some
from support.tables import CANARY, csv, parquet, refused, whole, written


def test_words_that_stand_for_no_file_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    written(tmp_path / "other" / "readme.txt", "text")
    csv(some(0, 1), tmp_path / "t.csv")
    refused([], match="at least one path")
    refused(["", tmp_path / "t.csv"], match="no path may be empty")
    refused([tmp_path / "t.csv", 5], match="a path, a list of paths, or a frame .*, got list")
    refused(tmp_path / "empty", match="empty has no tables in it: no file that ends in one of .csv, ")
    refused(tmp_path / "other", match="other has no tables in it")
    refused(tmp_path / "*.parquet", match=r"no file matches .*/\*.parquet$")
    refused(tmp_path / "**" / "u.csv", match=r"no file matches")
    refused(tmp_path / "t.csv" / "*", match=r"no file matches")
    refused(tmp_path / "other" / "*", match="readme.txt must end in one of .csv, ")
    refused([tmp_path / "t.csv", tmp_path / "u.csv"], match="no such file: .*u.csv")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    refused(tmp_path / "loop.csv", match="loop.csv cannot be read: Too many levels of symbolic links")
    refused("a\0b.csv", match=r"no such file: 'a\\x00b.csv'")
    refused("http://example.org/t.csv", match="http://example.org/t.csv is not an address that pyarrow can read")
    refused("file://elsewhere/t.csv", match="file://elsewhere/t.csv is not an address")


def test_one_table_has_one_format_and_each_file_once(tmp_path):
    csv(some(0, 1), tmp_path / "a.csv")
    parquet(some(1, 1), tmp_path / "b.parquet")
    refused(tmp_path, match="a.csv and .*b.parquet have different formats")
    refused(
        [tmp_path / "a.csv", f"{tmp_path}/../{tmp_path.name}/a.csv"], match="are the same file: name each file once"
    )
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    refused(tmp_path / "*.csv", match="link.csv and .*a.csv are the same file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused_by_name(tmp_path):
    paths = files(tmp_path / "data", "parquet", (1, 1))
    paths[1].chmod(0)
    refused(paths, OWNED, match=f"{paths[1].name} cannot be read: Permission denied")
    (tmp_path / "data").chmod(0)
    refused(tmp_path / "data", OWNED, match="data cannot be read: Permission denied")
    (tmp_path / "data").chmod(0o700)


@pytest.mark.parametrize(
    ("form", "told"), [("parquet", "'z' only in this file"), ("csv", "column 3 only in this file")]
)
def test_files_with_other_columns_are_refused_by_name(tmp_path, form, told):
    a, b, c = files(tmp_path, form, (1, 1, 1))
    WRITERS[form](some(0, 1).rename_columns(["who", "x", "z"]), b)
    missing = "'y' missing" if form == "parquet" else "1 missing"
    refused(
        tmp_path, OWNED, match=rf"the columns of .*{b.name} differ from those of .*{a.name} \({missing}; {told}\); "
    )
    WRITERS[form](some(0, 1).append_column("z", pa.array([1])), b)
    told = told.replace("3", "4")
    refused([a, b, c], OWNED, match=rf"the columns of .*{b.name} differ from those of .*{a.name} \({told}\)")
    WRITERS[form](pa.table([[1], [1]], names=["x", "x"]), b)
    refused([a, b, c], OWNED, match=f"{b.name}: columns must have different names, but columns 1 and 2")


def test_a_csv_file_without_a_header_does_not_show_its_first_row(tmp_path):
    written(tmp_path / "a.csv", f"{CANARY}1,x,y\n1,2,3\n")
    csv(some(0, 1), tmp_path / "b.csv")
    written(tmp_path / "c.csv", f"x,{CANARY}2,y\n1,2,3\n")
    for source in (tmp_path, [tmp_path / "b.csv", tmp_path / "c.csv"]):
        refused(
            source, OWNED, match="the columns of .* differ from those of .*; does each begin with the same row of names"
        )


def test_types_that_do_not_go_together_are_refused_by_file_if_they_are_read(tmp_path):
    parquet(pa.table({"x": [1], "y": [1], "z": [[1]]}), tmp_path / "a.parquet")
    parquet(pa.table({"x": [CANARY], "y": [1], "z": [True]}), tmp_path / "b.parquet")
    text = 'target="y"\n[columns.y]\nkind="number"\n[columns.z]\nkind="ignore"\n[columns.x]\n'
    numbers, texts = Schema.parse(text + 'kind="number"'), Schema.parse(text + 'kind="category"\nvalues=["1"]')
    refused(tmp_path, numbers, match="column 'x' is string in .*b.parquet, but int64 in .*a.parquet; write it in one")
    assert whole(tmp_path, texts, ids=False)[0].tolist() == [[1.0], [0.0]]
    with pytest.raises(InvalidInput, match=r"column 'z' is bool in .*b.parquet, but list<.*> in .*a.parquet"):
        propose_schema(tmp_path, target="y")


def test_a_row_has_the_number_that_it_has_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_ROWS", 7)
    schema = Schema.parse('id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="date"')
    for form in ("csv", "parquet"):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        paths = files(tmp_path / "data", form, (5, 0, 5, 5))
        for path in paths:
            rows = 0 if path == paths[1] else 5
            dates = pa.array(["2024-02-29"] * rows, pa.string())
            WRITERS[form](some(0, rows).set_column(1, "x", dates), path)
        bad = pa.array(["2024-02-29"] * 3 + [CANARY, "?"])
        WRITERS[form](some(0, 5).set_column(1, "x", bad), paths[2])
        refused(
            tmp_path / "data", schema, match=rf"column 'x' must hold dates .*, but row 4 of .*{paths[2].name}", ids=True
        )


def test_refusals_count_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_ROWS", 4)
    for k in range(3):
        parquet(pa.table({"x": [1.0, None, 1.0], "y": [1.0, 1.0, None if k else 1.0]}), tmp_path / f"{k}.parquet")
    match = r"gaps: 3 in column 'x', 2 in column 'y' \(of 9 rows\)"
    refused(tmp_path, PLAIN, error=InvalidColumns, match=match)


def test_files_without_rows_are_a_table_without_rows(tmp_path):
    files(tmp_path / "data", "parquet", (0, 0))
    refused(tmp_path / "data", OWNED, match="data has no rows")
    refused([*(tmp_path / "data").iterdir()], OWNED, match="the table has no rows")
    assert list(read_blocks(tmp_path / "data", OWNED, targets=False, ids=True)) == []


@pytest.mark.parametrize("form", WRITERS)
def test_a_file_that_vanishes_or_is_damaged_is_refused_by_name(tmp_path, monkeypatch, form):
    monkeypatch.setattr(reader, "BLOCK_ROWS", 1)
    paths = files(tmp_path / "data", form, (2, 2))
    blocks = read_blocks(tmp_path / "data", OWNED, targets=True, ids=True)
    next(blocks)
    paths[1].unlink()
    with pytest.raises(InvalidInput, match=f"no such file: .*{paths[1].name}"):
        list(blocks)
    written(paths[1], b"")
    refused(tmp_path / "data", OWNED, match=f"{paths[1].name} is empty")
    written(paths[1], b"\xff\n" * 20)
    error = InvalidInput if form == "csv" else InvalidFile
    refused(tmp_path / "data", OWNED, error=(InvalidFile, error), match=f"{paths[1].name} (is damaged|differ from)")


def test_a_parquet_file_that_is_cut_anywhere_is_refused(tmp_path):
    _, b = files(tmp_path, "parquet", (5, 5))
    content = b.read_bytes()
    for length in [*range(1, len(content), 7), *range(len(content) - 12, len(content))]:
        written(b, content[:length])
        refused(tmp_path, OWNED, error=InvalidFile, match=f"{b.name} is damaged, or not in the format")
    written(b, content[:-8] + (2**31).to_bytes(4, "little") + b"PAR1")
    refused(tmp_path, OWNED, error=InvalidFile, match=f"{b.name} is damaged")


def test_predictions_never_overwrite_one_of_the_files(tmp_path):
    paths = files(tmp_path / "data", "csv", (1, 1))
    for source in (tmp_path / "data", paths, tmp_path / "data" / "*"):
        with pytest.raises(InvalidSetting, match="would overwrite their own table"):
            write_predictions(paths[1], OWNED, source).__enter__()
    assert not overwrites(tmp_path / "new.csv", tmp_path / "data")
    assert not overwrites(paths[0], some(0, 1))
    with pytest.raises(InvalidInput, match="no such file"):
        overwrites(paths[0], tmp_path / "nowhere.csv")
