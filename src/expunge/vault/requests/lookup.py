"""Naming: the ids that a request names, looked up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ... import tables
from ...errors import InvalidInput, UnknownId, format_positions
from ...exact.arrays import unique
from ..disk.people import NOBODY, PeopleEntries, encode_tombstone, hash_ids
from ..disk.segments import Hashes
from .plan import RequestContext


@dataclass(frozen=True, eq=False)
class IdLookup:
    """Ids, each once, and what the vault knows of them."""

    ids: list[bytes]
    hashes: Hashes  # (n, 2)
    entries: PeopleEntries
    skipped: int = 0  # ids that were left out

    @property
    def earlier(self) -> tuple[int, ...]:
        """The requests that erased some of them before."""
        return tuple(unique(encode_tombstone(self.entries.tombstones.slot)).tolist())

    @property
    def erased_earlier(self) -> int:
        """How many of them were erased before and have no rows."""
        return len(np.setdiff1d(self.entries.tombstones.owner, self.entries.live.owner))

    def restrict(self, known: NDArray[np.bool_]) -> "IdLookup":
        """Leave out the ids for which the mask, (n,), does not hold."""
        kept = [person for person, there in zip(self.ids, known.tolist(), strict=True) if there]
        entries = self.entries.select(known[self.entries.owner])
        renumbered = (np.cumsum(known) - 1)[entries.owner]
        return IdLookup(
            kept,
            self.hashes[known],
            PeopleEntries(renumbered, entries.segment, entries.place, entries.slot),
            skipped=self.skipped + len(self.ids) - len(kept),
        )

    def holdings(self) -> "dict[bytes, Holding]":
        """Return what the vault holds of each id."""
        rows = np.bincount(self.entries.live.owner, minlength=len(self.ids)).tolist()
        buried = self.entries.tombstones
        tombs = dict(zip(buried.owner.tolist(), buried.slot.tolist(), strict=True))
        return {person: _make_holding(rows[k], tombs.get(k)) for k, person in enumerate(self.ids)}


def find_ids(context: RequestContext, ids: list[bytes]) -> IdLookup:
    """Look up ids, each given once; also those that the vault does not know."""
    hashes = hash_ids(context.identity.key, ids)
    return IdLookup(ids, hashes, context.snapshot.people.find(hashes))


def find_similar(context: RequestContext, unknown: Sequence[bytes]) -> set[bytes]:
    """Return those of these unknown ids of which a variant has rows; only the first thousand are looked at."""
    fold_case = context.snapshot.schema.fold_case
    pairs = [
        (person, variant)
        for person in unknown[:_MAX_COMPARED]
        for variant in tables.find_similar_ids(person, fold_case=fold_case)
    ]
    if not pairs:
        return set()
    found = context.snapshot.people.find(hash_ids(context.identity.key, [variant for _, variant in pairs]))
    return {pairs[k][0] for k in unique(found.live.owner).tolist()}


_MAX_COMPARED = 1000  # unknown ids of one request that similar ones are looked up for
_SKIP_HINT = "leave them out (--skip-unknown, skip_unknown=True)"
SKIP_OR_ATTEST_HINT = f"{_SKIP_HINT}; --attest-unknown --receipts DIR also signs that they are not there"


def look_up(
    context: RequestContext,
    ids: Iterable[bytes],
    *,
    erased: bool = False,
    skip_unknown: bool = False,
    advice: str = _SKIP_HINT,
    similar: bool = False,
) -> IdLookup:
    """Look ids up; one that was never there (with ``erased``: that is not erased) is an error, or is left out.

    With ``similar`` the error tells of which ones a similar id is there.
    """
    given = list(ids)
    wanted = list(dict.fromkeys(given))
    if not wanted:
        raise InvalidInput("ids is empty: name at least one id")
    named = find_ids(context, wanted)
    known = np.zeros(len(wanted), dtype=np.bool_)
    known[(named.entries.tombstones if erased else named.entries.select(named.entries.slot != NOBODY)).owner] = True
    if known.all():
        return named
    unknown = {one: None for one, there in zip(wanted, known, strict=True) if not there}
    what = "not erased" if erased else "not in the vault"
    if skip_unknown and known.any():
        return named.restrict(known)
    hint = _similar_ids_hint(given, find_similar(context, list(unknown))) if similar else ""
    if skip_unknown:
        raise UnknownId(f"ids that are {what}: {len(wanted):,} of {len(wanted):,}; nothing was changed{hint}")
    where = format_positions([k for k, one in enumerate(given) if one in unknown])
    raise UnknownId(
        f"ids that are {what}: {len(unknown):,} of {len(wanted):,}, {where}; nothing was changed{hint}. "
        f"Correct them, or {advice}"
    )


def _similar_ids_hint(given: Sequence[bytes], similar: set[bytes]) -> str:
    """Return what an error says about unknown ids of which a similar one is there."""
    if not similar:
        return ""
    where = format_positions([k for k, one in enumerate(given) if one in similar])
    return (
        f". A similar id is here for {len(similar):,} of them, {where}: look at case, quotes, zeros, signs and decimals"
    )


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
    similar : bool
        Of an unknown id: whether one has rows that differs only in case, blanks, quotes, zeros or the like. Only the
        first thousand unknown ids are looked at.
    """

    state: str
    rows: int = 0
    request: int | None = None
    similar: bool = False


def find_holdings(context: RequestContext, ids: Sequence[bytes], *, similar: bool = False) -> list[Holding]:
    """What the vault holds of each id, in the order asked; with ``similar`` also of those that look alike."""
    states = find_ids(context, list(dict.fromkeys(ids))).holdings()
    if similar:
        unknown = [person for person, holding in states.items() if holding.state == "unknown"]
        states |= dict.fromkeys(find_similar(context, unknown), Holding("unknown", similar=True))
    return [states[person] for person in ids]


def _make_holding(rows: int, tomb: int | None) -> Holding:
    if rows:
        return Holding("present", rows)
    return Holding("unknown") if tomb is None else Holding("erased", request=encode_tombstone(tomb))
