"""Predictions into files: all of them in one step, or none."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from expunge.vault import tables as door
from expunge.vault.tables.predictions import written_predictions

from support.tables import SCHEMA, arrow, numbers, written


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
