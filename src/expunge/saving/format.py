"""The format of saved models: blueprints, states, ids and settings to the parts of an archive and back.

A file has what was drawn, what the model keeps of the rows, and the moments. The weights are solved again, so a file
that moves to another machine keeps its digest. A file is untrusted input: everything that a state relies on is checked
here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..encoding.bounds import Bounds, BoundsLike, Extents, parse_bounds
from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..encoding.features import FeatureMap, IdentityMap, PowersMap
from ..encoding.fourier import RandomFourierMap
from ..encoding.placement import free_slots, slots_needed
from ..encoding.randomness import Key
from ..encoding.scales import Scales
from ..encoding.values import plain_value
from ..errors import InvalidInput, InvalidSetting
from ..exact.limbs import CODED_BITS, INT_ROWS
from ..exact.moments import Moments
from ..learning.blueprint import Blueprint
from ..learning.class_rules import ClassMoments, ClassRule, OneHotRule
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule, Rule, RuleFactory
from ..learning.settings import AGGREGATES, Settings
from ..learning.state import ModelState
from ..stores.ids import IdIndex
from ..stores.store import FINGERPRINT_BYTES, CodedStore, Rows, Store
from .archive import Archive

Parts: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # a header and arrays

PLAIN_MAPS: Mapping[str, type[FeatureMap]] = {
    kind.map_name: kind for kind in (IdentityMap, PowersMap, RandomFourierMap)
}


def blueprint_parts(blueprint: Blueprint, *, custom_features: bool = False) -> Parts:
    """Return a header and arrays that `load_blueprint` reads.

    A user's own feature map is refused, unless ``custom_features`` says that the caller of `load_blueprint` passes it.
    """
    features, rule = blueprint.features, blueprint.rule
    if features.is_custom and not custom_features:
        raise InvalidSetting(
            f"features must be those of this package, got {features.map_name}: code never comes from a file"
        )
    drawn = {name: np.asarray(array, dtype=np.int64) for name, array in features.arrays().items()}
    header = {
        "features": features.describe() | {"own": features.is_custom, "drawn": {n: a.shape for n, a in drawn.items()}},
        "scales": blueprint.scales.spec(),
        "target_scales": blueprint.target_scales.spec(),
        "intercept": blueprint.intercept,
        "clip": blueprint.clip,
        "outside": blueprint.outside,
        "keep": blueprint.keep,
        "aggregate": blueprint.aggregate,
        "ridge": isinstance(rule, RidgeRule),
        "alpha": rule.alpha if isinstance(rule, RidgeRule) else 0.0,
        "class_power": rule.class_power if isinstance(rule, ClassRule) else None,
        "rule": rule.describe(),
    }
    arrays: dict[str, NDArray[Any]] = {"key": blueprint.key, "G": blueprint.code.G}
    arrays |= {f"features.{name}": array for name, array in drawn.items()}
    if not features.is_custom:  # the caller passes a custom map with its parameters
        arrays |= {f"parameters.{name}": array for name, array in features.array_params().items()}
    for side, bounds in bounds_by_side(blueprint):
        header[f"{side}.unit"] = bounds.unit
        arrays[f"{side}.declared"] = np.stack([bounds.low, bounds.high])  # (2, d), NaN where observed
    return header, arrays


def load_blueprint(
    archive: Archive,
    *,
    rule: RuleFactory | None = None,
    features: FeatureMap | None = None,
    maps: Mapping[str, type[FeatureMap]] = PLAIN_MAPS,
) -> Blueprint:
    """Read a blueprint. Code never comes from a file, so the caller passes estimators and custom feature maps.

    ``rule`` makes the rule of a model that was saved with an estimator as learner, ``features`` is the feature map of a
    model that was saved with a custom one, and ``maps`` are the classes of this package to use.
    """
    key = archive.array("key", "<u8", 2).astype(np.uint64)
    _check_custom_features(archive, features)
    try:
        code, aggregate = Code(archive.array("G", "<i8", None, None)), archive.choice("aggregate", AGGREGATES)
    except InvalidSetting as error:
        raise archive.inconsistency(str(error)) from error
    custom_rule = _load_custom_rule(archive, rule, code, key)
    try:
        loaded_rule = custom_rule or _load_ridge_rule(archive)
        loaded_rule.check(code, aggregate)
        inputs = _load_declared_bounds(archive, "inputs")
        scales = _load_scales(archive, "scales", partial(Scales.parse, inputs=len(inputs.low)))
        targets = _load_declared_bounds(archive, "targets")
        return Blueprint(
            key=key,
            code=code,
            features=_load_features(archive, scales.n_out, features, maps),
            scales=scales,
            inputs=inputs,
            targets=targets,
            target_scales=_load_scales(
                archive, "target_scales", partial(Scales.parse_targets, targets=len(targets.low))
            ),
            intercept=archive.get("intercept", bool),
            clip=archive.get("clip", bool),
            outside=archive.choice("outside", ("clamp", "extrapolate")),
            keep=archive.choice("keep", ("rows", "coded")),
            rule=loaded_rule,
            aggregate=aggregate,
        )
    except InvalidSetting as error:  # an invalid code, bounds, feature map or combination
        raise archive.inconsistency(str(error)) from error


def bounds_by_side(bounded: Blueprint | Encoder) -> list[tuple[str, Bounds]]:
    """Return the bounds of inputs and targets, with their names."""
    return [("inputs", bounded.inputs), ("targets", bounded.targets)]


def _load_custom_rule(archive: Archive, rule: RuleFactory | None, code: Code, key: Key) -> Rule | None:
    """Make the rule of the estimator that the model was saved with, and refuse any other; None for ridge."""
    if archive.get("ridge", bool):
        if rule is not None:
            raise InvalidSetting("the model was saved with learner='ridge': load it without a learner")
        return None
    if rule is None:
        raise InvalidSetting(
            "the model was saved with an estimator as learner, and code never comes from a file: "
            "pass the same estimator, load(path, learner=...)"
        )
    custom_rule = rule(code, key)
    if custom_rule.describe() != archive.get("rule", dict):
        raise InvalidSetting("the model was saved with another learner, or other parameters: pass the same one")
    return custom_rule


def _load_ridge_rule(archive: Archive) -> RidgeRule:
    alpha = archive.get("alpha", float)
    if not 0 <= alpha < np.inf:
        raise archive.inconsistency("alpha is negative or not finite")
    kind, class_power = archive.get("rule", dict).get("learner"), archive.header.get("class_power")
    if kind == "one-hot ridge":
        return OneHotRule(alpha)
    if kind == "class ridge" and isinstance(class_power, float) and 0 <= class_power <= 1:
        return ClassRule(alpha, class_power)
    return RidgeRule(alpha)


def _load_declared_bounds(archive: Archive, side: str) -> Bounds:
    pair = archive.array(f"{side}.declared", "<f8", 2, None)
    if not pair.size:
        raise archive.inconsistency(f"there are no {side}")
    spec = "unit" if archive.get(f"{side}.unit", bool) else pair
    return parse_bounds(spec, pair.shape[1], name=f"the bounds of the {side}")


def _load_scales(archive: Archive, name: str, read: Callable[[Any], Scales]) -> Scales:
    spec = archive.header.get(name)
    scales = read(spec)
    if scales.spec() != spec:  # equal models have equal files
        raise archive.inconsistency("the scales are not in the form that a model writes")
    return scales


def _check_custom_features(archive: Archive, features: FeatureMap | None) -> None:
    """Refuse a feature map that is not the one the model was saved with."""
    saved = archive.get("features", dict)
    if not saved.get("own"):
        if features is not None:
            raise InvalidSetting("the model was saved with features of this package: load it without features")
        return
    if features is None:
        raise InvalidSetting(
            "the model was saved with a feature map of your own, and code never comes from a file: "
            "pass the same map, load(path, features=...)"
        )
    description = features.describe()
    if any(description[name] != saved.get(name) for name in ("name", "params")):
        raise InvalidSetting(f"the model was saved with other features than {features!r}: pass the same map")


def _load_features(
    archive: Archive, inputs: int, custom: FeatureMap | None, maps: Mapping[str, type[FeatureMap]]
) -> FeatureMap:
    saved = archive.get("features", dict)
    params, drawn, kind = saved.get("params"), saved.get("drawn"), maps.get(str(saved.get("name")))
    if not isinstance(params, dict) or not isinstance(drawn, dict):
        raise archive.inconsistency("unknown features")
    if custom is not None:
        features = custom.copy()
    elif kind is not None and set(params) <= set(kind().get_params()):
        features = kind(**{name: _load_parameter(archive, name, value) for name, value in params.items()})
    else:
        raise archive.inconsistency("unknown features")
    arrays = {
        name: archive.array(f"features.{name}", "<i8", *_parse_shape(archive, shape)) for name, shape in drawn.items()
    }
    restored = features.restore(inputs, arrays)
    if custom is None and restored.describe()["params"] != params:
        raise archive.inconsistency("the parameters of the features are damaged or incomplete")
    return restored


def _load_parameter(archive: Archive, name: str, value: Any) -> Any:
    """Return a parameter from the header, or the array that it stands for."""
    if not isinstance(value, dict):
        return value
    return archive.array(f"parameters.{name}", "<f8", *_parse_shape(archive, value.get("shape")))


def _parse_shape(archive: Archive, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int for n in shape):
        raise archive.inconsistency("an array of the features has no valid shape")
    return tuple(shape)


def state_parts(state: ModelState) -> Parts:
    """Return a header and arrays that `load_blueprint` and `load_state` read."""
    header, arrays = blueprint_parts(state.blueprint, custom_features=True)
    arrays |= state.ensemble.store.arrays()
    for side, bounds in bounds_by_side(state.ensemble.encoder):
        arrays[f"{side}.in_force"] = np.stack([bounds.low, bounds.high])  # (2, d)
    if isinstance(state.blueprint.rule, RidgeRule):
        states = state.ensemble.states
        moments = [part for s in states for part in (s.parts if isinstance(s, ClassMoments) else [s])]
        arrays["moments"] = np.stack([part.integers for part in moments])  # (r or r K, 3, P)
    return header | {"drawn": state.drawn}, arrays


def load_state(archive: Archive, blueprint: Blueprint) -> ModelState:
    """Read the state of a model with this blueprint."""
    try:
        drawn, shards = archive.get("drawn", int), blueprint.code.shards
        store = _load_store(archive, blueprint, slots_needed(drawn, shards))
        if store.live[free_slots(blueprint.key, drawn, shards)].any():
            raise archive.inconsistency("rows in slots that were never given out")
        extents = _load_extents(archive, blueprint, store)
        ensemble = _load_ensemble(archive, blueprint.encoder(extents), store, blueprint)
        return ModelState(blueprint, ensemble, extents, drawn, int(np.count_nonzero(store.live)))
    except (InvalidInput, InvalidSetting) as error:  # rows that no model with this blueprint would have accepted
        raise archive.inconsistency(str(error)) from error


def index_parts(index: IdIndex) -> Parts:
    """Return a header and arrays that `load_index` reads."""
    ids, slots = index.entries()
    return {"id_kind": "<i8" if ids.dtype.kind == "i" else "<U"}, {"ids": ids, "slots": slots}


def load_index(archive: Archive, live: NDArray[np.bool_]) -> IdIndex:
    """Read the ids of the rows; ``live`` says which slots have a row."""
    slots = archive.array("slots", "<i8", None)
    ids = archive.array("ids", archive.choice("id_kind", ("<i8", "<U")), len(slots))
    if not np.array_equal(np.sort(slots), np.flatnonzero(live)):
        raise archive.inconsistency("ids and rows do not match")
    return IdIndex(ids, slots)


def _load_store(archive: Archive, blueprint: Blueprint, slots: int) -> Store:
    live = archive.array("live", "|b1", slots)
    if blueprint.keep == "rows":
        return _load_rows(archive, blueprint, live)
    stripes, width = slots // blueprint.code.shards, blueprint.encoder(blueprint.measure()).width
    q = archive.array("q", "<i8", blueprint.code.learners, stripes, width)
    if ((q > 2**CODED_BITS) | (q < -(2**CODED_BITS))).any():
        raise archive.inconsistency("coded rows exceed the exact range")
    prints = archive.array("prints", "|u1", slots, FINGERPRINT_BYTES)
    if prints[~live].any():
        raise archive.inconsistency("fingerprints in empty slots")
    return CodedStore(q, prints, live, blueprint.fingerprint_key)


def _load_rows(archive: Archive, blueprint: Blueprint, live: NDArray[np.bool_]) -> Rows:
    X = archive.array("X", "<f8", len(live), len(blueprint.inputs.low))
    y = archive.array("y", "<f8", len(live), len(blueprint.targets.low))
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise archive.inconsistency("rows are not finite")
    if X[~live].any() or y[~live].any():
        raise archive.inconsistency("values in empty slots")
    for values, bounds in ((X, blueprint.inputs), (y, blueprint.targets)):
        if live.any() and ((values[live] < bounds.low) | (values[live] > bounds.high)).any():
            raise archive.inconsistency("rows are outside the bounds")
    return Rows(X, y, live)


def _load_extents(archive: Archive, blueprint: Blueprint, store: Store) -> Extents:
    extents = blueprint.measure(store)
    for side, bounds in bounds_by_side(blueprint.encoder(extents)):
        in_force = archive.array(f"{side}.in_force", "<f8", 2, len(bounds.low))
        if not np.array_equal(in_force, [bounds.low, bounds.high]):
            raise archive.inconsistency(f"the bounds of the {side} are neither declared nor those of the rows")
    return extents


def _load_ensemble(archive: Archive, encoder: Encoder, store: Store, blueprint: Blueprint) -> Ensemble:
    rule, aggregate, code = blueprint.rule, blueprint.aggregate, encoder.code
    if not isinstance(rule, RidgeRule):
        return Ensemble.learn(encoder, store, rule, aggregate)
    per_class = isinstance(rule, ClassRule)
    w, sets = (encoder.features.n_out + 1, encoder.n_targets) if per_class else (encoder.width, 1)
    limbs = archive.array("moments", "<i8", code.learners * sets, 3, w * (w + 1) // 2)
    members = store.live.reshape(-1, code.shards)
    states: list[Any] = []
    for j in range(code.learners):
        feeding = members[:, code.lanes_of(j)]
        coded_rows = int(np.count_nonzero(feeding.any(axis=1)))
        counts = [(int(np.count_nonzero(feeding)), coded_rows)]
        if per_class:  # each coded row is a row of one class, whose column of ones says how many there are
            counts = [(rows, rows) for rows in _count_ones(limbs[j * sets : (j + 1) * sets], encoder.bits)]
            if sum(rows for rows, _ in counts) != coded_rows:
                raise archive.inconsistency("the moments of the classes are not those of so many rows")
        parts = []
        for part, (rows, coded) in zip(limbs[j * sets : (j + 1) * sets], counts, strict=True):
            most = 2**CODED_BITS * min(coded, INT_ROWS)
            if ((part > most) | (part < -most)).any():
                raise archive.inconsistency("moments exceed the exact range")
            parts.append(Moments(part.copy(), rows, coded))
        states.append(ClassMoments(tuple(parts)) if per_class else parts[0])
    return Ensemble.from_states(encoder, store, rule, aggregate, states)


def _count_ones(limbs: NDArray[np.int64], bits: int) -> list[int]:
    """Return the number of rows in moments of [phi, 1], from the last entry: the sum of squares of 2^bits."""
    sums = (sum(int(limb) << shift for limb, shift in zip(part, (36, 18, 0), strict=True)) for part in limbs[:, :, -1])
    return [max(0, total >> 2 * bits) for total in sums]


_PLAIN_SETTINGS = ("shards", "rate", "density", "balanced", "alpha", "fit_intercept", "random_state")


def settings_parts(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not in a blueprint, for a header."""
    plain = {name: getattr(settings, name) for name in _PLAIN_SETTINGS}
    if not isinstance(settings.random_state, int | np.integer):
        plain["random_state"] = None  # a generator: its draws are in the blueprint
    return {
        "parameters": {name: plain_value(name, value) for name, value in plain.items()},
        "own_code": settings.code is not None,
    }


def load_settings(archive: Archive, blueprint: Blueprint, learner: Any = "ridge") -> Settings:
    """Read the settings of a saved model; ``learner`` is the one that the caller passed."""
    plain = archive.get("parameters", dict)
    if set(plain) != set(_PLAIN_SETTINGS) or not all(
        value is None or isinstance(value, Real) for value in plain.values()
    ):
        raise archive.inconsistency("unknown parameters")
    return Settings(
        **plain,
        code=blueprint.code if archive.get("own_code", bool) else None,
        features=None if isinstance(blueprint.features, IdentityMap) else blueprint.features.copy(),
        learner=learner,
        aggregate=blueprint.aggregate,
        bounds=_bounds_spec(blueprint.inputs),
        target_bounds=_bounds_spec(blueprint.targets),
        scales=blueprint.scales.spec(),
        target_scales=blueprint.target_scales.spec(),
        clip=blueprint.clip,
        outside=blueprint.outside,
        keep=blueprint.keep,
    )


def _bounds_spec(bounds: Bounds) -> BoundsLike:
    """Return the ``bounds`` parameter of these bounds. An observed column is None: NaN would not equal itself."""
    if bounds.unit:
        return "unit"
    if np.isnan(bounds.low).all():
        return None
    low, high = ([None if np.isnan(v) else v for v in side.tolist()] for side in (bounds.low, bounds.high))
    return low, high
