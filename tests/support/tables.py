"""Tables in every form, and how the tests of the tables read and refuse them."""

import gzip
import traceback

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from expunge.errors import InvalidInput
from expunge.tables.proposal.draft import plain_schema_from_types
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema

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


def numbers(**columns):
    table = pa.table(columns)
    return table, plain_schema_from_types(table.schema, "y")


def refused(source, schema=None, *, error=InvalidInput, match, targets=True, ids=False):
    schema = schema or numbers(x=[1], y=[1])[1]
    with pytest.raises(error, match=match) as caught:
        list(read_blocks(source, schema, targets=targets, ids=ids))
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert type(caught.value) is not ValueError


def written(path, content):
    (path.write_bytes if isinstance(content, bytes) else path.write_text)(content)
    return path
