"""Restore: bring an old copy of the folder to where the ledger is, as far as that can be done."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...encoding.bounds import Bounds
from ...exact.arrays import Floats, Slots, cut, isin
from ...learning.blueprint import Blueprint
from ...learning.state import ModelState
from ...saving import files
from ...stores.change import Change
from ..disk.manifest import PeopleSegment, RowSegment
from ..disk.people import NOBODY, encode_tombstone, hashes_from_bytes, hashes_to_bytes
from ..disk.segments import Hashes, count_distinct_ids, ids_among, segment_bytes
from ..disk.snapshot import Snapshot, get_row_file
from .plan import ModelDefinition, RequestContext, RequestPlan
from .rebound import change_bounds
from .request import HashList, MissedChanges, NumberList, Request


@dataclass(frozen=True, eq=False)
class Restore(Request):
    """What requests since an old copy of the folder asked for, done again at once."""

    since: int  # the newest request that the copy had carried out
    erase: NumberList  # slots
    bury: HashList  # keyed hashes of the ids that were erased
    by: NumberList  # and by which requests
    drop: HashList  # their rows go, and they may come again
    free: HashList  # readmitted
    drawn: int  # slots given out so far
    missing: int  # rows that were added since and are not there
    outside: int  # rows that are erased because they are outside bounds that were declared since

    kind: ClassVar[str] = "restore"
    same_length_fields: ClassVar[tuple[str, ...]] = ("bury", "by")

    @classmethod
    def plan(cls, context: RequestContext, missed: MissedChanges) -> RequestPlan:
        """Catch up with what was lost."""
        now = context.snapshot
        missed.erase[now.people.find(hashes_from_bytes(missed.people)).live.slot] = True
        schema, blueprint = change_bounds(now.schema, now.blueprint, missed.bounds)
        outside = _drop_outside(now, blueprint, missed) if missed.bounds else 0
        state = _reserve_row_numbers(now, max(missed.drawn, now.state.drawn))
        change = Change(np.flatnonzero(missed.erase))
        now.rows.check_live(change.slots)
        charter = None
        if missed.bounds:
            charter = ModelDefinition.write(context, schema, blueprint)
            after, learners = (
                ModelState.learn(blueprint, get_row_file(state), state.drawn, change),
                blueprint.code.learners,
            )
        else:
            outcome = now.with_moments(state, now.blueprint.code.learners_of(change.slots)).prepare(change)
            after, learners = outcome.state, outcome.learners
        request = cls(
            rows=len(change.slots),
            people=len(missed.bury),
            since=now.manifest.request,
            erase=change.slots,
            bury=hashes_from_bytes(missed.bury),
            by=np.array(list(missed.bury.values()), dtype=np.int64),
            drop=hashes_from_bytes(sorted(missed.drop)),
            free=hashes_from_bytes(sorted(missed.free)),
            drawn=state.drawn,
            missing=missed.missing,
            outside=outside,
        )
        brings = _find_missing_tombstones(now, missed, change.slots)
        owners, erased = request._count_people(now, brings)
        people = None if brings is None else _write_tombstones(context, brings)
        return RequestPlan(
            request, after, owners, erased, learners, people=people, erased_slots=request.erase, definition=charter
        )

    def _count_people(self, now: Snapshot, tombstones: tuple[Hashes, Slots] | None) -> tuple[int, int]:
        """How many ids will have rows, and how many will be erased."""
        hashes, slots = now.people.read_entries()
        if tombstones is not None:
            hashes, slots = np.concatenate([hashes, tombstones[0]]), np.concatenate([slots, tombstones[1]])
        goes = isin(slots, self.erase)
        freed = ids_among(hashes, self.free) & (slots >= encode_tombstone(self.since))
        buried = (slots < NOBODY) & ~freed | ids_among(hashes, self.bury)
        return count_distinct_ids(hashes[(slots >= 0) & ~goes]), count_distinct_ids(hashes[buried])

    def overwrite(self, vault: Snapshot, number: int) -> None:
        if len(self.erase):
            vault.rows.erase(self.erase)
        if len(self.bury):
            vault.people.bury(self.bury, self.by, self.erase)
        if len(self.drop):
            vault.people.drop_entries(self.drop, self.erase)
        if len(self.free):
            again = dict(
                zip(hashes_to_bytes(self.bury), self.by.tolist(), strict=True)
            )  # who was erased again stays erased
            but = np.array([again.get(one, NOBODY) for one in hashes_to_bytes(self.free)], dtype=np.int64)
            vault.people.drop_tombstones(self.free, until=self.since, spared=but)

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.add_erased(self.erase)
        if done:  # they were lost, and told, then
            missed.missing = max(0, missed.missing - self.missing)
        missed.drawn = self.drawn
        missed.add_readmitted(self.free)  # first: who is in both was readmitted and erased again
        missed.add_buried(self.bury, self.by.tolist())
        missed.add_dropped(self.drop)

    def note(self) -> str:
        text = (
            f"this folder was a copy from request {self.since}: {self.rows - self.outside} rows that were erased or "
            "corrected since are erased (whoever was corrected has no rows now: add the right ones), "
            f"{self.missing} rows that were added since are missing; add them again"
        )
        if self.outside:
            text += f"; {self.outside} rows are outside bounds that were declared since, so they are erased"
        return text


def _reserve_row_numbers(now: Snapshot, drawn: int) -> ModelState:
    """The state with the numbers given out that rows had which were added since: they are never given again."""
    rows, missing = now.rows, drawn - now.state.drawn
    if not missing:
        return now.state
    *others, last = rows.layout.segments
    last = RowSegment(last.name, last.count + missing)
    size = rows.layout.entry_bytes
    files.lengthen(rows.layout.folder / last.name, (last.count - missing) * size, last.count * size)
    rows = rows.with_batch(rows.layout.dealt.with_batch(missing), (*others, last))
    return replace(now.state, ensemble=replace(now.state.ensemble, store=rows), drawn=drawn)


def _write_tombstones(context: RequestContext, tombstones: tuple[Hashes, Slots]) -> tuple[PeopleSegment, ...]:
    """Write a segment of tombstones."""
    name = f"people.{context.number}.0"
    files.create(context.folder.path / name, *segment_bytes(*tombstones, context.identity.seal))
    return (*context.snapshot.manifest.people, PeopleSegment(name, len(tombstones[1])))


def _drop_outside(now: Snapshot, blueprint: Blueprint, missed: MissedChanges) -> int:
    """Let the rows outside these bounds go, too; returns how many.

    When the bounds were declared no row was outside: another copy had lost these. To learn them would break what the
    exact integers rely on.
    """
    found, live = [np.empty(0, dtype=np.int64)], now.rows.live.copy()
    live[np.flatnonzero(missed.erase)] = False
    for piece in cut(len(live), now.rows.width):
        slots = piece.start + np.flatnonzero(live[piece])
        X, y = now.rows.take(slots)
        found.append(slots[_find_outside(blueprint.inputs, X) | _find_outside(blueprint.targets, y)])
    gone = np.concatenate(found)
    missed.erase[gone] = True
    missed.add_dropped(now.people.find_owners(gone))
    return len(gone)


def _find_outside(bounds: Bounds, values: Floats) -> NDArray[np.bool_]:
    """Which rows have a value outside declared bounds."""
    beyond: NDArray[np.bool_] = np.any((values < bounds.low) | (values > bounds.high), axis=1)
    return beyond


def _find_missing_tombstones(now: Snapshot, missed: MissedChanges, erased: Slots) -> tuple[Hashes, Slots] | None:
    """Tombstones for erased people of whom the copy has no row that could become one."""
    bury = hashes_from_bytes(missed.bury)
    found, unknown = now.people.find(bury), np.ones(len(missed.bury), dtype=np.bool_)
    unknown[found.owner[isin(found.slot, erased)]] = False
    if not unknown.any():
        return None
    return bury[unknown], encode_tombstone(np.array(list(missed.bury.values()), dtype=np.int64)[unknown])
