"""The format: a state, whose rows are in it and what was asked of it, to the parts of an archive and back.

What is saved is what was drawn, what is kept of the rows, and the moments; the weights are solved again, so a file that
moves to another machine keeps its digest. A file is input from outside: all that a state relies on is checked here.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..encoding.extents import Extents
from ..encoding.placement import free_slots, room
from ..errors import InvalidInput, InvalidSetting
from ..exact.limbs import CODED_BITS, INT_ROWS
from ..exact.moments import Moments
from ..learning.blueprint import Blueprint
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule
from ..learning.state import State
from ..stores.coded import PRINT_BYTES, Coded
from ..stores.ids import IdIndex
from ..stores.rows import Rows
from ..stores.store import Store
from .archive import Archive
from .blueprints import blueprint_parts, sides

Parts: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # a header and arrays


def state_parts(state: State) -> Parts:
    """A header and arrays from which `load_state` makes the state again."""
    header, arrays = blueprint_parts(state.blueprint, own_features=True)
    arrays |= state.ensemble.store.arrays()
    for side, bounds in sides(state.ensemble.encoder):
        arrays[f"{side}.in_force"] = np.stack([bounds.low, bounds.high])  # (2, d)
    if isinstance(state.blueprint.rule, RidgeRule):
        arrays["moments"] = np.stack([moments.integers for moments in state.ensemble.states])  # (r, 3, P)
    return header | {"drawn": state.drawn}, arrays


def load_state(archive: Archive, blueprint: Blueprint) -> State:
    """Read the state of a model whose blueprint `load_blueprint` has read."""
    try:
        drawn, shards = archive.get("drawn", int), blueprint.code.shards
        store = _store(archive, blueprint, room(drawn, shards))
        if store.live[free_slots(blueprint.key, drawn, shards)].any():
            raise archive.refuse("there are rows in slots that were never given out")
        extents = _extents(archive, blueprint, store)
        ensemble = _ensemble(archive, blueprint.encoder(extents), store, blueprint)
        return State(blueprint, ensemble, extents, drawn, int(np.count_nonzero(store.live)))
    except (InvalidInput, InvalidSetting) as error:  # from the rows: no model of this blueprint would have taken them
        raise archive.refuse(str(error)) from error


def index_parts(index: IdIndex) -> Parts:
    """A header and arrays from which `load_index` makes the index again."""
    ids, slots = index.entries()
    return {"id_kind": "<i8" if ids.dtype.kind == "i" else "<U"}, {"ids": ids, "slots": slots}


def load_index(archive: Archive, live: NDArray[np.bool_]) -> IdIndex:
    """Read whose rows are where; ``live`` says which slots have a row."""
    slots = archive.array("slots", "<i8", None)
    ids = archive.array("ids", archive.choice("id_kind", ("<i8", "<U")), len(slots))
    if not np.array_equal(np.sort(slots), np.flatnonzero(live)):
        raise archive.refuse("ids and rows do not match")
    return IdIndex(ids, slots)


def _store(archive: Archive, blueprint: Blueprint, slots: int) -> Store:
    live = archive.array("live", "|b1", slots)
    if blueprint.keep == "rows":
        return _rows(archive, blueprint, live)
    stripes, width = slots // blueprint.code.shards, blueprint.encoder(blueprint.measured()).width
    q = archive.array("q", "<i8", blueprint.code.learners, stripes, width)
    if ((q > 2**CODED_BITS) | (q < -(2**CODED_BITS))).any():
        raise archive.refuse("coded rows exceed the exact range")
    prints = archive.array("prints", "|u1", slots, PRINT_BYTES)
    if prints[~live].any():
        raise archive.refuse("there are fingerprints where there is no row")
    return Coded(q, prints, live, blueprint.print_key)


def _rows(archive: Archive, blueprint: Blueprint, live: NDArray[np.bool_]) -> Rows:
    X = archive.array("X", "<f8", len(live), len(blueprint.inputs.low))
    y = archive.array("y", "<f8", len(live), len(blueprint.targets.low))
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise archive.refuse("rows are not finite")
    if X[~live].any() or y[~live].any():
        raise archive.refuse("there are values where there is no row")
    for values, bounds in ((X, blueprint.inputs), (y, blueprint.targets)):
        if live.any() and ((values[live] < bounds.low) | (values[live] > bounds.high)).any():
            raise archive.refuse("rows are outside the bounds")
    return Rows(X, y, live)


def _extents(archive: Archive, blueprint: Blueprint, store: Store) -> Extents:
    extents = blueprint.measured(store)
    for side, bounds in sides(blueprint.encoder(extents)):
        in_force = archive.array(f"{side}.in_force", "<f8", 2, len(bounds.low))
        if not np.array_equal(in_force, [bounds.low, bounds.high]):
            raise archive.refuse(f"the bounds of the {side} are not those declared or those of the rows")
    return extents


def _ensemble(archive: Archive, encoder: Encoder, store: Store, blueprint: Blueprint) -> Ensemble:
    rule, aggregate, code = blueprint.rule, blueprint.aggregate, encoder.code
    if not isinstance(rule, RidgeRule):
        return Ensemble.learn(encoder, store, rule, aggregate)
    w = encoder.width
    limbs = archive.array("moments", "<i8", code.learners, 3, w * (w + 1) // 2)
    members = store.live.reshape(-1, code.shards)
    states = []
    for j in range(code.learners):
        feeding = members[:, code.lanes_of(j)]
        coded_rows = int(np.count_nonzero(feeding.any(axis=1)))
        most = 2**CODED_BITS * min(coded_rows, INT_ROWS)
        if ((limbs[j] > most) | (limbs[j] < -most)).any():
            raise archive.refuse("moments exceed the exact range")
        states.append(Moments(limbs[j].copy(), int(np.count_nonzero(feeding)), coded_rows))
    return Ensemble.of(encoder, store, rule, aggregate, states)
