"""Which model for these rows: settings are tried on a sample, and the choice comes with what it costs and gives up.

Everything is chosen on coarse grids, by validation, without a look at the clock. The model's mathematics is elsewhere.
"""

from ..lazy_imports import lazy_attributes

_HOMES = {"Candidate": "candidates", "Plan": "planner", "Reference": "finals", "plan": "planner"}

__getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
