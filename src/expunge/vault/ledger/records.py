"""Records: the lines of a ledger, each with a hash of itself and of everything before it.

A record is a JSON object with a ``kind``. Four are the ledger's own: its first line (`LEDGER`), a key that signs from
now on (`KEY`), that a request is done (`DONE`) and the signature of its certificate (`SIGNATURE`). Every other kind is
a request; what a request of each kind says beyond its number, time, counts and who asked is checked where it is read,
in `requests`.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidFile

VERSION = 5
LEDGER, KEY, DONE, SIGNATURE = "ledger", "key", "done", "signature"
LIST = "list"  # in a request with long lists: the SHA-256 of the file that has them, beside the ledger

_REQUEST_FIELDS: dict[str, type] = {
    "request": int, "waiting": list, "time": str, "rows": int, "people": int,
    "callers": list, "in_certificate": bool,
}  # fmt: skip
_CALLER_FIELDS: dict[str, type] = {
    "job": str,
    "reference": str,
    "actor": str,
    "despite_hold": str,
}  # each of the callers
_OWN_FIELDS: dict[str, dict[str, type]] = {  # what a record of the ledger's own kinds must have
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
        return self.kind not in _OWN_FIELDS

    @property
    def request(self) -> int:
        """The number of the request that it is about; 0 if it is about none."""
        return int(self.body.get("request", 0))


def request_records(records: Iterable[Record]) -> dict[int, Record]:
    """The records that ask for something, by the number of the request."""
    return {record.request: record for record in records if record.is_request}


def records_of_kind(records: Iterable[Record], kind: str) -> dict[int, Record]:
    """The records of one of the ledger's own kinds, by the number of the request that they are about."""
    return {record.request: record for record in records if record.kind == kind}


def header_record(vault: str) -> Record:
    """The first record, which names the vault."""
    return compose_record(START, {"kind": LEDGER, "version": VERSION, "vault": vault})


def compose_record(after: Position, body: Mapping[str, Any]) -> Record:
    """The record with this body, after that position."""
    hashed = hashlib.sha256(after.hash.encode() + _canonical_line(body)).hexdigest()
    line = _canonical_line({**body, "hash": hashed}) + b"\n"
    return Record(body, line, Position(after.offset + len(line), hashed))


def scan_records(chunks: Iterable[bytes], after: Position, path: Path) -> Generator[Record, None, bool]:
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


def parse_records(data: bytes, after: Position, path: Path) -> tuple[list[Record], bool]:
    """Return the records in these bytes, and whether a torn one follows."""
    records, found = list[Record](), scan_records([data], after, path)
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
        if type(body["kind"]) is not str or not has_fields(body, _OWN_FIELDS.get(body["kind"], _REQUEST_FIELDS)):
            return None
        if any(type(number) is not int for number in body.get("waiting", ())):
            return None
        if any(
            type(caller) is not dict or not has_fields(caller, _CALLER_FIELDS) for caller in body.get("callers", ())
        ):
            return None
        record = compose_record(after, body)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if record.line == line + b"\n" else None


def has_fields(body: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
    """Whether a body has these fields, of these types."""
    return all(type(body.get(name)) is kind for name, kind in fields.items())


def _canonical_line(body: Mapping[str, Any]) -> bytes:
    return _encoder.encode(body).encode()


# MERGED waiting: Which requests wait for the signing key, as the ledger tells.


def find_uncertified(records: Sequence[Record]) -> list[int]:
    """Requests that are done and not certified, from the record of a request on."""
    open_: list[int] = []
    for record in records:
        if record.is_request:
            open_ = list(record.body["waiting"])
        elif record.kind == DONE:
            open_.append(record.request)
        elif record.kind == SIGNATURE and record.request in open_:
            open_.remove(record.request)
    return open_


# MERGED history: History: the requests of a vault, as its ledger tells them.


_FACTS = {"train": ("compared", "accepted"), "clone": ("clone",), "cloned": ("source", "source_request")}


@dataclass(frozen=True)
class LoggedCaller:
    """Who asked for a request, as the ledger tells it.

    Attributes
    ----------
    job : str
        The id of the request in the system that passed it on; a service's job.
    reference : str
        What the caller calls it.
    actor : str
        Who asked.
    despite_hold : str
        Why people were erased although they may have been on legal hold.
    """

    job: str
    reference: str
    actor: str
    despite_hold: str


@dataclass(frozen=True)
class LoggedRequest:
    """A request as the ledger tells it.

    Attributes
    ----------
    number : int
        Requests are numbered from 1, the first training.
    kind : str
        train, add, rectify, unlearn, readmit, rebound, or restore (an old copy of the folder caught up),
        clone (another vault was made of it) or cloned (it was made of another).
    time : str
        When it was accepted (ISO 8601, UTC).
    rows, people : int
        How many rows it erased, corrected or added, and of how many ids.
    state : str
        "certified"; "done" (the signing key was not there); "accepted" (the next open finishes it); or "restored" (an
        old copy of the folder was put back before it was certified, and the restore that follows did it).
    certificate : str or None
        The certificate, a compact JWS.
    callers : tuple of LoggedCaller
        Who asked, and what they call it: several where a service carried their requests out together.
    facts : dict
        What the record of a training or clone says beyond that, by name: ``compared`` (errors beside those of the model
        that was replaced) and ``accepted`` (what would have been refused otherwise); ``clone`` (the name of the new
        vault); ``source`` and ``source_request`` (what the vault is a clone of).
    """

    number: int
    kind: str
    time: str
    rows: int
    people: int
    state: str
    certificate: str | None
    callers: tuple[LoggedCaller, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The callers' references, one after the other."""
        return ", ".join(caller.reference for caller in self.callers if caller.reference)

    @property
    def actor(self) -> str:
        """The callers' names, each once."""
        return ", ".join(dict.fromkeys(caller.actor for caller in self.callers if caller.actor))


@dataclass(frozen=True)
class KeyChange:
    """A key that signs from some time on, as the ledger tells it.

    Attributes
    ----------
    time : str
        When it was introduced (ISO 8601, UTC).
    key : str
        Its thumbprint (RFC 7638).
    endorsed : bool
        Whether the key before signed that this one follows it.
    actor : str
        Who asked for it, or empty if nobody said.
    """

    time: str
    key: str
    endorsed: bool
    actor: str


def list_requests(records: Sequence[Record]) -> list[LoggedRequest]:
    """The requests in all records of a ledger."""
    signed, done = records_of_kind(records, SIGNATURE), records_of_kind(records, DONE)
    asked = [r for r in records if r.is_request]
    restores = [r for r in asked if r.kind == "restore" and r.request in done]
    restored = max((r.request for r in restores), default=0)

    def state(number: int) -> str:
        if number in signed:
            return "certified"
        if number in done and not any(int(r.body.get("since", 0)) < number < r.request for r in restores):
            return "done"
        return "restored" if number < restored else "accepted"

    return [make_logged_request(r, signed.get(r.request), state(r.request)) for r in asked]


def make_logged_request(request_record: Record, signature: Record | None, state: str) -> LoggedRequest:
    """Return a request from the record that asks for it and that of its signature, if it has one."""
    body = request_record.body
    return LoggedRequest(
        number=request_record.request,
        kind=request_record.kind,
        time=str(body["time"]),
        rows=int(body["rows"]),
        people=int(body["people"]),
        state=state,
        certificate=None if signature is None else str(signature.body["certificate"]),
        callers=tuple(LoggedCaller(**caller) for caller in body["callers"]),
        facts={name: body[name] for name in _FACTS.get(request_record.kind, ()) if body.get(name)},
    )
