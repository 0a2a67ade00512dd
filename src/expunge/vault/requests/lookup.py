"""Lookup: which ids of a request have rows, are erased, or are unknown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ... import tables
from ...errors import InvalidInput, UnknownId, format_positions
from ...exact.arrays import unique
from ..disk.people import NOBODY, Hashes, PeopleEntries, encode_tombstone, hash_ids
from .plan import RequestContext


@dataclass(frozen=True, eq=False)
class IdLookup:
    """Ids, each once, and their entries in the vault."""

    ids: list[bytes]
    hashes: Hashes  # (n, 2)
    entries: PeopleEntries
    skipped: int = 0  # ids that were left out

    @property
    def earlier(self) -> tuple[int, ...]:
        """The requests that erased ids among these before."""
        return tuple(unique(encode_tombstone(self.entries.tombstones.slot)).tolist())

    def count_erased_earlier(self) -> int:
        """Return how many of the ids were erased before and have no rows."""
        return len(np.setdiff1d(self.entries.tombstones.owner, self.entries.live.owner))

    def restrict(self, known: NDArray[np.bool_]) -> "IdLookup":
        """Keep only the ids for which the mask, (n,), is true."""
        kept = [person for person, is_known in zip(self.ids, known.tolist(), strict=True) if is_known]
        entries = self.entries.select(known[self.entries.owner])
        renumbered = (np.cumsum(known) - 1)[entries.owner]
        return IdLookup(
            kept,
            self.hashes[known],
            PeopleEntries(renumbered, entries.segment, entries.place, entries.slot),
            skipped=self.skipped + len(self.ids) - len(kept),
        )

    def holdings(self) -> "dict[bytes, Holding]":
        """Return what the vault holds for each id."""
        row_counts = np.bincount(self.entries.live.owner, minlength=len(self.ids)).tolist()
        buried = self.entries.tombstones
        requests = dict(zip(buried.owner.tolist(), encode_tombstone(buried.slot).tolist(), strict=True))
        holdings = dict[bytes, Holding]()
        for k, person in enumerate(self.ids):
            if row_counts[k]:
                holdings[person] = Holding("present", row_counts[k])
            else:
                holdings[person] = Holding("erased", request=requests[k]) if k in requests else Holding("unknown")
        return holdings


def find_ids(context: RequestContext, ids: list[bytes]) -> IdLookup:
    """Look up ids, each given once; unknown ids stay in the result."""
    hashes = hash_ids(context.identity.key, ids)
    return IdLookup(ids, hashes, context.snapshot.people.find(hashes))


def find_similar(context: RequestContext, unknown: Sequence[bytes]) -> set[bytes]:
    """Return the unknown ids that have a variant with rows; only the first thousand are searched."""
    fold_case = context.snapshot.schema.fold_case
    pairs = [
        (person, variant)
        for person in unknown[:_MAX_COMPARED]
        for variant in tables.find_similar_ids(person, fold_case=fold_case)
    ]
    if not pairs:
        return set()
    entries = context.snapshot.people.find(hash_ids(context.identity.key, [variant for _, variant in pairs]))
    return {pairs[k][0] for k in unique(entries.live.owner).tolist()}


_MAX_COMPARED = 1000  # unknown ids of one request for which similar ids are searched
_SKIP_HINT = "leave them out (--skip-unknown, skip_unknown=True)"
SKIP_OR_ATTEST_HINT = f"{_SKIP_HINT}; --attest-unknown --receipts DIR also signs that they are not in the vault"


def look_up(
    context: RequestContext,
    ids: Iterable[bytes],
    *,
    erased: bool = False,
    skip_unknown: bool = False,
    advice: str = _SKIP_HINT,
    similar: bool = False,
) -> IdLookup:
    """Look up ids. Ids that the vault never had (with ``erased``: that are not erased) are refused or left out.

    With ``similar`` the error counts the ids for which the vault has a similar one.
    """
    given = list(ids)
    people = list(dict.fromkeys(given))
    if not people:
        raise InvalidInput("ids is empty: name at least one id")
    lookup = find_ids(context, people)
    known = np.zeros(len(people), dtype=np.bool_)
    known[(lookup.entries.tombstones if erased else lookup.entries.select(lookup.entries.slot != NOBODY)).owner] = True
    if known.all():
        return lookup
    if skip_unknown and known.any():
        return lookup.restrict(known)
    unknown = {person: None for person, is_known in zip(people, known, strict=True) if not is_known}
    problem = f"ids that are {'not erased' if erased else 'not in the vault'}: {len(unknown):,} of {len(people):,}"
    hint = ""
    if similar and (alike := find_similar(context, list(unknown))):
        where = format_positions([k for k, person in enumerate(given) if person in alike])
        hint = f". The vault has a similar id for {len(alike):,} of them, {where}: "
        hint += "check case, quotes, zeros, signs and decimals"
    if skip_unknown:
        raise UnknownId(f"{problem}; nothing was changed{hint}")
    where = format_positions([k for k, person in enumerate(given) if person in unknown])
    raise UnknownId(f"{problem}, {where}; nothing was changed{hint}. Correct them, or {advice}")


@dataclass(frozen=True)
class Holding:
    """What a vault holds for one id.

    Attributes
    ----------
    state : str
        "present" (it has rows), "erased" (it had; a tombstone stays) or "unknown".
    rows : int
        How many rows it has.
    request : int or None
        The request that erased it.
    similar : bool
        For an unknown id: whether an id with rows differs from it only in case, blanks, quotes, zeros or the like. Only
        the first thousand unknown ids are compared.
    """

    state: str
    rows: int = 0
    request: int | None = None
    similar: bool = False


def find_holdings(context: RequestContext, ids: Sequence[bytes], *, similar: bool = False) -> list[Holding]:
    """Return what the vault holds for each id, in the order given; with ``similar`` unknown ids are compared."""
    states = find_ids(context, list(dict.fromkeys(ids))).holdings()
    if similar:
        unknown = [person for person, holding in states.items() if holding.state == "unknown"]
        states |= dict.fromkeys(find_similar(context, unknown), Holding("unknown", similar=True))
    return [states[person] for person in ids]
