"""Refusals of tables: no cell is quoted, counts and row numbers are of the whole table, names are shown escaped."""

import gzip
import pickle

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

from expunge import CodedRegressor
from expunge.encoding.bounds import Bounds
from expunge.errors import InvalidColumns, InvalidFile, InvalidInput, InvalidSetting
from expunge.tables import reader as tables
from expunge.tables.blocks import check_parts
from expunge.tables.ids import id_bytes
from expunge.tables.kinds import Category, Number
from expunge.tables.predictions import write_predictions
from expunge.tables.proposal import propose_schema
from expunge.tables.proposal.draft import plain_schema, plain_schema_from_types
from expunge.tables.reader import read_blocks, read_column_types
from expunge.tables.schema import Schema

from support.sampling import examples
from support.tables import CANARY, FORMS, SCHEMA, arrow_file, csv, numbers, refused, whole, written

# No refusal quotes a cell


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
        ("x,y,x\n1,2,3\n", InvalidInput, "different names, but columns 1 and 3 have the same"),
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
    refused(path, plain_schema_from_types(table.schema, "y", "w"), error=InvalidFile, match="is damaged", ids=True)


def test_a_source_that_is_no_table_is_refused(tmp_path):
    refused(tmp_path / "t.csv", match="no such file: .*t.csv")
    refused(written(tmp_path / "t.xlsx", "text"), match=r"must end in one of .csv, .csv.gz, .*.parquet.*.arrow")
    (tmp_path / "folder.parquet").mkdir()
    refused(tmp_path / "folder.parquet", match="folder.parquet has no tables in it")
    refused({"x": [1]}, match="a path, .*, or a frame .* got dict")


def test_a_table_in_memory_without_rows_is_refused_in_training_only():
    table, schema = numbers(x=np.empty(0), y=np.empty(0))
    refused(table, schema, match="the table has no rows")
    assert list(read_blocks(table, schema, targets=False, ids=False)) == []


def test_a_frame_that_arrow_cannot_hold_is_refused():
    refused(pd.DataFrame({"x": [1, CANARY], "y": [1, 2]}), match="column 1 has cells of mixed types")
    refused(pd.DataFrame([[1, 2, 3]], columns=["x", "y", "x"]), match="columns 1 and 3 have the same")


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


@examples(150)
@given(flawed(), st.integers(1, 10))
def test_a_refusal_counts_the_whole_table_in_every_column(case, rows):
    problem, table = case
    expected = counts_expected(table, problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_ROWS", rows)
        if not expected:
            assert sum(len(block.X) for block in read_blocks(table, TWO, targets=True, ids=True)) == len(table)
            return
        with pytest.raises(InvalidColumns) as caught:
            list(read_blocks(table, TWO, targets=True, ids=True))
    refusal = caught.value
    assert (refusal.problem, refusal.counts, refusal.rows) == (problem, expected, len(table))
    assert refusal.complete
    for place, count in expected.items():
        assert f"{count} in {place}" in str(refusal)


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 10))
def test_rows_outside_declared_bounds_are_counted_over_the_whole_table(cells, rows):
    table = pa.table({"x": [float(x) for x, _ in cells], "y": [float(y) for _, y in cells]})
    schema, inside = plain_schema(table, "y"), Bounds.from_pair((2, 7), 1, name="bounds")

    def admit(block):
        return inside.admit(block.X, clip=False, name="X", columns=["x"])

    outside = sum(not 2 <= x <= 7 for x, _ in cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_ROWS", rows)
        if not outside:
            found = list(check_parts(read_blocks(table, schema, targets=True, ids=False), admit))
            assert np.concatenate(found).ravel().tolist() == [x for x, _ in cells]
            return
        match = rf"rows outside the declared bounds: {outside} in column 'x' \(of {len(cells)} rows?\);"
        with pytest.raises(InvalidColumns, match=match):
            list(check_parts(read_blocks(table, schema, targets=True, ids=False), admit))


def test_counts_of_a_table_larger_than_a_block_are_of_the_table():
    n = 200_000
    table = pa.table({"x": pa.array(np.arange(n), mask=np.arange(n) % 1000 == 7), "y": np.zeros(n)})
    with pytest.raises(InvalidInput, match=r"gaps: 200 in column 'x' \(of 200,000 rows\); leave those rows out"):
        whole(table, plain_schema(table, "y"), ids=False)
    ids = pa.array(np.arange(n).astype(str), mask=np.arange(n) % 1000 == 7)
    with pytest.raises(InvalidInput, match=r"rows without an id: 200 in column 'i' \(of 200,000 rows\); give each"):
        propose_schema(table.append_column("i", ids), target="y", id="i")


def test_blocks_before_a_refusal_are_given_and_none_after_it(monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 2)
    table = pa.table({"x": [1.0, 1.0, None, 1.0, 1.0, 1.0, None], "y": [1.0] * 7})
    reading, seen = read_blocks(table, plain_schema(table, "y"), targets=True, ids=False), []
    with pytest.raises(InvalidColumns, match=r"gaps: 2 in column 'x' \(of 7 rows\)"):
        seen.extend(reading)
    assert [len(block.X) for block in seen] == [2]


def test_another_error_while_counting_makes_the_counts_a_minimum(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 2)
    match = r"gaps: at least 2 in column 'x' \(of the first 4 rows\); leave"
    infinite = pa.table({"x": [1.0, None, None, 1.0, np.inf, 1.0], "y": [1.0] * 6})
    with pytest.raises(InvalidColumns, match=match):
        whole(infinite, plain_schema(infinite, "y"), ids=False)

    def parts():
        yield pa.record_batch({"x": [1.0, None, None, 1.0], "y": [1.0] * 4})
        raise pa.ArrowInvalid(CANARY)

    types = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    stream = pa.RecordBatchReader.from_batches(types, parts())
    refused(stream, plain_schema_from_types(types, "y"), match=match)


def test_a_refusal_names_up_to_ten_columns_and_says_how_many_more_there_are():
    columns = {f"x{k:02}": pa.array([None, 1.0]) for k in range(12)}
    for some, match in (
        (10, r"1 in column 'x09' \(of"),
        (11, "'x09', and more in 1 other column "),
        (12, "2 other columns "),
    ):
        table = pa.table({**dict(list(columns.items())[:some]), "y": [1.0, 1.0]})
        with pytest.raises(InvalidColumns, match=match):
            whole(table, plain_schema(table, "y"), ids=False)


def test_rows_outside_in_inputs_and_targets_are_one_refusal(rng):
    model = CodedRegressor(shards=2, rate=1, bounds=(0, 1), target_bounds=(0, 1), random_state=0)
    with pytest.raises(InvalidColumns, match=r"bounds: 2 in column 1 of X, 3 in column 0 of y \(of 4 rows\);"):
        model.fit(np.array([[0, 0], [1, 2], [1, 2], [1, 1]]), np.array([0, 5, 5, 5]))


def test_a_refusal_that_counts_survives_the_way_between_processes():
    refusal = InvalidColumns("gaps", {"column 'x'": 2}, 5, "leave them out").as_minimum()
    again = pickle.loads(pickle.dumps(refusal))  # as from a worker of joblib
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
@pytest.mark.parametrize("form", ["csv", "parquet", "table"])
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
        lambda: propose_schema(path, target="y"),
        lambda: propose_schema(path, target="y", id="x"),
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


# Names


def test_a_message_lists_no_more_columns_than_can_be_read():
    with pytest.raises(InvalidInput, match="no column 'y'; there are 'x0', .*, 'x29' and 70 more$"):
        plain_schema(pa.table({f"x{k}": [1] for k in range(100)}), "y", "x7")


def test_the_way_out_of_a_table_with_text_is_a_command_that_works_for_these_columns():
    table = pa.table({"the y": [1], "who is it": [1], "x": ["a"]})
    with pytest.raises(InvalidInput, match="`expunge schema FILE --target 'the y' --id-column 'who is it'` writes"):
        plain_schema(table, "the y", "who is it")


NASTY = "a\x1b[31m\x9b2J\u202e\nb"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda d: read_column_types(d / f"{NASTY}.csv"),
        lambda d: read_column_types(d / NASTY),
        lambda d: Schema.load(d / f"{NASTY}.toml"),
        lambda d: Schema.load(written(d / f"{NASTY}.toml", "target = 5")),
        lambda d: Schema.load(written(d / f"{NASTY}.toml", b"\xff")),
        lambda d: read_column_types(written(d / f"{NASTY}.csv", "")),
        lambda d: read_column_types(written(d / f"{NASTY}.parquet", "damaged")),
        lambda d: read_column_types(written(d / f"{NASTY}.csv", "x,y\n1,2\n1\n")),
        lambda d: read_column_types(written(d / f"{NASTY}.csv", "x,x\n1,2\n")),
        lambda d: whole(csv(pa.table({"x": ["?"], "y": [1]}), d / f"{NASTY}.csv"), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: write_predictions(d / f"{NASTY}.txt", SCHEMA, None).__enter__(),
        lambda d: write_predictions(written(d / f"{NASTY}.csv", "x"), SCHEMA, d / f"{NASTY}.csv").__enter__(),
        lambda d: plain_schema(pa.table({NASTY: ["a"], "y": [1]}), "y"),
        lambda d: plain_schema(pa.table({NASTY: [1], "x": ["a"], NASTY * 2: [1]}), NASTY, NASTY * 2),
        lambda d: plain_schema(pa.table({NASTY: [1]}), NASTY * 2),
        lambda d: propose_schema(pa.table({NASTY: ["a"], "x": [1]}), target=NASTY),
        lambda d: propose_schema(pa.table({NASTY: ["", "a"], "x": [1, 1]}), target="x", id=NASTY),
        lambda d: whole(pa.table({NASTY: [None, 1.0], "y": [1, 2]}), numbers(**{NASTY: [1], "y": [1]})[1], ids=False),
        lambda d: whole(pa.table({NASTY: ["a"], "y": [1]}), numbers(**{NASTY: [1], "y": [1]})[1], ids=False),
        lambda d: whole(pa.table({"x": [{NASTY: 1}], "y": [1]}), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: whole(pd.DataFrame({NASTY: [1, "a"], "y": [1, 2]}), numbers(x=[1], y=[1])[1], ids=False),
        lambda d: SCHEMA.with_bounds({NASTY: (0, 1)}),
        lambda d: Schema("i", ("y",), ((NASTY, Number()), ("y", Number()))).with_bounds({NASTY: (1, 0)}),
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
