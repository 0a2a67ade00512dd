"""Several processes or machines work on one vault: training, adding, verifying and very large erasures.

Only `cluster` knows Dask. Tasks are pure functions of files and ranges (`tasks`); `workers` splits a request into tasks
and combines their results. The result has the same bytes as that of one process, for any number of workers, pieces,
retries and lost workers. Only the calling process accepts, solves, signs and commits. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from .cluster import Cluster, joined_cluster, own_cluster, workers_of

__all__ = ["Cluster", "joined_cluster", "own_cluster", "workers_of"]

__getattr__, __dir__ = lazy_attributes(__name__, dict.fromkeys(__all__, "cluster"))
