"""Many processes, or machines, work on one vault: training, adding, verifying and very large erasures.

The engine is Dask, which one module knows (`engine`). What workers do are pure functions of files and ranges (`tasks`),
planned and put together by `helping`. The result has the same bytes as one process would give, for any number of
workers, pieces, retries and lost workers. Only the process that asked accepts, solves, signs and commits. Names are
loaded when they are used.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from .cluster import Cluster, joined_cluster, own_cluster, workers_of

__all__ = ["Cluster", "joined_cluster", "own_cluster", "workers_of"]

__getattr__, __dir__ = lazy_attributes(__name__, dict.fromkeys(__all__, "cluster"))
