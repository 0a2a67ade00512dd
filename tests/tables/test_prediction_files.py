"""Predictions into files: all of them in one step, or none."""

import io
from csv import DictReader

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st

from expunge import tables as door
from expunge.tables.predictions import write_predictions

from support.tables import SCHEMA, arrow, numbers, written


def test_no_rows_with_two_targets_have_their_columns(tmp_path):
    table = arrow(pd.DataFrame({"who": ["a"]})).slice(0, 0)
    empty = {"age": pa.float64(), "member": pa.bool_(), "city": pa.string(), "joined": pa.date32(), "seen": pa.date32()}
    for name, kind in empty.items():
        table = table.append_column(name, pa.array([], kind))
    stream, path = io.BytesIO(), tmp_path / "p.parquet"
    for out in (stream, path):
        with write_predictions(out, SCHEMA, table) as write:
            assert list(write.blocks()) == []
            write(door.Block(np.empty((0, 7)), None, []), np.empty((0, 2)))
            assert write.commit() == 0
    assert stream.getvalue() == b'"who","predicted_y","predicted_won"\n'
    assert pyarrow.parquet.read_table(path).column_names == ["who", "predicted_y", "predicted_won"]


def test_predictions_appear_in_one_step_and_only_with_a_commit(tmp_path):
    table, schema = numbers(x=[1.0, 2.0], y=[1.0, 2.0])
    path = written(tmp_path / "p.csv", "old")
    with write_predictions(path, schema, table) as write:
        write(next(write.blocks()), np.zeros(2))
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]
    assert path.read_text() == "old"
    with write_predictions(str(path), schema, table) as write:
        write(next(write.blocks()), np.zeros(2))
        assert path.read_text() == "old"
        assert write.commit() == 2
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]
    assert path.read_text() == '"predicted_y"\n0\n0\n'


STARTS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


IDS = st.text(st.sampled_from(STARTS + "a1' \"é"), min_size=1).filter(str.strip)  # one of blanks only is none


@given(st.lists(IDS, min_size=1, max_size=20))
def test_ids_that_a_spreadsheet_would_compute_get_a_quote_if_asked(ids):
    table, schema = numbers(x=[1.0] * len(ids), y=[1.0] * len(ids))
    schema = schema.with_id("who")
    table = table.append_column("who", pa.array(ids))
    for guard in (False, True):
        stream = io.BytesIO()
        with write_predictions(stream, schema, table, guard_formulas=guard) as write:
            write(next(write.blocks()), np.zeros(len(ids)))
            write.commit()
        text = stream.getvalue().decode()
        found = [row["who"] for row in DictReader(io.StringIO(text, newline=""))]
        assert found == [f"'{one}" if guard and one[0] in STARTS else one for one in ids]
        assert not guard or not [one for one in found if one[0] in STARTS]


def test_parquet_needs_no_guard(tmp_path):
    table, schema = numbers(x=[1.0], y=[1.0])
    table = table.append_column("who", pa.array(["=1"]))
    with write_predictions(tmp_path / "p.parquet", schema.with_id("who"), table, guard_formulas=True) as write:
        write(next(write.blocks()), np.zeros(1))
        write.commit()
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet")["who"].to_pylist() == ["=1"]
