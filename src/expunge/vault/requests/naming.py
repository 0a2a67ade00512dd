"""Naming: the ids that a request names, looked up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidInput, UnknownId, positions
from ...exact.arrays import distinct
from ..disk.people import NOBODY, Entries, hashed, tombstone
from ..disk.segments import Hashes
from .plan import Site


@dataclass(frozen=True, eq=False)
class Named:
    """Ids, each once, and what the vault knows of them."""

    ids: list[bytes]
    hashes: Hashes  # (n, 2)
    entries: Entries
    skipped: int = 0  # ids that were left out

    @property
    def earlier(self) -> tuple[int, ...]:
        """The requests that erased some of them before."""
        return tuple(distinct(tombstone(self.entries.buried.slot)).tolist())


_LEAVE_OUT = "leave them out (--skip-unknown, skip_unknown=True)"
OR_ATTEST = f"{_LEAVE_OUT}; --attest-unknown --receipts DIR also signs that they are not there"


def look_up(
    site: Site,
    ids: Iterable[bytes],
    *,
    erased: bool = False,
    skip_unknown: bool = False,
    way_out: str = _LEAVE_OUT,
) -> Named:
    """Look ids up; one that was never there (with ``erased``: that is not erased) is an error, or is left out."""
    given = list(ids)
    wanted = list(dict.fromkeys(given))
    if not wanted:
        raise InvalidInput("ids is empty: name at least one id")
    hashes = hashed(site.identity.key, wanted)
    entries = site.now.people.find(hashes)
    known = np.zeros(len(wanted), dtype=np.bool_)
    known[(entries.buried if erased else entries.where(entries.slot != NOBODY)).owner] = True
    if known.all():
        return Named(wanted, hashes, entries)
    unknown = {one for one, there in zip(wanted, known, strict=True) if not there}
    what = "not erased" if erased else "not in the vault"
    if not skip_unknown:
        where = positions([k for k, one in enumerate(given) if one in unknown])
        raise UnknownId(
            f"ids that are {what}: {len(unknown):,} of {len(wanted):,}, {where}; nothing was changed. "
            f"Correct them, or {way_out}"
        )
    if not known.any():
        raise UnknownId(f"ids that are {what}: {len(wanted):,} of {len(wanted):,}; nothing was changed")
    kept = [one for one in wanted if one not in unknown]
    return Named(kept, hashes[known], site.now.people.find(hashes[known]), skipped=len(unknown))


@dataclass(frozen=True)
class Holding:
    """What a vault holds of one id.

    Attributes
    ----------
    state : str
        "present" (it has rows), "erased" (it had; a tombstone stays) or "unknown".
    rows : int
        How many rows it has.
    request : int or None
        The request that erased it.
    """

    state: str
    rows: int = 0
    request: int | None = None


def holdings(site: Site, ids: Sequence[bytes]) -> list[Holding]:
    """What the vault holds of each id, in the order asked."""
    entries = site.now.people.find(hashed(site.identity.key, ids))
    rows = np.bincount(entries.live.owner, minlength=len(ids)).tolist()
    tombs = dict(zip(entries.buried.owner.tolist(), entries.buried.slot.tolist(), strict=True))
    return [_holding(count, tombs.get(k)) for k, count in enumerate(rows)]


def _holding(rows: int, tomb: int | None) -> Holding:
    if rows:
        return Holding("present", rows)
    return Holding("unknown") if tomb is None else Holding("erased", request=tombstone(tomb))
