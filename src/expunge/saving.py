"""Saving: a fitted state to an archive and back.

What is saved is what was drawn, what is kept of the rows, and the moments; the weights are solved again, so a file that
moves to another machine keeps its digest. A file is input from outside: all that a state relies on is checked here.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .archive import Archive, write
from .blueprint import Blueprint, Extents
from .bounds import Bounds, Extent
from .codes import Code
from .ensemble import Ensemble, EstimatorRule, RidgeRule, Rule, describe_features
from .errors import InvalidSetting
from .features import FeatureMap, Identity, Powers, RandomFourier
from .learners import check_learner
from .moments import CODED_BITS, INT_ROWS, Moments
from .shards import PRINT_BYTES, Coded, Encoder, Rows, Store
from .slots import IdIndex, draw_slots
from .state import State, room

_MAPS: dict[str, type[FeatureMap]] = {kind.__name__: kind for kind in (Identity, Powers, RandomFourier)}


def save_state(path: str | os.PathLike[str], state: State, extra: Mapping[str, Any]) -> None:
    """Write a state; ``extra`` goes into the header as it is."""
    blueprint, ensemble = state.blueprint, state.ensemble
    features = blueprint.features
    if type(features) not in _MAPS.values():
        raise InvalidSetting(f"a model with features of type {type(features).__name__} cannot be saved")
    ids, slots = state.index.entries()
    arrays: dict[str, NDArray[Any]] = {"key": blueprint.key, "G": blueprint.code.G, "ids": ids, "slots": slots}
    arrays |= {f"features.{name}": array for name, array in features.arrays().items()}
    for side, bounds in (("inputs", ensemble.encoder.inputs), ("targets", ensemble.encoder.targets)):
        arrays |= {f"{side}.low": bounds.low, f"{side}.high": bounds.high}
    arrays |= _store_arrays(ensemble.store)
    rule = blueprint.rule
    if isinstance(rule, RidgeRule):
        arrays["moments"] = np.stack([moments.limbs for moments in ensemble.states])  # (r, 3, P)
    header = {
        "features": describe_features(features),
        "inputs": ensemble.encoder.inputs.kind,
        "targets": ensemble.encoder.targets.kind,
        "intercept": blueprint.intercept,
        "clip": blueprint.clip,
        "keep": blueprint.keep,
        "aggregate": blueprint.aggregate,
        "ridge": isinstance(rule, RidgeRule),
        "alpha": rule.alpha if isinstance(rule, RidgeRule) else 0.0,
        "rule": rule.describe(),
        "drawn": state.drawn,
        "id_kind": "<i8" if ids.dtype.kind == "i" else "<U",
        "default_ids": state.default_ids,
        "flat": state.flat,
    }
    write(path, header | dict(extra), {name: _portable(array) for name, array in arrays.items()})


def load_state(archive: Archive, learner: Any = None) -> State:
    """Read a state; ``learner`` is the estimator of a model that was saved with one."""
    _check_learner_given(archive, learner)
    try:
        return _load(archive, learner)
    except InvalidSetting as error:  # from Code, a feature map or a blueprint: the file asks for what cannot be
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


def _load(archive: Archive, learner: Any) -> State:
    code = Code(archive.array("G", "<i8", None, None))
    key = archive.array("key", "<u8", 2).astype(np.uint64)
    inputs, targets = _bounds(archive, "inputs"), _bounds(archive, "targets")
    blueprint = Blueprint(
        key=key,
        code=code,
        features=_features(archive, len(inputs.low)),
        inputs=None if inputs.kind == "observed" else inputs,
        targets=None if targets.kind == "observed" else targets,
        intercept=archive.get("intercept", bool),
        clip=archive.get("clip", bool),
        keep=archive.choice("keep", ("rows", "coded")),
        rule=_rule(archive, learner, code, key),
        aggregate=archive.choice("aggregate", ("mean", "median")),
    )
    drawn = archive.get("drawn", int)
    encoder = Encoder(code, blueprint.features, inputs, targets, blueprint.intercept)
    store = _store(archive, blueprint, encoder, room(drawn, code.shards))
    if store.live[draw_slots(key, drawn, len(store.live) - drawn, code.shards)].any():
        raise archive.refuse("there are rows in slots that were never given out")
    extents = Extents(None, None)
    if isinstance(store, Rows):
        extents = blueprint.measured(store)
        _check_observed(archive, (inputs, extents.inputs), (targets, extents.targets))
    index = _index(archive, store)
    rows = int(np.count_nonzero(store.live))
    ensemble = _ensemble(archive, encoder, store, blueprint)
    return State(
        blueprint, ensemble, extents, index, drawn, rows, archive.get("default_ids", bool), archive.get("flat", bool)
    )


def _bounds(archive: Archive, side: str) -> Bounds:
    low = archive.array(f"{side}.low", "<f8", None)
    high = archive.array(f"{side}.high", "<f8", len(low))
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.isfinite(high - low).all() and (low <= high).all() and len(low)
    if not sound:
        raise archive.refuse(f"the bounds of the {side} are not finite or reversed")
    return Bounds(low, high, archive.choice(side, ("declared", "observed", "unit")))


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


def _store(archive: Archive, blueprint: Blueprint, encoder: Encoder, slots: int) -> Store:
    live = archive.array("live", "|b1", slots)
    if blueprint.keep == "rows":
        X, y = (
            archive.array("X", "<f8", slots, len(encoder.inputs.low)),
            archive.array("y", "<f8", slots, encoder.n_targets),
        )
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise archive.refuse("rows are not finite")
        if X[~live].any() or y[~live].any():
            raise archive.refuse("there are values where there is no row")
        for values, bounds in ((X, encoder.inputs), (y, encoder.targets)):
            if live.any() and ((values[live] < bounds.low) | (values[live] > bounds.high)).any():
                raise archive.refuse("rows are outside the bounds")
        return Rows(X, y, live)
    stripes = slots // blueprint.code.shards
    q = archive.array("q", "<i8", blueprint.code.learners, stripes, encoder.width)
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


def _check_observed(archive: Archive, *sides: tuple[Bounds, Extent | None]) -> None:
    for bounds, extent in sides:
        if extent is not None and not (
            np.array_equal(bounds.low, extent.bounds.low) and np.array_equal(bounds.high, extent.bounds.high)
        ):
            raise archive.refuse("the observed bounds are not those of the rows")


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


def _portable(array: NDArray[Any]) -> NDArray[Any]:
    """In C order and little-endian, as every machine will read it."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
