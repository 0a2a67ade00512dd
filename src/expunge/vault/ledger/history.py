"""History: the requests of a vault, as its ledger tells them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .records import DONE, SIGNATURE, Record, of_kind

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


def history(records: Sequence[Record]) -> list[LoggedRequest]:
    """The requests in all records of a ledger."""
    signed, done = of_kind(records, SIGNATURE), of_kind(records, DONE)
    asked = [r for r in records if r.is_request]
    restores = [r for r in asked if r.kind == "restore" and r.request in done]
    restored = max((r.request for r in restores), default=0)

    def state(number: int) -> str:
        if number in signed:
            return "certified"
        if number in done and not any(int(r.body.get("since", 0)) < number < r.request for r in restores):
            return "done"
        return "restored" if number < restored else "accepted"

    return [logged_request(r, signed.get(r.request), state(r.request)) for r in asked]


def logged_request(asked: Record, signature: Record | None, state: str) -> LoggedRequest:
    """Return a request from the record that asks for it and that of its signature, if it has one."""
    body = asked.body
    return LoggedRequest(
        number=asked.request,
        kind=asked.kind,
        time=str(body["time"]),
        rows=int(body["rows"]),
        people=int(body["people"]),
        state=state,
        certificate=None if signature is None else str(signature.body["certificate"]),
        callers=tuple(LoggedCaller(**caller) for caller in body["callers"]),
        facts={name: body[name] for name in _FACTS.get(asked.kind, ()) if body.get(name)},
    )
