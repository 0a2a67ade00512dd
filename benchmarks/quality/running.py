"""Running: every method on every split of a table, from the cache where that has it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from threadpoolctl import threadpool_limits

from .cache import Cache
from .outcomes import Method, Outcome
from .scores import Scores
from .splits import split
from .tables import Loaded, Table


def run(
    tables: Sequence[Table], methods: Sequence[Method], cache: Cache, *, splits: int, jobs: int
) -> Iterator[Scores]:
    """Yield the scores of each table, in order; so many tables are worked on at a time."""
    one = partial(run_table, methods=methods, cache=cache, splits=splits)
    if jobs == 1:
        yield from map(one, tables)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        yield from workers.map(one, tables)


def run_table(table: Table, methods: Sequence[Method], cache: Cache, splits: int) -> Scores:
    """Load a table and run the methods on its splits."""
    loaded = table.load()
    return Scores(table, loaded.shape, [run_split(loaded, number, methods, cache) for number in range(splits)])


def run_split(table: Loaded, number: int, methods: Sequence[Method], cache: Cache) -> dict[str, Outcome]:
    """Return the outcome of each method on a split, by name."""
    rows = split(table, number)
    data, outcomes = rows.fingerprint(), {}
    for method in methods:
        found = cache.get(table.name, number, data, method)
        if found is None:
            with threadpool_limits(1):  # threads that wait for one another are slow where others work as well
                found = dict(method.run(rows))
            cache.put(table.name, number, data, method, found)
        outcomes.update(found)
    return outcomes
