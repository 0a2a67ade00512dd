"""Large JSON, read and written in steps: `json` keeps all other threads waiting from its first byte to its last.

The garbage collector does the same: while a large body becomes millions of lists it looks at all of them again and
again, a tenth of a second each time. `without_collector` keeps it off meanwhile.

The values are those of `json.loads` and `json.dumps`. Long containers are walked in Python, between whose steps other
threads have their turn, and what is in them is read by the scanner of `json` itself.
"""

import gc
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..exact.arrays import Floats

_BLANKS = re.compile(r"[ \t\n\r]*")
_SMALL = 1 << 16  # characters of a container that are read in one step
_ALONE = 1000  # members of a list that are read one by one where several could not be read at once
_DEEPEST = 8  # containers within each other that are walked; deeper ones are read in one step
_NUMBERS = 4096  # written in one step

Pairs = Callable[[list[tuple[str, Any]]], Any]

_collector = threading.Lock()
_large, _off_since = 0, 0.0  # bodies that are being worked on, and since when there was always one
_LONGEST = 10.0  # seconds after which garbage is collected once, though there still is one


@contextmanager
def without_collector(size: int) -> Iterator[None]:
    """Keep the garbage collector off while a body of this many bytes is worked on, if that is large."""
    global _large, _off_since
    if size <= _SMALL or not (_large or gc.isenabled()):  # or somebody else switched it off, for good
        yield
        return
    with _collector:
        if not _large:
            gc.disable()
            _off_since = time.monotonic()
        _large += 1
    try:
        yield
    finally:
        with _collector:
            _large -= 1
            if not _large:
                gc.enable()
            elif time.monotonic() - _off_since > _LONGEST:
                gc.collect(1)
                _off_since = time.monotonic()


def loads(text: str, *, parse_constant: Callable[[str], Any], object_pairs_hook: Pairs) -> Any:
    """Return what `json.loads` returns, or raise ValueError."""
    decoder = json.JSONDecoder(parse_constant=parse_constant, object_pairs_hook=object_pairs_hook)
    if len(text) <= _SMALL:
        return decoder.decode(text)
    value, end = _Reader(text, decoder, object_pairs_hook).read(_skip(text, 0), 0)
    if _skip(text, end) != len(text):
        raise ValueError("more than one value")
    return value


def _skip(text: str, at: int) -> int:
    """Return where the blanks end that begin here."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


class _Reader:
    """A long text of JSON that is being read."""

    def __init__(self, text: str, decoder: json.JSONDecoder, hook: Pairs) -> None:
        self._text, self._hook = text, hook
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]

    def read(self, at: int, depth: int) -> tuple[Any, int]:
        """Read the value that begins here; return it and where it ends."""
        start = self._text[at : at + 1]
        if depth < _DEEPEST and start == "[" and not self._is_small(at, "[", "]"):
            return self._read_list(at, depth)
        if depth < _DEEPEST and start == "{" and not self._is_small(at, "{", "}"):
            return self._read_object(at, depth)
        try:
            return self._scan(self._text, at)
        except StopIteration:
            raise ValueError("a value is missing") from None

    def _is_small(self, at: int, opening: str, closing: str) -> bool:
        """Return whether a container ends soon, and has no other of its kind in it."""
        end = self._text.find(closing, at + 1, at + _SMALL)
        return end >= 0 and self._text.find(opening, at + 1, end) < 0

    def _read_list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found, alone = list[Any](), 0
        for start in self._members(at, "]"):
            if not alone and (several := self._read_several(start)) is not None:
                values, self._end = several
                found += values
            else:
                alone = (alone or _ALONE) - 1
                value, self._end = self.read(start, depth + 1)
                found.append(value)
        return found, self._end

    def _read_several(self, at: int) -> tuple[list[Any], int] | None:
        """Read the members of a list that end soon, in one step; None if that is not possible.

        The text is cut where a member may end. If what lies before the cut is a list of its own once it has brackets,
        it consists of whole members; else the cut was within one.
        """
        closing = {"[": "]", "{": "}"}.get(self._text[at : at + 1])
        if closing is None:
            end = self._text.rfind(",", at, at + _SMALL)
        else:
            end = self._text.rfind(closing, at, at + _SMALL) + 1
        if end <= at:
            return None
        members = f"[{self._text[at:end]}]"
        try:
            values, stop = self._scan(members, 0)
        except (ValueError, StopIteration):
            return None
        return (values, end) if stop == len(members) else None

    def _read_object(self, at: int, depth: int) -> tuple[Any, int]:
        found = list[tuple[str, Any]]()
        for start in self._members(at, "}"):
            if self._text[start : start + 1] != '"':
                raise ValueError("a name is missing")
            name, end = self._scan(self._text, start)
            end = _skip(self._text, end)
            if self._text[end : end + 1] != ":":
                raise ValueError("a colon is missing")
            value, self._end = self.read(_skip(self._text, end + 1), depth + 1)
            found.append((name, value))
        return self._hook(found), self._end

    def _members(self, at: int, closing: str) -> Iterator[int]:
        """Yield where each member of a container begins; who reads it leaves in ``_end`` where it ends."""
        text = self._text
        at = _skip(text, at + 1)
        if text[at : at + 1] == closing:
            self._end = at + 1
            return
        while True:
            yield at
            at = _skip(text, self._end)
            mark = text[at : at + 1]
            if mark == closing:
                self._end = at + 1
                return
            if mark != ",":
                raise ValueError("a comma is missing")
            at = _skip(text, at + 1)


def numbers(values: Floats) -> bytes:
    """Return an array of one or two dimensions as JSON; a number that is beyond floats is null."""
    if values.ndim > 1:
        return b"[" + b",".join(numbers(row) for row in values) + b"]"
    parts = (values[start : start + _NUMBERS] for start in range(0, len(values), _NUMBERS))
    return b"[" + b",".join(map(_part, parts)) + b"]"


def _part(values: Floats) -> bytes:
    found: list[Any] = values.tolist()
    if not np.isfinite(values).all():
        found = [value if math.isfinite(value) else None for value in found]
    return json.dumps(found, separators=(",", ":"))[1:-1].encode()


def array_of(rows: list[Any]) -> Floats:
    """Return rows of numbers as an array of floats; raise TypeError, ValueError or OverflowError if they are none."""
    if len(rows) <= _NUMBERS:
        return np.array(rows, dtype=np.float64)
    return np.concatenate([np.array(rows[k : k + _NUMBERS], dtype=np.float64) for k in range(0, len(rows), _NUMBERS)])
