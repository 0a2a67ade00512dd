"""Training and adding: from a table to a plan of what the vault will be."""

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ...encoding.placement import room
from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint, draw_blueprint
from ...learning.settings import Settings
from ...learning.state import State
from ...saving.archive import dump
from ...saving.blueprints import blueprint_parts
from ...stores.change import Change
from ..disk import files
from ..disk.people import NOBODY, People, distinct
from ..disk.rowfile import StoredRows
from ..tables.intake import Intake, Progress
from ..tables.reading import Block
from ..tables.schema import Schema
from ..writer import Writer
from .plans import Plan, Training


def blueprint_of(model: object, schema: Schema) -> Blueprint:
    """What a model is before it has seen a row, with the bounds that a schema declares."""
    settings = Settings.of(model)
    if not isinstance(settings.learner, str) or settings.keep != "rows":
        raise InvalidSetting("a vault holds models with learner='ridge' and keep='rows' only")
    bounds: dict[str, Any] = {"bounds": schema.bounds(), "target_bounds": schema.target_bounds()}
    for name, (low, _) in bounds.items():
        given = getattr(settings, name)
        if given is not None and not np.isnan(low).all():
            raise InvalidSetting(f"the schema declares bounds, and so does {name}: leave one of them out")
        if given is not None:
            bounds[name] = given
    return draw_blueprint(replace(settings, **bounds), len(schema.inputs), len(schema.targets))


def train(
    writer: Writer,
    blocks: Iterable[Block],
    schema: Schema,
    blueprint: Blueprint,
    *,
    skip_erased: bool,
    progress: Progress,
) -> Plan:
    """Stream a table into the folder and learn it, from scratch."""
    number, path, s = writer.next, writer.folder.path / f"rows.{writer.next}", blueprint.code.shards
    described = io.BytesIO()
    dump(described, *blueprint_parts(blueprint))
    written = (
        writer.folder.write(f"schema.{number}", schema.to_json().encode()),
        writer.folder.write(f"blueprint.{number}", described.getvalue()),
    )
    before = writer.people if writer.trained else People([])
    intake = Intake(writer.identity, schema, blueprint, 0)
    for slots, _, _ in intake.take(path, blocks, before):
        progress("reading", len(slots), None)
    if not skip_erased:
        intake.refuse_erased()
    n = intake.drawn
    if n == 0:
        raise InvalidInput("there are no rows left to learn from: everybody in this table was erased")
    if n < s:
        raise InvalidInput(f"training needs as many rows as shards, got {n} rows, shards={s}; use fewer shards")
    slots_there = room(n, s)
    hashes, slots = intake.entries()
    live = np.zeros(slots_there, dtype=np.bool_)
    live[slots] = True
    files.create(writer.folder.path / f"live.{number}", bytes(-(-slots_there // 8)))
    files.resize(path, slots_there * 8 * (len(schema.inputs) + len(schema.targets) + 1))
    rows = StoredRows(path, live, len(schema.inputs), len(schema.targets), writer.identity.seal)
    rows.seen = lambda k: progress("learning", k, n * (1 + blueprint.observed))
    state = State.learn(blueprint, rows, n)
    del rows.seen
    old_hashes, old = before.merged(hashes[:0], slots[:0])
    brings = np.concatenate([old_hashes[old < NOBODY], hashes]), np.concatenate([old[old < NOBODY], slots])
    body = {"rows": n, "people": distinct(hashes), "drawn": n}
    return Plan("train", body, state, brings=brings, training=Training(schema, written))


def add(writer: Writer, blocks: Iterable[Block], *, skip_erased: bool, progress: Progress) -> tuple[Plan, int]:
    """Stream more rows into the folder and learn them; also the number of learners that learned."""
    state, schema, before = writer.state, writer.model.schema, writer.state.drawn
    intake, moved = Intake(writer.identity, schema, state.blueprint, before), False
    touched = np.zeros(state.blueprint.code.learners, dtype=np.bool_)
    # A leftover, should this be killed: there are rows to be wiped where no other file says so.
    files.create(writer.folder.path / f"adding.{writer.next}")
    files.sync_folder(writer.folder.path)
    for slots, X, y in intake.take(writer.rows.path, blocks, writer.people):
        state, change = writer.grown(state, intake.drawn), Change(slots, X, y)
        moved = moved or state.extents_after(change) is None
        if not moved:
            state = writer.touching(state, change).after(change).state
            touched |= state.blueprint.code.G[slots % state.blueprint.code.shards].any(axis=0)
        state.ensemble.store.live[slots] = True
        progress("adding", len(slots), None)
    if not skip_erased:
        intake.refuse_erased()
    if intake.drawn == before:
        raise InvalidInput("there are no rows to add")
    if moved:  # once, at the end: a bound may move with every block
        store = state.ensemble.store
        assert isinstance(store, StoredRows)
        state = State.learn(state.blueprint, store, state.drawn)
        touched[:] = True
    hashes, slots = intake.entries()
    body = {"rows": len(slots), "people": distinct(hashes), "drawn": intake.drawn}
    return Plan("add", body, state, brings=(hashes, slots)), int(touched.sum())
