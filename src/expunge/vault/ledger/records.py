"""Records: the lines of a ledger, each with a hash of itself and of everything before it.

A record is a JSON object with a ``kind``. Four kinds are the ledger's own: its first line (`LEDGER`), a new signing key
(`KEY`), the completion of a request (`DONE`) and the signature of its certificate (`SIGNATURE`). Every other kind is a
request. Here, only its number, time, counts and callers are checked; `requests` checks the rest.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidFile

VERSION = 7
LEDGER, KEY, DONE, SIGNATURE = "ledger", "key", "done", "signature"
LIST = "list"  # in a request with long lists: the SHA-256 of their file beside the ledger

_REQUEST_FIELDS: dict[str, type] = {
    "request": int, "waiting": int, "time": str, "rows": int, "people": int,
    "callers": list, "in_certificate": bool,
}  # fmt: skip
_CALLER_FIELDS: dict[str, type] = {"job": str, "reference": str, "actor": str, "despite_hold": str}
_OWN_FIELDS: dict[str, dict[str, type]] = {  # by kind
    LEDGER: {"version": int, "vault": str},
    KEY: {"x": str, "time": str, "previous": str, "statement": str, "endorsed": str},
    DONE: {"request": int, "commitment": str, "schema": str, "software": str, "fold_case": bool},
    SIGNATURE: {"request": int, "certificate": str},
}


@dataclass(frozen=True)
class Position:
    """A position between two records: the number of bytes before it, and the hash of the record that ends there."""

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
        """Whether it is a request."""
        return self.kind not in _OWN_FIELDS

    @property
    def request(self) -> int:
        """The number of the request that it belongs to, or 0."""
        return int(self.body.get("request", 0))


def request_records(records: Iterable[Record]) -> dict[int, Record]:
    """Return the records of requests, by number."""
    return {record.request: record for record in records if record.is_request}


def records_of_kind(records: Iterable[Record], kind: str) -> dict[int, Record]:
    """Return the records of one of the ledger's own kinds, by the number of their request."""
    return {record.request: record for record in records if record.kind == kind}


def header_record(vault: str) -> Record:
    """Return the first record of a ledger, which names the vault."""
    return compose_record(START, {"kind": LEDGER, "version": VERSION, "vault": vault})


def compose_record(after: Position, body: Mapping[str, Any]) -> Record:
    """Return the record with this body at this position."""
    hashed = hashlib.sha256(after.hash.encode() + _canonical_line(body)).hexdigest()
    line = _canonical_line({**body, "hash": hashed}) + b"\n"
    return Record(body, line, Position(after.offset + len(line), hashed))


def scan_records(chunks: Iterable[bytes], after: Position, path: Path) -> Generator[Record, None, bool]:
    """Yield the records in a ledger's bytes; return whether a torn one follows, a write that a crash cut short."""
    rest, chunks = b"", iter(chunks)
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for k, line in enumerate(lines):
            record = parse_line(line, after)
            if record is None:
                # Pages that never reached the disk read as zeros, and one write appends at most two records: that a
                # request is done, and its signature. Anything else was written completely and changed since.
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
    records, scan = list[Record](), scan_records([data], after, path)
    while True:
        try:
            records.append(next(scan))
        except StopIteration as ended:
            return records, bool(ended.value)


def parse_line(line: bytes, after: Position) -> Record | None:
    """Return the record in a line, or None if it is not a valid record at this position."""
    try:
        body = json.loads(line)
        del body["hash"]
        if type(body["kind"]) is not str or not has_fields(body, _OWN_FIELDS.get(body["kind"], _REQUEST_FIELDS)):
            return None
        if not 0 <= body.get("waiting", 0) <= max(0, body.get("request", 0) - 1):
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
    """Return whether a body has these fields, with these types."""
    return all(type(body.get(name)) is kind for name, kind in fields.items())


def _canonical_line(body: Mapping[str, Any]) -> bytes:
    return _encoder.encode(body).encode()


def find_uncertified(records: Sequence[Record], until: int | None = None) -> int:
    """Return the newest request, up to ``until``, that is done and not certified; 0 if all are certified.

    The records must start with a request. Each request names the newest one before it that waited for its certificate
    then, so that following these numbers finds all (`LedgerIndex.read_uncertified`). The oldest is certified first.
    """
    uncertified: list[int] = []
    for record in records:
        if record.is_request and (until is None or record.request <= until):
            uncertified = [record.body["waiting"]]
        elif record.kind == DONE and (until is None or record.request <= until):
            uncertified.append(record.request)
        elif record.kind == SIGNATURE and record.request in uncertified:
            uncertified.remove(record.request)
    return max(uncertified, default=0)


_FACTS = {
    "train": ("compared", "accepted"),
    "replan": ("planned",),
    "restore": ("replanned", "planned"),
    "clone": ("clone",),
    "cloned": ("source", "source_request"),
}


@dataclass(frozen=True)
class LoggedCaller:
    """A caller of a request, as recorded in the ledger.

    Attributes
    ----------
    job : str
        The id of the request in the calling system, such as a service's job.
    reference : str
        The caller's own reference.
    actor : str
        The person or system that made the request.
    despite_hold : str
        The reason for erasing people although they may have been on legal hold.
    """

    job: str
    reference: str
    actor: str
    despite_hold: str


@dataclass(frozen=True)
class LoggedRequest:
    """A request, as recorded in the ledger.

    Attributes
    ----------
    number : int
        Requests are numbered from 1, the first training.
    kind : str
        train, replan, add, rectify, unlearn, readmit, rebound, restore (an old copy of the folder was brought up to
        date), clone (this vault was cloned) or cloned (this vault is a clone).
    time : str
        When it was accepted (ISO 8601, UTC).
    rows, people : int
        The number of rows that it erased, corrected or added, and of their ids.
    state : str
        "certified"; "done" (the signing key was missing); "accepted" (the next open finishes it); or "restored" (an old
        copy of the folder was put back before the request was certified, and a later restore carried it out).
    certificate : str or None
        The certificate, a compact JWS.
    callers : tuple of LoggedCaller
        The callers; several if a service carried out their requests together.
    open : int
        For an erasure or correction: the number of its people who had a part in choosing the settings. They are
        complete with the next training or replan; the others at once.
    facts : dict
        Further facts about a training, replan or clone: ``planned`` (the score of the plan), ``compared``
        (errors beside those of the replaced model), ``accepted`` (what would otherwise have been refused),
        ``clone`` (the name of the new vault), ``source`` and ``source_request`` (what the vault is a clone of).
    """

    number: int
    kind: str
    time: str
    rows: int
    people: int
    state: str
    certificate: str | None
    callers: tuple[LoggedCaller, ...]
    open: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def settles(self) -> bool:
        """Whether it chose the settings, so that every earlier request is complete."""
        return self.kind in ("train", "replan", "cloned") or bool(self.facts.get("replanned"))

    @property
    def reference(self) -> str:
        """The callers' references, joined."""
        return ", ".join(caller.reference for caller in self.callers if caller.reference)

    @property
    def actor(self) -> str:
        """The callers' names, each once, joined."""
        return ", ".join(dict.fromkeys(caller.actor for caller in self.callers if caller.actor))


@dataclass(frozen=True)
class KeyChange:
    """The introduction of a signing key, as recorded in the ledger.

    Attributes
    ----------
    time : str
        When it was introduced (ISO 8601, UTC).
    key : str
        Its thumbprint (RFC 7638).
    endorsed : bool
        Whether the previous key signed that this one follows it.
    actor : str
        The requester, or empty if unknown.
    """

    time: str
    key: str
    endorsed: bool
    actor: str


def make_logged_request(request_record: Record, signature: Record | None, state: str) -> LoggedRequest:
    """Return a request from its record and the record of its signature, if it has one."""
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
        open=int(body.get("open", 0)),
        facts={name: body[name] for name in _FACTS.get(request_record.kind, ()) if body.get(name)},
    )
