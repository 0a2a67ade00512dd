"""Request bodies: tables as JSON, CSV, Parquet or Arrow.

A file is streamed to a file without a name, in the folder of the queue: nothing of it stays, however the process ends.
"""

import hashlib
import json
import math
import mmap
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from ..errors import InvalidInput
from ..exact.arrays import Floats
from ..saving.files import zero_all
from ..tables import Upload
from .problems import Problem
from .service import Service

_NUMBERS_PER_STEP = 4096  # formatted at once; other threads run in between


def format_numbers(values: Floats) -> bytes:
    """Return an array of one or two dimensions as JSON; infinity and NaN become null."""
    if values.ndim > 1:
        return b"[" + b",".join(format_numbers(row) for row in values) + b"]"
    parts = (values[start : start + _NUMBERS_PER_STEP] for start in range(0, len(values), _NUMBERS_PER_STEP))
    return b"[" + b",".join(map(_format_part, parts)) + b"]"


def _format_part(values: Floats) -> bytes:
    numbers: list[Any] = values.tolist()
    if not np.isfinite(values).all():
        numbers = [value if math.isfinite(value) else None for value in numbers]
    return json.dumps(numbers, separators=(",", ":"))[1:-1].encode()


SUFFIXES = {
    "text/csv": ".csv",
    "application/csv": ".csv",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-parquet": ".parquet",
    "application/vnd.apache.arrow.file": ".arrow",
    "application/vnd.apache.arrow.stream": ".arrow",
}
_MAX_CONTAINERS = 10_000  # lists and objects in a body without rows
_STRING_PATTERN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def media_type(request: Request) -> str:
    """Return the media type of a body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def read_upload(request: Request, service: Service) -> AsyncIterator[tuple[Upload, bytes]]:
    """Yield the table of a body, with a hash of the body."""
    kind, max_rows = media_type(request), service.options.max_rows
    if kind in ("application/json", ""):
        raw = await request.body()
        yield (
            await run_in_threadpool(lambda: read_records(parse_json(raw, max_rows=max_rows), max_rows)),
            hashlib.sha256(raw).digest(),
        )
        return
    if kind not in SUFFIXES:
        raise Problem(415, "wrong-type", f"rows must be application/json or one of {', '.join(SUFFIXES)}")
    with tempfile.TemporaryFile(dir=service.database.folder) as file:
        try:
            digest = hashlib.sha256()
            async for piece in request.stream():
                digest.update(piece)
                file.write(piece)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
            yield Upload(content, max_rows, SUFFIXES[kind]), digest.digest()
        finally:
            await run_in_threadpool(zero_all, file.fileno())


def parse_json(body: bytes, *, max_rows: int = 0) -> Any:
    """Parse JSON; refuse NaN and infinity, duplicate names, deep nesting, and too many rows."""
    limit = max_rows + _MAX_CONTAINERS
    if _count_containers(body) > limit and _count_containers(_STRING_PATTERN.sub(b"", body)) > limit:
        allowed = f"{max_rows:,} rows" if max_rows else f"{limit:,} lists and objects"
        raise InvalidInput(f"a body has at most {allowed}")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid-json", "the body is not JSON in UTF-8, or contains duplicate names") from None


def _count_containers(body: bytes) -> int:
    """Count the lists and objects in JSON: in memory each is far larger than its text."""
    return body.count(b"[") + body.count(b"{")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is given twice")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def read_records(document: Any, max_rows: int) -> Upload:
    """Return the table of JSON records: a list of objects, or {"rows": [...]}, or {"columns": {name: [...]}}."""
    if isinstance(document, dict) and isinstance(document.get("columns"), dict):
        return Upload(document["columns"], max_rows)
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise InvalidInput('rows must be a list of objects, like {"rows": [{"id": 7, "age": 31}]}')
    return Upload(rows, max_rows)
