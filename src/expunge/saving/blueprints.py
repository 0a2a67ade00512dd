"""Blueprints: what a model is before it has seen a row, to an archive and back."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encoding.bounds import Bounds, parse_bounds
from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..encoding.features import FeatureMap, IdentityMap, PowersMap
from ..encoding.fourier import RandomFourierMap
from ..encoding.randomness import Key
from ..encoding.scales import Scales
from ..errors import InvalidSetting
from ..learning.blueprint import Blueprint
from ..learning.rules import RidgeRule, Rule, RuleOf
from .archive import Archive

PLAIN_MAPS: Mapping[str, type[FeatureMap]] = {
    kind.map_name: kind for kind in (IdentityMap, PowersMap, RandomFourierMap)
}


def blueprint_parts(
    blueprint: Blueprint, *, own_features: bool = False
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A header and arrays from which `load_blueprint` makes it again.

    ``own_features`` says that whoever loads it can bring a feature map that is the user's; else it is refused.
    """
    features, rule = blueprint.features, blueprint.rule
    if features.is_own and not own_features:
        raise InvalidSetting(
            f"features must be those of this package, got {features.map_name}: code never comes from a file, and "
            "nobody would bring it again"
        )
    drawn = {name: np.asarray(array, dtype=np.int64) for name, array in features.arrays().items()}
    header = {
        "features": features.describe() | {"own": features.is_own, "drawn": {n: a.shape for n, a in drawn.items()}},
        "scales": blueprint.scales.spec(),
        "target_scales": blueprint.target_scales.spec(),
        "intercept": blueprint.intercept,
        "clip": blueprint.clip,
        "outside": blueprint.outside,
        "keep": blueprint.keep,
        "aggregate": blueprint.aggregate,
        "ridge": isinstance(rule, RidgeRule),
        "alpha": rule.alpha if isinstance(rule, RidgeRule) else 0.0,
        "rule": rule.describe(),
    }
    arrays: dict[str, NDArray[Any]] = {"key": blueprint.key, "G": blueprint.code.G}
    arrays |= {f"features.{name}": array for name, array in drawn.items()}
    if not features.is_own:  # whoever brings a map of his own brings its parameters
        arrays |= {f"parameters.{name}": array for name, array in features.array_params().items()}
    for side, bounds in sides(blueprint):
        header[f"{side}.unit"] = bounds.unit
        arrays[f"{side}.declared"] = np.stack([bounds.low, bounds.high])  # (2, d), NaN where observed
    return header, arrays


def load_blueprint(
    archive: Archive,
    *,
    rule: RuleOf | None = None,
    features: FeatureMap | None = None,
    maps: Mapping[str, type[FeatureMap]] = PLAIN_MAPS,
) -> Blueprint:
    """Read a blueprint. Code never comes from a file, so the caller brings what is not ours.

    ``rule`` brings the rule of a model that was saved with an estimator as learner, ``features`` the feature map of a
    model that was saved with one of the user's, and ``maps`` are the classes to use for ours.
    """
    key = archive.array("key", "<u8", 2).astype(np.uint64)
    brought = _brought_rule(archive, rule, key)
    _check_features_given(archive, features)
    try:
        code = Code(archive.array("G", "<i8", None, None))
        made = brought or _ridge(archive)
        made.check(code)
        inputs = _declared(archive, "inputs")
        scales = _scales(archive, "scales", partial(Scales.of, inputs=len(inputs.low)))
        targets = _declared(archive, "targets")
        return Blueprint(
            key=key,
            code=code,
            features=_features(archive, scales.n_out, features, maps),
            scales=scales,
            inputs=inputs,
            targets=targets,
            target_scales=_scales(archive, "target_scales", partial(Scales.of_targets, targets=len(targets.low))),
            intercept=archive.get("intercept", bool),
            clip=archive.get("clip", bool),
            outside=archive.choice("outside", ("clamp", "extrapolate")),
            keep=archive.choice("keep", ("rows", "coded")),
            rule=made,
            aggregate=archive.choice("aggregate", ("mean", "median")),
        )
    except InvalidSetting as error:  # from a code, bounds, a feature map or the whole: the file asks for what cannot be
        raise archive.refuse(str(error)) from error


def sides(bounded: Blueprint | Encoder) -> list[tuple[str, Bounds]]:
    """The bounds of both sides of a table, by name."""
    return [("inputs", bounded.inputs), ("targets", bounded.targets)]


def _brought_rule(archive: Archive, rule: RuleOf | None, key: Key) -> Rule | None:
    """The caller has to bring the estimator that a model was saved with, and no other."""
    if archive.get("ridge", bool):
        if rule is not None:
            raise InvalidSetting("the model was saved with learner='ridge': load it without a learner")
        return None
    if rule is None:
        raise InvalidSetting(
            "the model was saved with an estimator as learner, and code never comes from a file: "
            "pass the same estimator, load(path, learner=...)"
        )
    made = rule(key)
    if made.describe() != archive.get("rule", dict):
        raise InvalidSetting("the model was saved with another learner, or other parameters: pass the same one")
    return made


def _ridge(archive: Archive) -> RidgeRule:
    alpha = archive.get("alpha", float)
    if not 0 <= alpha < np.inf:
        raise archive.refuse("alpha is negative or not finite")
    return RidgeRule(alpha)


def _declared(archive: Archive, side: str) -> Bounds:
    pair = archive.array(f"{side}.declared", "<f8", 2, None)
    if not pair.size:
        raise archive.refuse(f"there are no {side}")
    spec = "unit" if archive.get(f"{side}.unit", bool) else pair
    return parse_bounds(spec, pair.shape[1], name=f"the bounds of the {side}")


def _scales(archive: Archive, name: str, read: Callable[[Any], Scales]) -> Scales:
    said = archive.header.get(name)
    scales = read(said)
    if scales.spec() != said:  # one way to write them: equal models have equal files
        raise archive.refuse("the scales are not as a model writes them")
    return scales


def _check_features_given(archive: Archive, features: FeatureMap | None) -> None:
    """The caller has to bring a feature map that is not ours, and no other."""
    said = archive.get("features", dict)
    if not said.get("own"):
        if features is not None:
            raise InvalidSetting("the model was saved with features of this package: load it without features")
        return
    if features is None:
        raise InvalidSetting(
            "the model was saved with a feature map of your own, and code never comes from a file: "
            "pass the same map, load(path, features=...)"
        )
    described = features.describe()
    if any(described[name] != said.get(name) for name in ("name", "params")):
        raise InvalidSetting(f"the model was saved with other features than {features!r}: pass the same map")


def _features(
    archive: Archive, inputs: int, own: FeatureMap | None, maps: Mapping[str, type[FeatureMap]]
) -> FeatureMap:
    said = archive.get("features", dict)
    params, drawn, kind = said.get("params"), said.get("drawn"), maps.get(str(said.get("name")))
    if not isinstance(params, dict) or not isinstance(drawn, dict):
        raise archive.refuse("unknown features")
    if own is not None:
        features = own.copy()
    elif kind is not None and set(params) <= set(kind().get_params()):
        features = kind(**{name: _parameter(archive, name, value) for name, value in params.items()})
    else:
        raise archive.refuse("unknown features")
    arrays = {name: archive.array(f"features.{name}", "<i8", *_shape(archive, said)) for name, said in drawn.items()}
    restored = features.restore(inputs, arrays)
    if own is None and restored.describe()["params"] != params:
        raise archive.refuse("the parameters of the features are damaged or incomplete")
    return restored


def _parameter(archive: Archive, name: str, value: Any) -> Any:
    """A parameter from the header, or the array that it stands for."""
    if not isinstance(value, dict):
        return value
    return archive.array(f"parameters.{name}", "<f8", *_shape(archive, value.get("shape")))


def _shape(archive: Archive, said: Any) -> tuple[int, ...]:
    if not isinstance(said, list) or not all(type(n) is int for n in said):
        raise archive.refuse("an array of the features has no valid shape")
    return tuple(said)
