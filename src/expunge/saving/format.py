"""Saving: a fitted state, or only its blueprint, to an archive and back.

What is saved is what was drawn, what is kept of the rows, and the moments; the weights are solved again, so a file that
moves to another machine keeps its digest. A file is input from outside: all that a state relies on is checked here.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..encoding.bounds import Bounds, parse_bounds
from ..encoding.codes import Code
from ..encoding.features import FeatureMap, Identity, Powers, RandomFourier
from ..errors import InvalidInput, InvalidSetting
from ..exact.moments import CODED_BITS, INT_ROWS, Moments
from ..learning.blueprint import Blueprint, Extents
from ..learning.ensemble import Ensemble, EstimatorRule, RidgeRule, Rule, describe_features
from ..learning.learners import check_learner
from ..learning.state import State, room
from ..stores.shards import PRINT_BYTES, Coded, Encoder, Rows, Store
from ..stores.slots import IdIndex, draw_slots
from .archive import Archive, write

_MAPS: dict[str, type[FeatureMap]] = {kind.__name__: kind for kind in (Identity, Powers, RandomFourier)}


def save_state(path: str | os.PathLike[str], state: State, extra: Mapping[str, Any]) -> None:
    """Write a state; ``extra`` goes into the header as it is."""
    header, arrays = blueprint_parts(state.blueprint)
    ids, slots = state.index.entries()
    arrays |= {"ids": ids, "slots": slots} | _store_arrays(state.ensemble.store)
    for side, bounds in _sides(state.ensemble.encoder):
        arrays[f"{side}.in_force"] = np.stack([bounds.low, bounds.high])  # (2, d)
    if isinstance(state.blueprint.rule, RidgeRule):
        arrays["moments"] = np.stack([moments.integers for moments in state.ensemble.states])  # (r, 3, P)
    header |= {
        "drawn": state.drawn,
        "id_kind": "<i8" if ids.dtype.kind == "i" else "<U",
        "default_ids": state.default_ids,
        "flat": state.flat,
    }
    write(path, header | dict(extra), arrays)


def load_state(archive: Archive, learner: Any = None) -> State:
    """Read a state; ``learner`` is the estimator of a model that was saved with one."""
    blueprint = load_blueprint(archive, learner)
    try:
        return _state(archive, blueprint)
    except (InvalidInput, InvalidSetting) as error:  # from the rows: no model of this blueprint would have taken them
        raise archive.refuse(str(error)) from error


def blueprint_parts(blueprint: Blueprint) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A header and arrays from which `load_blueprint` makes it again."""
    features, rule = blueprint.features, blueprint.rule
    if type(features) not in _MAPS.values():
        raise InvalidSetting(f"a model with features of type {type(features).__name__} cannot be saved")
    header = {
        "features": describe_features(features),
        "intercept": blueprint.intercept,
        "clip": blueprint.clip,
        "keep": blueprint.keep,
        "aggregate": blueprint.aggregate,
        "ridge": isinstance(rule, RidgeRule),
        "alpha": rule.alpha if isinstance(rule, RidgeRule) else 0.0,
        "rule": rule.describe(),
    }
    arrays: dict[str, NDArray[Any]] = {"key": blueprint.key, "G": blueprint.code.G}
    arrays |= {f"features.{name}": array for name, array in features.arrays().items()}
    for side, bounds in _sides(blueprint):
        header[f"{side}.unit"] = bounds.unit
        arrays[f"{side}.declared"] = np.stack([bounds.low, bounds.high])  # (2, d), NaN where observed
    return header, arrays


def load_blueprint(archive: Archive, learner: Any = None) -> Blueprint:
    """Read a blueprint; ``learner`` is the estimator of a model that was saved with one."""
    _check_learner_given(archive, learner)
    try:
        return _blueprint(archive, learner)
    except InvalidSetting as error:  # from a code, bounds, a feature map or the whole: the file asks for what cannot be
        raise archive.refuse(str(error)) from error


def _check_learner_given(archive: Archive, learner: Any) -> None:
    """The caller has to bring the estimator that a model was saved with, and no other."""
    if archive.get("ridge", bool):
        if learner is not None:
            raise InvalidSetting("the model was saved with learner='ridge': load it without a learner")
        return
    if learner is None:
        raise InvalidSetting(
            "the model was saved with an estimator as learner, and code never comes from a file: "
            "pass the same estimator, load(path, learner=...)"
        )
    check_learner(learner, Code.single())
    if EstimatorRule(learner, np.zeros(2, dtype=np.uint64)).describe() != archive.get("rule", dict):
        raise InvalidSetting(
            f"the model was saved with another learner than {learner!r}: pass it with the same parameters"
        )


def _state(archive: Archive, blueprint: Blueprint) -> State:
    drawn, shards = archive.get("drawn", int), blueprint.code.shards
    store = _store(archive, blueprint, room(drawn, shards))
    if store.live[draw_slots(blueprint.key, drawn, len(store.live) - drawn, shards)].any():
        raise archive.refuse("there are rows in slots that were never given out")
    extents = _extents(archive, blueprint, store)
    index = _index(archive, store)
    rows = int(np.count_nonzero(store.live))
    ensemble = _ensemble(archive, blueprint.encoder(extents), store, blueprint)
    return State(
        blueprint, ensemble, extents, index, drawn, rows, archive.get("default_ids", bool), archive.get("flat", bool)
    )


def _blueprint(archive: Archive, learner: Any) -> Blueprint:
    code = Code(archive.array("G", "<i8", None, None))
    key = archive.array("key", "<u8", 2).astype(np.uint64)
    inputs = _declared(archive, "inputs")
    return Blueprint(
        key=key,
        code=code,
        features=_features(archive, len(inputs.low)),
        inputs=inputs,
        targets=_declared(archive, "targets"),
        intercept=archive.get("intercept", bool),
        clip=archive.get("clip", bool),
        keep=archive.choice("keep", ("rows", "coded")),
        rule=_rule(archive, learner, code, key),
        aggregate=archive.choice("aggregate", ("mean", "median")),
    )


def _declared(archive: Archive, side: str) -> Bounds:
    pair = archive.array(f"{side}.declared", "<f8", 2, None)
    if not pair.size:
        raise archive.refuse(f"there are no {side}")
    spec = "unit" if archive.get(f"{side}.unit", bool) else pair
    return parse_bounds(spec, pair.shape[1], name=f"the bounds of the {side}")


def _features(archive: Archive, inputs: int) -> FeatureMap:
    described = archive.get("features", dict)
    kind, params = _MAPS.get(described.get("name", "")), described.get("params")
    if kind is None or not isinstance(params, dict) or not set(params) <= set(kind._get_param_names()):
        raise archive.refuse("unknown features")
    features = kind(**params)
    names = {Identity: (), Powers: (), RandomFourier: ("projection", "phases", "exponents")}[kind]
    shapes = {"projection": (inputs, None), "phases": (None,), "exponents": (None,)}
    return features.restore(inputs, {name: archive.array(f"features.{name}", "<i8", *shapes[name]) for name in names})


def _rule(archive: Archive, learner: Any, code: Code, key: NDArray[np.uint64]) -> Rule:
    if archive.get("ridge", bool):
        alpha = archive.get("alpha", float)
        if not 0 <= alpha < np.inf:
            raise archive.refuse("alpha is negative or not finite")
        return RidgeRule(alpha)
    check_learner(learner, code)
    return EstimatorRule(clone(learner), key)


def _store(archive: Archive, blueprint: Blueprint, slots: int) -> Store:
    live = archive.array("live", "|b1", slots)
    if blueprint.keep == "rows":
        X = archive.array("X", "<f8", slots, len(blueprint.inputs.low))
        y = archive.array("y", "<f8", slots, len(blueprint.targets.low))
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise archive.refuse("rows are not finite")
        if X[~live].any() or y[~live].any():
            raise archive.refuse("there are values where there is no row")
        for values, bounds in ((X, blueprint.inputs), (y, blueprint.targets)):
            if live.any() and ((values[live] < bounds.low) | (values[live] > bounds.high)).any():
                raise archive.refuse("rows are outside the bounds")
        return Rows(X, y, live)
    stripes, width = slots // blueprint.code.shards, blueprint.encoder(blueprint.measured()).width
    q = archive.array("q", "<i8", blueprint.code.learners, stripes, width)
    if ((q > 2**CODED_BITS) | (q < -(2**CODED_BITS))).any():
        raise archive.refuse("coded rows exceed the exact range")
    prints = archive.array("prints", "|u1", slots, PRINT_BYTES)
    if prints[~live].any():
        raise archive.refuse("there are fingerprints where there is no row")
    return Coded(q, prints, live, blueprint.print_key)


def _store_arrays(store: Store) -> dict[str, NDArray[Any]]:
    if isinstance(store, Rows):
        return {"X": store.X, "y": store.y, "live": store.live}
    assert isinstance(store, Coded)
    return {"q": store.q, "prints": store.prints, "live": store.live}


def _extents(archive: Archive, blueprint: Blueprint, store: Store) -> Extents:
    extents = blueprint.measured(store)
    for side, bounds in _sides(blueprint.encoder(extents)):
        in_force = archive.array(f"{side}.in_force", "<f8", 2, len(bounds.low))
        if not np.array_equal(in_force, [bounds.low, bounds.high]):
            raise archive.refuse(f"the bounds of the {side} are not those declared or those of the rows")
    return extents


def _sides(bounded: Blueprint | Encoder) -> list[tuple[str, Bounds]]:
    return [("inputs", bounded.inputs), ("targets", bounded.targets)]


def _index(archive: Archive, store: Store) -> IdIndex:
    slots = archive.array("slots", "<i8", None)
    kind = archive.choice("id_kind", ("<i8", "<U"))
    ids = archive.array("ids", kind, len(slots))
    if not np.array_equal(np.sort(slots), np.flatnonzero(store.live)):
        raise archive.refuse("ids and rows do not match")
    return IdIndex(ids, slots)


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
