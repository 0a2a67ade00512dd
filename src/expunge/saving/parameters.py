"""Parameters: what a user asked of a `CodedRegressor`, checked; from it, what is drawn; and to a file and back."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone

from ..encoding.bounds import Bounds, BoundsLike, parse_bounds
from ..encoding.codes import Code, random_code
from ..encoding.features import FeatureMap, Identity
from ..encoding.randomness import Key, as_generator, draw_key
from ..errors import InvalidSetting, whole_number
from ..learning.blueprint import Blueprint
from ..learning.ensemble import EstimatorRule, RidgeRule, Rule
from ..learning.learners import check_learner
from ..learning.state import State
from .archive import Archive


def draw_blueprint(model: Any, inputs: int, targets: int) -> Blueprint:
    """Check the parameters and draw what is drawn once."""
    rng = as_generator(model.random_state)
    code = _code(model, rng)
    key = draw_key(rng)
    for name, value, allowed in (
        ("aggregate", model.aggregate, ("mean", "median")),
        ("keep", model.keep, ("rows", "coded")),
    ):
        if not isinstance(value, str) or value not in allowed:
            raise InvalidSetting(f"{name} must be one of {allowed}, got {value!r}")
    if model.features is not None and not isinstance(model.features, FeatureMap):
        raise InvalidSetting(
            f"features must be None, Powers(...) or RandomFourier(...), an instance, got {model.features!r}"
        )
    for name, flag in (("fit_intercept", model.fit_intercept), ("clip", model.clip)):
        if not isinstance(flag, bool | np.bool_):
            raise InvalidSetting(f"{name} must be True or False, got {flag!r}")
    features = Identity() if model.features is None else clone(model.features)
    intercept, rule = _rule(model, code, key)
    return Blueprint(
        key=key,
        code=code,
        features=features.drawn(inputs, rng),
        inputs=parse_bounds(model.bounds, inputs, name="bounds"),
        targets=parse_bounds(model.target_bounds, targets, name="target_bounds"),
        intercept=intercept,
        clip=bool(model.clip),
        keep=model.keep,
        rule=rule,
        aggregate=model.aggregate,
    )


def _code(model: Any, rng: np.random.Generator) -> Code:
    if model.code is not None:
        if not isinstance(model.code, Code):
            raise InvalidSetting(f"code must be a Code, got {type(model.code).__name__}; use Code(G)")
        return model.code
    s = whole_number("shards", model.shards)
    rate = float(model.rate) if isinstance(model.rate, Real) else np.nan
    if not 1 <= rate < np.inf:
        raise InvalidSetting(f"rate must be a number of at least 1, got {model.rate!r}")
    learners = round(s / rate)
    if learners < 1 or abs(learners * rate - s) > 1e-9 * s:
        multiples = rate * np.arange(1, s + 2)
        whole = multiples[(multiples > s) & (np.abs(multiples - multiples.round()) < 1e-9)]
        fix = f"use shards={whole[0]:.0f}" if len(whole) else "use a whole number as rate"
        raise InvalidSetting(f"shards must be a multiple of rate, got shards={s}, rate={rate:g}; {fix}")
    return random_code(s, learners, density=model.density, balanced=model.balanced, random_state=rng)


def _rule(model: Any, code: Code, key: Key) -> tuple[bool, Rule]:
    """Whether to encode a column of ones, and how a weak learner learns."""
    if isinstance(model.learner, str):
        if model.learner != "ridge":
            raise InvalidSetting(f"learner must be 'ridge' or a scikit-learn regressor, got {model.learner!r}")
        if not (isinstance(model.alpha, int | float | np.number) and 0 <= model.alpha < np.inf):
            raise InvalidSetting(f"alpha must be a number of at least 0, got {model.alpha!r}")
        return bool(model.fit_intercept), RidgeRule(float(model.alpha))
    check_learner(model.learner, code)
    # A learner of plain rows has an intercept of its own, unless it is a linear model told to have none.
    ours = not code.is_selection or model.learner.get_params(deep=False).get("fit_intercept") is False
    return bool(model.fit_intercept) and ours, EstimatorRule(clone(model.learner), key)


def described(model: Any) -> dict[str, Any]:
    """The parameters that a saved state does not tell, for its header."""
    names = getattr(model, "feature_names_in_", None)
    seed = int(model.random_state) if isinstance(model.random_state, int | np.integer) else None
    plain = {name: getattr(model, name) for name in ("shards", "rate", "density", "balanced", "alpha", "fit_intercept")}
    return {
        "parameters": {n: v.item() if isinstance(v, np.generic) else v for n, v in plain.items()}
        | {"random_state": seed},
        "own_code": model.code is not None,
        "feature_names": None if names is None else names.tolist(),
    }


def restored(archive: Archive, state: State, learner: Any) -> tuple[Mapping[str, Any], list[str] | None]:
    """The parameters of a saved model, and the names of its columns."""
    plain, names = archive.get("parameters", dict), archive.header.get("feature_names")
    known = {"shards", "rate", "density", "balanced", "alpha", "fit_intercept", "random_state"}
    if set(plain) != known or not all(value is None or isinstance(value, Real) for value in plain.values()):
        raise archive.refuse("unknown parameters")
    blueprint = state.blueprint
    if names is not None and not (isinstance(names, list) and len(names) == blueprint.features.n_features_in_):
        raise archive.refuse("the names of the columns are not as many as the columns")
    derived = {
        "code": blueprint.code if archive.get("own_code", bool) else None,
        "features": None if isinstance(blueprint.features, Identity) else clone(blueprint.features),
        "learner": "ridge" if learner is None else learner,
        "aggregate": blueprint.aggregate,
        "bounds": _spec(blueprint.inputs),
        "target_bounds": _spec(blueprint.targets),
        "clip": blueprint.clip,
        "keep": blueprint.keep,
    }
    return plain | derived, names


def _spec(bounds: Bounds) -> BoundsLike:
    """The parameter that these bounds came from. An observed column is None: NaN would not equal itself."""
    if bounds.unit:
        return "unit"
    if np.isnan(bounds.low).all():
        return None
    low, high = ([None if np.isnan(v) else v for v in side.tolist()] for side in (bounds.low, bounds.high))
    return low, high
