"""Which model for these rows: settings are tried on a sample, and the choice comes with what it costs and gives up.

Everything is chosen on coarse grids, by validation, without a look at the clock. The model's mathematics is elsewhere.
"""

from ..doors import door

_HOMES = {"Candidate": "candidates", "Plan": "planner", "Reference": "references", "plan": "planner"}

__getattr__, __dir__ = door(__name__, _HOMES)
