"""History: the requests of a vault, as its ledger tells them."""

from collections.abc import Sequence
from dataclasses import dataclass

from .records import DONE, SIGNATURE, Record, of_kind


@dataclass(frozen=True)
class LoggedRequest:
    """A request as the ledger tells it.

    Attributes
    ----------
    number : int
        Requests are numbered from 1, the first training.
    kind : str
        train, add, rectify, unlearn, readmit, rebound, or restore (an old copy of the folder caught up).
    time : str
        When it was accepted (ISO 8601, UTC).
    rows, people : int
        How many rows it erased, corrected or added, and of how many ids.
    state : str
        "certified"; "done" (the signing key was not there); "accepted" (the next open finishes it); or "restored" (an
        old copy of the folder was put back before it was certified, and the restore that follows did it).
    certificate : str or None
        The certificate, a compact JWS.
    reference, actor : str
        What the caller calls it, and who asked.
    """

    number: int
    kind: str
    time: str
    rows: int
    people: int
    state: str
    certificate: str | None
    reference: str
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

    return [
        LoggedRequest(
            number=r.request,
            kind=r.kind,
            time=str(r.body["time"]),
            rows=int(r.body["rows"]),
            people=int(r.body["people"]),
            state=state(r.request),
            certificate=str(signed[r.request].body["certificate"]) if r.request in signed else None,
            reference=str(r.body["reference"]),
            actor=str(r.body["actor"]),
        )
        for r in asked
    ]
