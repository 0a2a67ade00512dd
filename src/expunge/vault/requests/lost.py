"""What an old copy of the folder has lost: the requests that the ledger knows and the copy does not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ledger.ledger import Record


@dataclass
class Lost:
    """The sum of those requests, in order.

    Erased rows are erased again. A corrected row is erased, too: the right values are gone, and the wrong ones must not
    come back. Added rows are missing, and their slots are never given out again. All rows that the copy has of people
    who were erased or corrected go, also those that the requests could not name: another copy had lost them.
    """

    erase: set[int] = field(default_factory=set)
    people: set[str] = field(default_factory=set)  # keyed hashes of the ids that were erased or corrected
    bury: dict[str, int] = field(default_factory=dict)  # keyed hash of an id -> the request whose certificate says so
    drop: set[str] = field(default_factory=set)  # their rows go, and they may come again
    free: set[str] = field(default_factory=set)  # readmitted
    drawn: int = 0
    missing: int = 0

    @classmethod
    def since(cls, ahead: Sequence[Record], done: set[int], live: NDArray[np.bool_]) -> "Lost":
        """Go through requests that a folder with these rows has not seen; not all of them were done elsewhere."""
        lost = cls()
        for record in ahead:
            lost._see(record, record.request in done, live)
        unfinished, now = {record.request for record in ahead} - done, ahead[-1].request + 1
        lost.bury = {hashed: now if by in unfinished else by for hashed, by in lost.bury.items()}
        return lost

    def _see(self, record: Record, done: bool, live: NDArray[np.bool_]) -> None:
        body = record.body
        gone = body.get("erase", ())
        here = [slot for slot in gone if slot < len(live) and live[slot]]
        self.erase.update(here)
        if record.kind == "unlearn":
            self.missing -= len(gone) - len(here)  # added and erased since
        if record.kind == "add":
            self.missing += body["rows"]
        if record.kind == "restore" and done:
            self.missing = max(0, self.missing - body["missing"])  # they were lost, and told, then
        self.drawn = body.get("drawn", self.drawn)
        if record.kind in ("unlearn", "rectify"):
            self.people.update(body.get("bury", ()), body.get("replaced", ()))
        for hashed in body.get("free", ()):  # first: who a restore has in both was readmitted and erased again
            self.bury.pop(hashed, None)
            self.drop.add(hashed)
            self.free.add(hashed)
        bury = body.get("bury", ())
        self.bury.update(zip(bury, body.get("by", [record.request] * len(bury)), strict=True))
        self.drop.update(body.get("replaced", ()), body.get("drop", ()))
        self.drop -= set(self.bury)

    def body(self, since: int, drawn: int) -> dict[str, Any]:
        """What the record of the catching up says."""
        return {
            "from": since,
            "erase": sorted(self.erase),
            "bury": list(self.bury),
            "by": list(self.bury.values()),
            "drop": sorted(self.drop),
            "free": sorted(self.free),
            "drawn": drawn,
            "rows": len(self.erase),
            "people": len(self.bury),
            "missing": self.missing,
        }
