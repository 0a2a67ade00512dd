"""What an old copy of the folder has lost: the requests that the ledger knows and the copy does not, added up."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...stores.bits import Live


@dataclass
class Lost:
    """The sum of requests that a folder has not seen, in their order; each adds itself with `Request.replay`.

    Erased rows are erased again. A corrected row is erased, too: the right values are gone, and the wrong ones must not
    come back. Added rows are missing, and their slots are never given out again. All rows that the copy has of people
    who were erased or corrected go, also those that the requests could not name: another copy had lost them.
    """

    live: Live  # which slots have a row in the old copy
    erase: set[int] = field(default_factory=set)
    people: set[str] = field(default_factory=set)  # keyed hashes of the ids that were erased or corrected
    bury: dict[str, int] = field(default_factory=dict)  # keyed hash of an id -> the request whose certificate says so
    drop: set[str] = field(default_factory=set)  # their rows go, and they may come again
    free: set[str] = field(default_factory=set)  # readmitted
    bounds: dict[str, tuple[str, str]] = field(default_factory=dict)  # column -> low and high, as text
    drawn: int = 0
    missing: int = 0

    def erased(self, slots: Iterable[int]) -> int:
        """Take rows that were erased; return how many of them the copy never had: they were added and erased since."""
        gone = set(slots)
        here = {slot for slot in gone if slot < len(self.live) and self.live[slot]}
        self.erase |= here
        return len(gone) - len(here)

    def buried(self, hashes: Iterable[str], by: Iterable[int]) -> None:
        """Take people who were erased, and by which requests."""
        self.bury.update(zip(hashes, by, strict=True))
        self.drop -= set(self.bury)

    def dropped(self, hashes: Iterable[str]) -> None:
        """Take people whose rows go and who may come again."""
        self.drop |= set(hashes) - set(self.bury)

    def freed(self, hashes: Iterable[str]) -> None:
        """Take people who were readmitted."""
        for hashed in hashes:
            self.bury.pop(hashed, None)
            self.drop.add(hashed)
            self.free.add(hashed)
