"""Records: the lines of a ledger, each with a hash of itself and of everything before it.

A record is a JSON object with a ``kind``. Four are the ledger's own: its first line (`LEDGER`), a key that signs from
now on (`KEY`), that a request is done (`DONE`) and the signature of its certificate (`SIGNATURE`). Every other kind is
a request; what a request of each kind says beyond its number, time, counts and who asked is checked where it is read,
in `requests`.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InvalidFile

VERSION = 5
LEDGER, KEY, DONE, SIGNATURE = "ledger", "key", "done", "signature"
LIST = "list"  # in a request with long lists: the SHA-256 of the file that has them, beside the ledger

_REQUEST: dict[str, type] = {
    "request": int, "waiting": list, "time": str, "rows": int, "people": int,
    "callers": list, "in_certificate": bool,
}  # fmt: skip
_CALLER: dict[str, type] = {"job": str, "reference": str, "actor": str, "despite_hold": str}  # each of the callers
_FIELDS: dict[str, dict[str, type]] = {  # what a record of the ledger's own kinds must have
    LEDGER: {"version": int, "vault": str},
    KEY: {"x": str, "time": str, "previous": str, "statement": str, "endorsed": str},
    DONE: {"request": int, "commitment": str, "schema": str, "software": str, "fold_case": bool},
    SIGNATURE: {"request": int, "certificate": str},
}


@dataclass(frozen=True)
class Position:
    """A place between two records: how many bytes come before it, and the hash of the last record there."""

    offset: int
    hash: str


START = Position(0, "")
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True)
class Record:
    """One line of the ledger."""

    body: Mapping[str, Any]
    line: bytes
    end: Position

    @property
    def kind(self) -> str:
        """The kind of the request, or one of the ledger's own kinds."""
        return str(self.body["kind"])

    @property
    def is_request(self) -> bool:
        """Whether it asks for something."""
        return self.kind not in _FIELDS

    @property
    def request(self) -> int:
        """The number of the request that it is about; 0 if it is about none."""
        return int(self.body.get("request", 0))


def requests_in(records: Iterable[Record]) -> dict[int, Record]:
    """The records that ask for something, by the number of the request."""
    return {record.request: record for record in records if record.is_request}


def of_kind(records: Iterable[Record], kind: str) -> dict[int, Record]:
    """The records of one of the ledger's own kinds, by the number of the request that they are about."""
    return {record.request: record for record in records if record.kind == kind}


def header(vault: str) -> Record:
    """The first record, which names the vault."""
    return compose(START, {"kind": LEDGER, "version": VERSION, "vault": vault})


def compose(after: Position, body: Mapping[str, Any]) -> Record:
    """The record with this body, after that position."""
    hashed = hashlib.sha256(after.hash.encode() + _canonical(body)).hexdigest()
    line = _canonical({**body, "hash": hashed}) + b"\n"
    return Record(body, line, Position(after.offset + len(line), hashed))


def scan(chunks: Iterable[bytes], after: Position, path: Path) -> Generator[Record, None, bool]:
    """Yield the records in a ledger's bytes, and return whether a torn one follows: a write that a crash cut short."""
    rest, chunks = b"", iter(chunks)
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for k, line in enumerate(lines):
            record = parse_line(line, after)
            if record is None:
                # Pages that never reached the disk read as zeros, and one write brings at most two records: that a
                # request is done, and its signature. Anything else was written whole and changed since.
                *others, last = (b"\n".join((*lines[k:], rest)) + b"".join(chunks)).split(b"\n")
                if b"\0" in line and len(others) + bool(last) <= 2:
                    return True
                raise InvalidFile(
                    f"{path} is damaged, or is the ledger of another vault: record at byte {after.offset}"
                )
            yield record
            after = record.end
    return bool(rest)


def parse(data: bytes, after: Position, path: Path) -> tuple[list[Record], bool]:
    """Return the records in these bytes, and whether a torn one follows."""
    records, found = list[Record](), scan([data], after, path)
    while True:
        try:
            records.append(next(found))
        except StopIteration as ended:
            return records, bool(ended.value)


def parse_line(line: bytes, after: Position) -> Record | None:
    """The record in one line, or None if it is not one that follows that position."""
    try:
        body = json.loads(line)
        del body["hash"]
        if type(body["kind"]) is not str or not fits(body, _FIELDS.get(body["kind"], _REQUEST)):
            return None
        if any(type(number) is not int for number in body.get("waiting", ())):
            return None
        if any(type(caller) is not dict or not fits(caller, _CALLER) for caller in body.get("callers", ())):
            return None
        record = compose(after, body)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if record.line == line + b"\n" else None


def fits(body: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
    """Whether a body has these fields, of these types."""
    return all(type(body.get(name)) is kind for name, kind in fields.items())


def _canonical(body: Mapping[str, Any]) -> bytes:
    return _encoder.encode(body).encode()
