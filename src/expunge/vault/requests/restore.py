"""Restore: bring an old copy of the folder up to date with the ledger, as far as possible."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...encoding.bounds import Bounds
from ...encoding.placement import RowNumbers
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots, cut, isin, unique
from ...learning.blueprint import Blueprint
from ...learning.state import ModelState
from ...saving import files
from ...stores.bits import Bits
from ...stores.change import Change
from ...tables import Schema
from ..disk.manifest import PeopleSegment, RowSegment
from ..disk.people import (
    NOBODY,
    Hashes,
    count_distinct_ids,
    encode_tombstone,
    hashes_from_bytes,
    hashes_to_bytes,
    ids_among,
    segment_bytes,
)
from ..disk.rowfile import RowFile
from ..disk.snapshot import Snapshot, get_row_file
from .choice import choose_settings, find_open
from .intake import ignore_progress
from .plan import ModelDefinition, RequestContext, RequestPlan
from .rebound import change_bounds
from .replan import deal_again, write_people_again
from .request import HashList, NumberList, Request
from .train import draw_next_blueprint, learn_rows


@dataclass
class MissedChanges:
    """The combined changes of the requests that a folder has not seen; each adds its own, in order (`Request.replay`).

    Erased rows are erased again. A corrected row is erased as well: the corrected values are gone, and the wrong ones
    must not come back. Added rows are missing, and their slots are never used again. All rows in the copy
    that belong to people who were erased or corrected are removed, including those that the requests could not name
    because another copy had lost them.
    """

    rows: RowFile  # of the old copy
    erase: Bits = field(init=False)  # which of their slots are erased
    people: set[bytes] = field(default_factory=set)  # keyed hashes of the ids that were erased or corrected
    bury: dict[bytes, int] = field(default_factory=dict)  # hash of an id -> the request that certifies its erasure
    drop: set[bytes] = field(default_factory=set)  # ids whose rows are removed and that may be added again
    free: set[bytes] = field(default_factory=set)  # readmitted
    bounds: dict[str, tuple[str, str]] = field(default_factory=dict)  # column -> low and high, as text
    drawn: int = 0
    missing: int = 0
    replanned: bool = False  # whether the settings were chosen again

    def __post_init__(self) -> None:
        self.erase = Bits.zeros(len(self.rows.live))

    def add_erased(self, numbers: RowNumbers) -> int:
        """Add erased rows; return how many of them the copy never had, because they were added and erased since."""
        erased, dealt = unique(numbers), self.rows.layout.dealt
        present = dealt.slots(erased[erased < dealt.drawn])
        present = present[self.rows.live[present]]
        self.erase[present] = True
        return len(erased) - len(present)

    def add_buried(self, hashes: Hashes, requests: Iterable[int]) -> None:
        """Add erased people, with the requests that erased them."""
        people = hashes_to_bytes(hashes)
        self.bury.update(zip(people, requests, strict=True))
        self.drop.difference_update(people)

    def add_dropped(self, hashes: Hashes) -> None:
        """Add people whose rows are removed and who may be added again."""
        self.drop.update(person for person in hashes_to_bytes(hashes) if person not in self.bury)

    def add_readmitted(self, hashes: Hashes) -> None:
        """Add people who were readmitted."""
        for person in hashes_to_bytes(hashes):
            self.bury.pop(person, None)
            self.drop.add(person)
            self.free.add(person)


@dataclass(frozen=True, eq=False)
class Restore(Request):
    """The changes that an old copy of the folder has missed, carried out at once."""

    since: int  # the newest request that the copy includes
    erase: NumberList  # row numbers
    bury: HashList  # keyed hashes of the ids that were erased
    by: NumberList  # the requests that erased them
    drop: HashList  # ids whose rows are removed and that may be added again
    free: HashList  # readmitted
    drawn: int  # row numbers used so far
    missing: int  # rows that were added since and are lost
    outside: int  # rows that are erased because they are outside bounds that were declared since
    open: int  # people among the erased and corrected ones who had a part in choosing the settings
    replanned: int  # 1 if the settings were chosen again, because the copy had missed a replan
    planned: str  # the score of that plan, as text

    kind: ClassVar[str] = "restore"
    same_length_fields: ClassVar[tuple[str, ...]] = ("bury", "by")

    @classmethod
    def plan(cls, context: RequestContext, missed: MissedChanges) -> RequestPlan:
        """Plan to catch up with the missed changes."""
        snapshot = context.snapshot
        missed.erase[snapshot.people.find(hashes_from_bytes(missed.people)).live.slot] = True
        schema, blueprint = change_bounds(snapshot.schema, snapshot.state.blueprint, missed.bounds)
        outside = _drop_outside(snapshot, blueprint, missed) if missed.bounds else 0
        state = _reserve_row_numbers(snapshot, max(missed.drawn, snapshot.state.drawn))
        slots = np.flatnonzero(missed.erase)
        snapshot.rows.check_live(slots)
        numbers = snapshot.rows.layout.dealt.rows(slots)
        request = cls(
            rows=len(slots),
            people=len(missed.bury),
            since=snapshot.manifest.request,
            erase=numbers,
            bury=hashes_from_bytes(missed.bury),
            by=np.array(list(missed.bury.values()), dtype=np.int64),
            drop=hashes_from_bytes(sorted(missed.drop)),
            free=hashes_from_bytes(sorted(missed.free)),
            drawn=state.drawn,
            missing=missed.missing,
            outside=outside,
            open=0 if missed.replanned else _count_open(snapshot, slots),
            replanned=int(missed.replanned),
            planned="",
        )
        tombstones = _find_missing_tombstones(snapshot, missed, slots)
        owners, erased = request._count_people(snapshot, slots, tombstones)
        people = None if tombstones is None else _write_tombstones(context, tombstones)
        if missed.replanned:
            return request._plan_again(context, state, (schema, blueprint), owners, erased, people)
        definition = None
        change = Change(slots)
        if missed.bounds:
            definition = ModelDefinition.write(context, schema, blueprint)
            after = ModelState.learn(blueprint, get_row_file(state), state.drawn, change)
            learners = blueprint.code.learners
        else:
            outcome = snapshot.with_moments(state, blueprint.code.learners_of(slots)).prepare(change)
            after, learners = outcome.state, outcome.learners
        return RequestPlan(
            request, after, owners, erased, learners, people=people, erased_slots=slots, definition=definition
        )

    def _plan_again(
        self,
        context: RequestContext,
        state: ModelState,
        declared: tuple[Schema, Blueprint],
        owners: int,
        erased: int,
        people: tuple[PeopleSegment, ...] | None,
    ) -> RequestPlan:
        """Plan the restore of a copy that has missed a replan: choose the settings again from the rows that remain."""
        snapshot, (schema, bounded) = context.snapshot, declared
        planning, before = snapshot.manifest.planning, get_row_file(state)
        if planning is None:
            raise InvalidFile("the ledger was changed: it has a replan of a vault whose settings no plan chose")
        choice = choose_settings(before, schema, planning, ignore_progress, erased=self.erase)
        blueprint = draw_next_blueprint(choice.settings, schema, bounded)
        definition = ModelDefinition.write(context, schema, blueprint)
        rows = deal_again(context, before, blueprint)
        slots = rows.layout.dealt.slots(self.erase)
        learned = learn_rows(context, blueprint, rows, ignore_progress, change=Change(slots))
        segments = write_people_again(context, snapshot, rows, first=0 if people is None else 1)
        return RequestPlan(
            replace(self, planned=choice.score),
            learned,
            owners,
            erased,
            blueprint.code.learners,
            people=segments if people is None else (*segments, people[-1]),
            erased_slots=slots,
            definition=definition,
            fresh=True,
            planning=replace(choice.planning, schema=definition.files[0].sum),
        )

    @property
    def open_count(self) -> int:
        return self.open

    def _count_people(
        self, snapshot: Snapshot, erased: Slots, tombstones: tuple[Hashes, Slots] | None
    ) -> tuple[int, int]:
        """Return how many ids will have rows, and how many will be erased."""
        hashes, slots = snapshot.people.read_entries()
        if tombstones is not None:
            hashes, slots = np.concatenate([hashes, tombstones[0]]), np.concatenate([slots, tombstones[1]])
        is_erased = isin(slots, erased)
        freed = ids_among(hashes, self.free) & (slots >= encode_tombstone(self.since))
        buried = (slots < NOBODY) & ~freed | ids_among(hashes, self.bury)
        return count_distinct_ids(hashes[(slots >= 0) & ~is_erased]), count_distinct_ids(hashes[buried])

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        erased = snapshot.rows.layout.dealt.slots(self.erase)
        if len(self.erase):
            snapshot.rows.erase(self.erase)
        if len(self.bury):
            snapshot.people.bury(self.bury, self.by, erased)
            # The copy may have tombstones of an earlier request, which was never certified.
            snapshot.people.drop_tombstones(self.bury, until=self.since, spared=self.by)
        if len(self.drop):
            snapshot.people.drop_entries(self.drop, erased)
        if len(self.free):
            # A person who was readmitted and erased again stays erased.
            erased_again = dict(zip(hashes_to_bytes(self.bury), self.by.tolist(), strict=True))
            spared = [erased_again.get(person, NOBODY) for person in hashes_to_bytes(self.free)]
            snapshot.people.drop_tombstones(self.free, until=self.since, spared=np.array(spared, dtype=np.int64))

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.add_erased(self.erase)
        missed.replanned |= bool(self.replanned)
        if done:  # these rows were reported as missing by that request
            missed.missing = max(0, missed.missing - self.missing)
        missed.drawn = self.drawn
        missed.add_readmitted(self.free)  # first: a person in both lists was readmitted and erased again
        missed.add_buried(self.bury, self.by.tolist())
        missed.add_dropped(self.drop)

    def note(self) -> str:
        text = (
            f"this folder is a copy from request {self.since}. {self.rows - self.outside} rows that were erased or "
            "corrected since are now erased; add the corrected ones again. "
            f"{self.missing} rows added since are missing; add them again"
        )
        if self.outside:
            text += f". {self.outside} rows are outside bounds that were declared since, so they are erased"
        if self.replanned:
            text += ". The copy had also missed a replan, so the settings were chosen again from the rows that remain"
        return text


def _reserve_row_numbers(snapshot: Snapshot, drawn: int) -> ModelState:
    """Return the state with the numbers of rows added since marked as used, so that they are never used again."""
    rows, missing = snapshot.rows, drawn - snapshot.state.drawn
    if not missing:
        return snapshot.state
    *others, last = rows.layout.segments
    last = RowSegment(last.name, last.count + missing)
    size = rows.layout.entry_bytes
    files.lengthen(rows.layout.folder / last.name, (last.count - missing) * size, last.count * size)
    rows = rows.with_batch(rows.layout.dealt.with_batch(missing), (*others, last))
    return replace(snapshot.state, ensemble=replace(snapshot.state.ensemble, store=rows), drawn=drawn)


def _count_open(snapshot: Snapshot, slots: Slots) -> int:
    """Return how many people with rows in these slots had a part in choosing the settings."""
    waiting = slots[find_open(snapshot, slots, erased=True)]
    return count_distinct_ids(snapshot.people.find_owners(waiting)) if len(waiting) else 0


def _write_tombstones(context: RequestContext, tombstones: tuple[Hashes, Slots]) -> tuple[PeopleSegment, ...]:
    """Write a segment of tombstones."""
    name = f"people.{context.number}.0"
    files.create(context.folder.dir / name, *segment_bytes(*tombstones, context.identity.seal))
    return (*context.snapshot.manifest.people, PeopleSegment(name, len(tombstones[1])))


def _drop_outside(snapshot: Snapshot, blueprint: Blueprint, missed: MissedChanges) -> int:
    """Mark the rows outside these bounds as erased, and return how many there are.

    When the bounds were declared no row was outside: another copy had lost these. Learning them would break the bound
    that the exact integers rely on.
    """
    outside, live = [np.empty(0, dtype=np.int64)], snapshot.rows.live.copy()
    live[np.flatnonzero(missed.erase)] = False
    for piece in cut(len(live), snapshot.rows.width):
        slots = piece.start + np.flatnonzero(live[piece])
        X, y = snapshot.rows.take(slots)
        outside.append(slots[_find_outside(blueprint.inputs, X) | _find_outside(blueprint.targets, y)])
    erased = np.concatenate(outside)
    missed.erase[erased] = True
    missed.add_dropped(snapshot.people.find_owners(erased))
    return len(erased)


def _find_outside(bounds: Bounds, values: Floats) -> NDArray[np.bool_]:
    """Return which rows have a value outside declared bounds."""
    outside: NDArray[np.bool_] = np.any((values < bounds.low) | (values > bounds.high), axis=1)
    return outside


def _find_missing_tombstones(snapshot: Snapshot, missed: MissedChanges, erased: Slots) -> tuple[Hashes, Slots] | None:
    """Return tombstones for the erased people who have no row in the copy to overwrite."""
    bury = hashes_from_bytes(missed.bury)
    entries, without_row = snapshot.people.find(bury), np.ones(len(missed.bury), dtype=np.bool_)
    without_row[entries.owner[isin(entries.slot, erased)]] = False
    if not without_row.any():
        return None
    return bury[without_row], encode_tombstone(np.array(list(missed.bury.values()), dtype=np.int64)[without_row])
