"""Training and adding: from a table to a plan of what the vault will be."""

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint
from ...learning.state import State, room
from ...regressor import CodedRegressor
from ...saving.archive import dump
from ...saving.format import blueprint_parts
from ...saving.parameters import draw_blueprint
from ...stores.shards import Change
from ...stores.slots import IdIndex
from ..disk import files
from ..disk.people import NOBODY, People, distinct
from ..disk.rowfile import StoredRows
from ..tables.blocks import Block
from ..tables.intake import Intake, Progress
from ..tables.schema import Schema
from ..writer import Writer
from .plans import Plan, Training


def blueprint_of(model: CodedRegressor, schema: Schema) -> Blueprint:
    """What a model is before it has seen a row, with the bounds that a schema declares."""
    if not (isinstance(model.learner, str) and model.learner == "ridge") or model.keep != "rows":
        raise InvalidSetting("a vault holds models with learner='ridge' and keep='rows' only")
    bounds: dict[str, Any] = {"bounds": schema.bounds(), "target_bounds": schema.target_bounds()}
    for name, (low, _) in bounds.items():
        given = getattr(model, name)
        if given is not None and not np.isnan(low).all():
            raise InvalidSetting(f"the schema declares bounds, and so does {name}: leave one of them out")
        if given is not None:
            bounds[name] = given
    fresh = clone(model).set_params(**bounds)
    return draw_blueprint(fresh, len(schema.inputs), len(schema.targets))


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
    ensemble, extents = blueprint.build(rows)
    del rows.seen
    nobody = IdIndex(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    state = State(blueprint, ensemble, extents, nobody, n, n, default_ids=False, flat=len(schema.targets) == 1)
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
        ensemble, extents = state.blueprint.build(store)
        state = replace(state, ensemble=ensemble, extents=extents, rows=int(np.count_nonzero(store.live)))
        touched[:] = True
    hashes, slots = intake.entries()
    body = {"rows": len(slots), "people": distinct(hashes), "drawn": intake.drawn}
    return Plan("add", body, state, brings=(hashes, slots)), int(touched.sum())
