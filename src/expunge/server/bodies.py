"""Request bodies: tables as JSON, CSV, Parquet or Arrow.

A file is streamed to a file without a name, in the folder of the queue: nothing of it stays, however the process ends.

Large JSON is read and written in steps: `json` would block all other threads from its first byte to its last. Long
containers are walked in Python, which lets other threads run between the steps, and their members are read by the
scanner of `json` itself, so the values are those of `json.loads` and `json.dumps`.
"""

import gc
import hashlib
import json
import math
import mmap
import re
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Any

import numpy as np
from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from ..errors import InvalidInput
from ..exact.arrays import Floats
from ..saving.files import zero_all
from ..tables import Upload
from .problems import Problem
from .service import Service

_BLANKS = re.compile(r"[ \t\n\r]*")
_MAX_STEP_CHARS = 1 << 16  # of a container, read in one step
_SINGLE_MEMBERS = 1000  # of a list, read one by one after several could not be read at once
_MAX_WALKED_DEPTH = 8  # deeper containers are read in one step
_NUMBERS_PER_STEP = 4096

PairsHook = Callable[[list[tuple[str, Any]]], Any]

_collector_lock = threading.Lock()
_large_bodies, _off_since = 0, 0.0  # bodies in work, and since when there was always one
_MAX_COLLECTOR_PAUSE = 10.0  # seconds after which garbage is collected once in between


@contextmanager
def without_collector(size: int) -> Iterator[None]:
    """Switch the garbage collector off while a large body is processed.

    While a body becomes millions of lists, the collector would visit all of them again and again, and block all threads
    for a tenth of a second each time.
    """
    global _large_bodies, _off_since
    if size <= _MAX_STEP_CHARS or not (_large_bodies or gc.isenabled()):  # or it was switched off elsewhere
        yield
        return
    with _collector_lock:
        if not _large_bodies:
            gc.disable()
            _off_since = time.monotonic()
        _large_bodies += 1
    try:
        yield
    finally:
        with _collector_lock:
            _large_bodies -= 1
            if not _large_bodies:
                gc.enable()
            elif time.monotonic() - _off_since > _MAX_COLLECTOR_PAUSE:
                gc.collect(1)
                _off_since = time.monotonic()


def load_json(text: str, *, parse_constant: Callable[[str], Any], object_pairs_hook: PairsHook) -> Any:
    """Return what `json.loads` returns, in steps; raise ValueError if the text is not JSON."""
    decoder = json.JSONDecoder(parse_constant=parse_constant, object_pairs_hook=object_pairs_hook)
    if len(text) <= _MAX_STEP_CHARS:
        return decoder.decode(text)
    value, end = _JsonReader(text, decoder, object_pairs_hook).read(_skip_blanks(text, 0), 0)
    if _skip_blanks(text, end) != len(text):
        raise ValueError("more than one value")
    return value


def _skip_blanks(text: str, at: int) -> int:
    """Return the position after the blanks that start here."""
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


class _JsonReader:
    """A reader of long JSON text."""

    def __init__(self, text: str, decoder: json.JSONDecoder, hook: PairsHook) -> None:
        self._text, self._hook = text, hook
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]

    def read(self, at: int, depth: int) -> tuple[Any, int]:
        """Return the value that starts here, and its end."""
        start = self._text[at : at + 1]
        if depth < _MAX_WALKED_DEPTH and start == "[" and not self._is_small(at, "[", "]"):
            return self._read_list(at, depth)
        if depth < _MAX_WALKED_DEPTH and start == "{" and not self._is_small(at, "{", "}"):
            return self._read_object(at, depth)
        try:
            return self._scan(self._text, at)
        except StopIteration:
            raise ValueError("a value is missing") from None

    def _is_small(self, at: int, opening: str, closing: str) -> bool:
        """Return whether a container ends within one step, and contains no other of its kind."""
        end = self._text.find(closing, at + 1, at + _MAX_STEP_CHARS)
        return end >= 0 and self._text.find(opening, at + 1, end) < 0

    def _read_list(self, at: int, depth: int) -> tuple[list[Any], int]:
        members, alone = list[Any](), 0
        for start in self._members(at, "]"):
            if not alone and (several := self._read_several(start)) is not None:
                values, self._end = several
                members += values
            else:
                alone = (alone or _SINGLE_MEMBERS) - 1
                value, self._end = self.read(start, depth + 1)
                members.append(value)
        return members, self._end

    def _read_several(self, at: int) -> tuple[list[Any], int] | None:
        """Return the next members of a list, read in one step, and their end; None if that is not possible.

        The text is cut where a member may end. If the part before the cut, put in brackets, is a list, it consists of
        whole members; otherwise the cut was within one.
        """
        closing = {"[": "]", "{": "}"}.get(self._text[at : at + 1])
        if closing is None:
            end = self._text.rfind(",", at, at + _MAX_STEP_CHARS)
        else:
            end = self._text.rfind(closing, at, at + _MAX_STEP_CHARS) + 1
        if end <= at:
            return None
        members = f"[{self._text[at:end]}]"
        try:
            values, stop = self._scan(members, 0)
        except (ValueError, StopIteration):
            return None
        return (values, end) if stop == len(members) else None

    def _read_object(self, at: int, depth: int) -> tuple[Any, int]:
        pairs = list[tuple[str, Any]]()
        for start in self._members(at, "}"):
            if self._text[start : start + 1] != '"':
                raise ValueError("a name is missing")
            name, end = self._scan(self._text, start)
            end = _skip_blanks(self._text, end)
            if self._text[end : end + 1] != ":":
                raise ValueError("a colon is missing")
            value, self._end = self.read(_skip_blanks(self._text, end + 1), depth + 1)
            pairs.append((name, value))
        return self._hook(pairs), self._end

    def _members(self, at: int, closing: str) -> Iterator[int]:
        """Yield the start of each member of a container; the caller reads it, and stores its end in ``_end``."""
        text = self._text
        at = _skip_blanks(text, at + 1)
        if text[at : at + 1] == closing:
            self._end = at + 1
            return
        while True:
            yield at
            at = _skip_blanks(text, self._end)
            mark = text[at : at + 1]
            if mark == closing:
                self._end = at + 1
                return
            if mark != ",":
                raise ValueError("a comma is missing")
            at = _skip_blanks(text, at + 1)


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


def read_array(rows: list[Any]) -> Floats:
    """Return rows of numbers as floats; raise TypeError, ValueError or OverflowError if they are not numbers."""
    if len(rows) <= _NUMBERS_PER_STEP:
        return np.array(rows, dtype=np.float64)
    return np.concatenate(
        [np.array(rows[k : k + _NUMBERS_PER_STEP], dtype=np.float64) for k in range(0, len(rows), _NUMBERS_PER_STEP)]
    )


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
            yield Upload(_map_file(file), max_rows, SUFFIXES[kind]), digest.digest()
        finally:
            await run_in_threadpool(zero_all, file.fileno())


def _map_file(file: IO[bytes]) -> bytes | mmap.mmap:
    """Map a file into memory."""
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def parse_json(body: bytes, *, max_rows: int = 0) -> Any:
    """Parse JSON; refuse NaN and infinity, duplicate names, deep nesting, and too many rows."""
    limit = max_rows + _MAX_CONTAINERS
    if _count_containers(body) > limit and _count_containers(_STRING_PATTERN.sub(b"", body)) > limit:
        allowed = f"{max_rows:,} rows" if max_rows else f"{limit:,} lists and objects"
        raise InvalidInput(f"a body has at most {allowed}")
    try:
        return load_json(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid-json", "the body is not JSON in UTF-8, or contains a name twice") from None


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
