"""Bodies: tables that come as JSON, CSV, Parquet or Arrow, streamed to a file that is gone afterwards."""

import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from ..errors import InvalidInput
from ..saving.files import wipe
from .problems import Problem
from .unpacked import check_parquet

SUFFIXES = {
    "text/csv": ".csv",
    "application/csv": ".csv",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-parquet": ".parquet",
    "application/vnd.apache.arrow.file": ".arrow",
    "application/vnd.apache.arrow.stream": ".arrow",
}


def media_type(request: Request) -> str:
    """What a body says that it is, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def uploaded(request: Request, most_rows: int) -> AsyncIterator[tuple[Any, bytes]]:
    """A table that a vault can read, and a hash of the body: a file that it was streamed to, or a table of its JSON."""
    kind = media_type(request)
    if kind in ("application/json", ""):
        body = await request.body()
        table = await run_in_threadpool(lambda: records_table(parsed(body)))
        _check_rows(table.num_rows, most_rows)
        yield table, hashlib.sha256(body).digest()
        return
    if kind not in SUFFIXES:
        raise Problem(415, "wrong-type", f"rows come as application/json or one of {', '.join(SUFFIXES)}")
    with _private_file(SUFFIXES[kind]) as path:
        seen, lines = hashlib.sha256(), 0
        with path.open("wb") as file:
            async for piece in request.stream():
                seen.update(piece)
                file.write(piece)
                lines += piece.count(b"\n")
        if path.suffix == ".csv":
            _check_rows(lines - 1, most_rows)
        if path.suffix == ".parquet":
            await run_in_threadpool(check_parquet, path, most_rows)
        yield path, seen.digest()


def _check_rows(count: int, most: int) -> None:
    if count > most:
        raise InvalidInput(f"a request brings at most {most:,} rows, got {count:,}")


@contextmanager
def _private_file(suffix: str) -> Iterator[Path]:
    """A file that nobody else can read, overwritten before it goes."""
    handle, name = tempfile.mkstemp(suffix=suffix, prefix="expunge-")
    os.close(handle)
    path = Path(name)
    try:
        yield path
    finally:
        wipe(path)


def parsed(body: bytes) -> Any:
    """JSON, whatever it is; refused are numbers that JSON has not (NaN), names given twice and deep nesting."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid-json", "the body is no JSON, not in UTF-8, or gives a name twice") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def records_table(found: Any) -> Any:
    """A table of JSON records: a list of objects, or {"rows": [...]}, or {"columns": {name: [...]}}."""
    if isinstance(found, dict) and isinstance(found.get("columns"), dict):
        return table_of_columns(found["columns"])
    rows = found.get("rows") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows:
        raise InvalidInput('rows must be a list of objects, like {"rows": [{"id": 7, "age": 31}]}')
    return table_of_rows(rows)


def table_of_rows(rows: list[Any]) -> Any:
    """A table of objects; a member that one lacks is an empty cell."""
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidInput('each row must be an object, like {"id": 7, "age": 31}')
    names = dict.fromkeys(name for row in rows for name in row)
    return table_of_columns({name: [row.get(name) for row in rows] for name in names})


def table_of_columns(columns: dict[str, Any]) -> Any:
    """A table of named lists."""
    import pyarrow as pa

    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInput("the columns must be lists of one length, each of one kind of values") from None
