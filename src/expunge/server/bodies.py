"""Bodies: tables that come as JSON, CSV, Parquet or Arrow.

A file is streamed to one without a name, in the folder of the queue: however the process ends, nothing of it stays.
"""

import hashlib
import mmap
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from ..errors import InvalidInput
from ..saving.files import zero_all
from ..vault.tables import Body
from . import large_json
from .problems import Problem
from .service import Service

SUFFIXES = {
    "text/csv": ".csv",
    "application/csv": ".csv",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-parquet": ".parquet",
    "application/vnd.apache.arrow.file": ".arrow",
    "application/vnd.apache.arrow.stream": ".arrow",
}
_FEW = 10_000  # lists and objects of a body that has no rows
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def media_type(request: Request) -> str:
    """What a body says that it is, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def uploaded(request: Request, service: Service) -> AsyncIterator[tuple[Body, bytes]]:
    """Read a table that a vault can learn; yield it with a hash of the body."""
    kind, most = media_type(request), service.options.most_rows
    if kind in ("application/json", ""):
        raw = await request.body()
        yield await run_in_threadpool(lambda: records(parsed(raw, most_rows=most), most)), hashlib.sha256(raw).digest()
        return
    if kind not in SUFFIXES:
        raise Problem(415, "wrong-type", f"rows come as application/json or one of {', '.join(SUFFIXES)}")
    with tempfile.TemporaryFile(dir=service.database.folder) as file:
        try:
            seen = hashlib.sha256()
            async for piece in request.stream():
                seen.update(piece)
                file.write(piece)
            yield Body(_mapped(file), most, SUFFIXES[kind]), seen.digest()
        finally:
            await run_in_threadpool(zero_all, file.fileno())


def _mapped(file: IO[bytes]) -> bytes | mmap.mmap:
    """Return the bytes of a file as memory that is read when it is needed."""
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def parsed(body: bytes, *, most_rows: int = 0) -> Any:
    """Read JSON; refused are numbers that JSON has not (NaN), names given twice, deep nesting, and too many rows."""
    most = most_rows + _FEW
    if _containers(body) > most and _containers(_TEXT.sub(b"", body)) > most:
        few = f"at most {most_rows:,} rows" if most_rows else f"at most {most:,} lists and objects"
        raise InvalidInput(f"a body has {few}")
    try:
        return large_json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid-json", "the body is no JSON, not in UTF-8, or gives a name twice") from None


def _containers(body: bytes) -> int:
    """Return how many lists and objects JSON without text has: each takes far more memory than it has bytes."""
    return body.count(b"[") + body.count(b"{")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def records(found: Any, most_rows: int) -> Body:
    """Return the table of JSON records: a list of objects, or {"rows": [...]}, or {"columns": {name: [...]}}."""
    if isinstance(found, dict) and isinstance(found.get("columns"), dict):
        return Body(found["columns"], most_rows)
    rows = found.get("rows") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows:
        raise InvalidInput('rows must be a list of objects, like {"rows": [{"id": 7, "age": 31}]}')
    return Body(rows, most_rows)
