"""Parameters: what was asked of a model, to a file's header and back."""

from numbers import Real
from typing import Any

import numpy as np

from ..encoding.bounds import Bounds, BoundsLike
from ..encoding.features import IdentityMap
from ..encoding.values import plain_value
from ..learning.blueprint import Blueprint
from ..learning.settings import Settings
from .archive import Archive

_PLAIN = ("shards", "rate", "density", "balanced", "alpha", "fit_intercept", "random_state")


def settings_parts(settings: Settings) -> dict[str, Any]:
    """The settings that a blueprint does not tell, for a header."""
    plain = {name: getattr(settings, name) for name in _PLAIN}
    if not isinstance(settings.random_state, int | np.integer):
        plain["random_state"] = None  # a generator: what it drew is in the blueprint
    return {
        "parameters": {name: plain_value(name, value) for name, value in plain.items()},
        "own_code": settings.code is not None,
    }


def load_settings(archive: Archive, blueprint: Blueprint, learner: Any = "ridge") -> Settings:
    """The settings of a saved model; ``learner`` is the one that the caller brought."""
    plain = archive.get("parameters", dict)
    if set(plain) != set(_PLAIN) or not all(value is None or isinstance(value, Real) for value in plain.values()):
        raise archive.refuse("unknown parameters")
    return Settings(
        **plain,
        code=blueprint.code if archive.get("own_code", bool) else None,
        features=None if isinstance(blueprint.features, IdentityMap) else blueprint.features.copy(),
        learner=learner,
        aggregate=blueprint.aggregate,
        bounds=_spec(blueprint.inputs),
        target_bounds=_spec(blueprint.targets),
        scales=blueprint.scales.spec(),
        target_scales=blueprint.target_scales.spec(),
        clip=blueprint.clip,
        outside=blueprint.outside,
        keep=blueprint.keep,
    )


def _spec(bounds: Bounds) -> BoundsLike:
    """The parameter that these bounds came from. An observed column is None: NaN would not equal itself."""
    if bounds.unit:
        return "unit"
    if np.isnan(bounds.low).all():
        return None
    low, high = ([None if np.isnan(v) else v for v in side.tolist()] for side in (bounds.low, bounds.high))
    return low, high
