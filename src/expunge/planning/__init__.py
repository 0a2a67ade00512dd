"""Planning: try settings on a sample of rows, and recommend a model with its costs and trade-offs.

All choices are made on coarse grids, by validation error, and never depend on measured times. The mathematics of the
models is in `encoding`, `exact` and `learning`.
"""

from ..lazy_imports import lazy_attributes

_HOMES = {"Candidate": "candidates", "Plan": "planner", "Reference": "finals", "plan": "planner"}

__getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
