"""Restore: bring an old copy of the folder to where the ledger is, as far as that can be done."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...encoding.bounds import Bounds
from ...exact.arrays import Floats, Slots, among, cut
from ...learning.blueprint import Blueprint
from ...learning.state import State
from ...saving import files
from ...stores.change import Change
from ..disk.manifest import Owners, RowSegment
from ..disk.people import NOBODY, as_bytes, from_bytes, tombstone
from ..disk.segments import Hashes, distinct_ids, ids_among, segment_bytes
from ..disk.snapshot import Snapshot, rows_of
from .listed import Numbers, People
from .lost import Lost
from .plan import Charter, Plan, Site
from .rebound import rebounded
from .request import Request


@dataclass(frozen=True, eq=False)
class Restore(Request):
    """What requests since an old copy of the folder asked for, done again at once."""

    since: int  # the newest request that the copy had carried out
    erase: Numbers  # slots
    bury: People  # keyed hashes of the ids that were erased
    by: Numbers  # and by which requests
    drop: People  # their rows go, and they may come again
    free: People  # readmitted
    drawn: int  # slots given out so far
    missing: int  # rows that were added since and are not there
    outside: int  # rows that are erased because they are outside bounds that were declared since

    kind: ClassVar[str] = "restore"
    alike: ClassVar[tuple[str, ...]] = ("bury", "by")

    @classmethod
    def plan(cls, site: Site, lost: Lost) -> Plan:
        """Catch up with what was lost."""
        now = site.now
        lost.erase[now.people.find(from_bytes(lost.people)).live.slot] = True
        schema, blueprint = rebounded(now.schema, now.blueprint, lost.bounds)
        outside = _drop_outside(now, blueprint, lost) if lost.bounds else 0
        state = _grown(now, max(lost.drawn, now.state.drawn))
        change = Change(np.flatnonzero(lost.erase))
        now.rows.check_held(change.slots)
        charter = None
        if lost.bounds:
            charter = Charter.written(site, schema, blueprint)
            after, learners = State.learn(blueprint, rows_of(state), state.drawn, change), blueprint.code.learners
        else:
            outcome = now.touching(state, now.blueprint.code.learners_of(change.slots)).after(change)
            after, learners = outcome.state, outcome.learners
        request = cls(
            rows=len(change.slots),
            people=len(lost.bury),
            since=now.manifest.request,
            erase=change.slots,
            bury=from_bytes(lost.bury),
            by=np.array(list(lost.bury.values()), dtype=np.int64),
            drop=from_bytes(sorted(lost.drop)),
            free=from_bytes(sorted(lost.free)),
            drawn=state.drawn,
            missing=lost.missing,
            outside=outside,
        )
        brings = _tombstones(now, lost, change.slots)
        owners, erased = request._counts(now, brings)
        people = None if brings is None else _written(site, brings)
        return Plan(request, after, owners, erased, learners, people=people, erases=request.erase, charter=charter)

    def _counts(self, now: Snapshot, brings: tuple[Hashes, Slots] | None) -> tuple[int, int]:
        """How many ids will have rows, and how many will be erased."""
        hashes, slots = now.people.entries()
        if brings is not None:
            hashes, slots = np.concatenate([hashes, brings[0]]), np.concatenate([slots, brings[1]])
        goes = among(slots, self.erase)
        freed = ids_among(hashes, self.free) & (slots >= tombstone(self.since))
        buried = (slots < NOBODY) & ~freed | ids_among(hashes, self.bury)
        return distinct_ids(hashes[(slots >= 0) & ~goes]), distinct_ids(hashes[buried])

    def overwrite(self, vault: Snapshot, number: int) -> None:
        if len(self.erase):
            vault.rows.erase(self.erase)
        if len(self.bury):
            vault.people.bury(self.bury, self.by, self.erase)
        if len(self.drop):
            vault.people.drop(self.drop, self.erase)
        if len(self.free):
            again = dict(zip(as_bytes(self.bury), self.by.tolist(), strict=True))  # who was erased again stays erased
            but = np.array([again.get(one, NOBODY) for one in as_bytes(self.free)], dtype=np.int64)
            vault.people.free(self.free, until=self.since, but=but)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.erased(self.erase)
        if done:  # they were lost, and told, then
            lost.missing = max(0, lost.missing - self.missing)
        lost.drawn = self.drawn
        lost.freed(self.free)  # first: who is in both was readmitted and erased again
        lost.buried(self.bury, self.by.tolist())
        lost.dropped(self.drop)

    def note(self) -> str:
        text = (
            f"this folder was a copy from request {self.since}: {self.rows - self.outside} rows that were erased or "
            "corrected since are erased (whoever was corrected has no rows now: add the right ones), "
            f"{self.missing} rows that were added since are missing; add them again"
        )
        if self.outside:
            text += f"; {self.outside} rows are outside bounds that were declared since, so they are erased"
        return text


def _grown(now: Snapshot, drawn: int) -> State:
    """The state with the numbers given out that rows had which were added since: they are never given again."""
    rows, missing = now.rows, drawn - now.state.drawn
    if not missing:
        return now.state
    *others, last = rows.layout.segments
    last = RowSegment(last.name, last.count + missing)
    size = rows.layout.entry_bytes
    files.lengthen(rows.layout.folder / last.name, (last.count - missing) * size, last.count * size)
    rows = rows.with_batch(rows.layout.dealt.and_batch(missing), (*others, last))
    return replace(now.state, ensemble=replace(now.state.ensemble, store=rows), drawn=drawn)


def _written(site: Site, brings: tuple[Hashes, Slots]) -> tuple[Owners, ...]:
    """Write a segment of tombstones."""
    name = f"people.{site.number}.0"
    files.create(site.folder.path / name, *segment_bytes(*brings, site.identity.seal))
    return (*site.now.manifest.people, Owners(name, len(brings[1])))


def _drop_outside(now: Snapshot, blueprint: Blueprint, lost: Lost) -> int:
    """Let the rows outside these bounds go, too; returns how many.

    When the bounds were declared no row was outside: another copy had lost these. To learn them would break what the
    exact integers rely on.
    """
    found, live = [np.empty(0, dtype=np.int64)], now.rows.live.copy()
    live[np.flatnonzero(lost.erase)] = False
    for piece in cut(len(live), now.rows.width):
        slots = piece.start + np.flatnonzero(live[piece])
        X, y = now.rows.take(slots)
        found.append(slots[_beyond(blueprint.inputs, X) | _beyond(blueprint.targets, y)])
    gone = np.concatenate(found)
    lost.erase[gone] = True
    lost.dropped(now.people.owners(gone))
    return len(gone)


def _beyond(bounds: Bounds, values: Floats) -> NDArray[np.bool_]:
    """Which rows have a value outside declared bounds."""
    beyond: NDArray[np.bool_] = np.any((values < bounds.low) | (values > bounds.high), axis=1)
    return beyond


def _tombstones(now: Snapshot, lost: Lost, erased: Slots) -> tuple[Hashes, Slots] | None:
    """Tombstones for erased people of whom the copy has no row that could become one."""
    bury = from_bytes(lost.bury)
    found, unknown = now.people.find(bury), np.ones(len(lost.bury), dtype=np.bool_)
    unknown[found.owner[among(found.slot, erased)]] = False
    if not unknown.any():
        return None
    return bury[unknown], tombstone(np.array(list(lost.bury.values()), dtype=np.int64)[unknown])
