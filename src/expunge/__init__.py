"""Regression models that can forget: train on coded shards, delete any row in about a millisecond, prove it.

What is named here is imported when it is first used, so that a command that needs no scikit-learn does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .encoding.bounds import Bounds
    from .encoding.codes import Code
    from .encoding.drawing import random_code
    from .encoding.features import FeatureMap
    from .errors import ExpungeError
    from .fitted import Report
    from .regressor import CodedRegressor
    from .transformers import Powers, RandomFourier

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "Code",
    "CodedRegressor",
    "ExpungeError",
    "FeatureMap",
    "Powers",
    "RandomFourier",
    "Report",
    "random_code",
]

_HOMES = {
    "Bounds": "encoding.bounds",
    "Code": "encoding.codes",
    "CodedRegressor": "regressor",
    "ExpungeError": "errors",
    "FeatureMap": "encoding.features",
    "Powers": "transformers",
    "RandomFourier": "transformers",
    "Report": "fitted",
    "random_code": "encoding.drawing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
