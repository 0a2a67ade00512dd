"""Models that can forget: train on coded shards, delete any row in about a millisecond, prove it.

The names below are imported on first use, so that a command that needs no scikit-learn does not wait for it.
"""

from typing import TYPE_CHECKING

from .lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from .classifier import ClassifierReport, CodedClassifier
    from .encoding.bounds import Bounds
    from .encoding.codes import Code, random_code
    from .encoding.features import FeatureMap
    from .errors import ExpungeError
    from .estimator import Report
    from .planned import PlannedRegressor
    from .planning.planner import plan
    from .preprocessing import SchemaTransformer
    from .regressor import CodedRegressor
    from .tables.schema import Schema
    from .transformers import Powers, RandomFourier
    from .versions import show_versions

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "ClassifierReport",
    "Code",
    "CodedClassifier",
    "CodedRegressor",
    "ExpungeError",
    "FeatureMap",
    "PlannedRegressor",
    "Powers",
    "RandomFourier",
    "Report",
    "Schema",
    "SchemaTransformer",
    "plan",
    "random_code",
    "show_versions",
]

_HOMES = {
    "Bounds": "encoding.bounds",
    "ClassifierReport": "classifier",
    "Code": "encoding.codes",
    "CodedClassifier": "classifier",
    "CodedRegressor": "regressor",
    "ExpungeError": "errors",
    "FeatureMap": "encoding.features",
    "PlannedRegressor": "planned",
    "Powers": "transformers",
    "RandomFourier": "transformers",
    "Report": "estimator",
    "Schema": "tables.schema",
    "SchemaTransformer": "preprocessing",
    "plan": "planning.planner",
    "random_code": "encoding.codes",
    "show_versions": "versions",
}

__getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
