"""Time to forget: one row against every other method, batches, and growth with features, rows and learners."""

import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from .limits import cholesky, moments_pass, products
from .measure import Result, Times, compared, in_turns
from .methods import Boosting, Downdate, Ours, PaperProtocol, Sharded, ShermanMorrison, codes_of, forgetting
from .tasks import Rows, computer_activity, power_plant, protein, synthetic

SHARDS = 20
CODES = ((5, 1, None), (20, 2, None), (20, 20, None), (100, 5, None), (20, 5, 0.5))  # shards, rate, density


def one_row(*, quick: bool = False) -> Iterator[Result]:
    """Forget one row: every data set, every shape, every method."""
    rounds = 3 if quick else 7
    for task in (protein(), computer_activity(), power_plant()):
        shared = (Sharded(task, SHARDS), Sharded(task, 1), Boosting(task), Downdate(task), ShermanMorrison(task))
        sisa, full, boosted, floats, morrison = shared
        refit, retrain, boost, down, update = (forgetting(method) for method in shared)
        for name, shape in codes_of(task, SHARDS).items():
            paper = PaperProtocol(task, **shape)
            mine, theirs = forgetting(Ours(task, **shape)), forgetting(paper)
            fast = in_turns(mine, theirs, down, update, cholesky(task.D + 1), rounds=rounds, calls=15)
            slow = in_turns(mine, refit, retrain, boost, rounds=3)
            what = f"forget 1 row, {task.name} D={task.D}, {name}"
            yield compared("forget", what, fast[0], fast[1], against=paper.name, goal=1.0)
            for other, times in zip((sisa.name, full.name, boosted.name), slow[1:], strict=True):
                ours = Times((fast[0].median,) * len(times.rounds))
                yield compared("forget", what, ours, times, against=other, goal=1.0)
            near = 2.5 if task.D >= 300 else None
            yield compared("forget", what, fast[0], fast[2], against=floats.name, kind="of", goal=near)
            yield compared("forget", what, fast[0], fast[3], against=morrison.name, kind="of")
            limit = 2.0 if task.D == 300 else None
            yield compared("forget", what, fast[0], fast[4], against="one Cholesky", kind="of", goal=limit)


def codes(*, quick: bool = False) -> Iterator[Result]:
    """Forget one row with other numbers of shards, rates and densities, against those that refit a shard."""
    for task in (protein(), computer_activity(), power_plant()):
        for shards, rate, density in CODES[:2] if quick else CODES:
            shape = {"shards": shards, "rate": rate, "density": density}
            sisa, paper = Sharded(task, shards), PaperProtocol(task, **shape)
            functions = forgetting(Ours(task, **shape)), forgetting(paper), forgetting(sisa)
            mine, theirs, refit = in_turns(*functions, rounds=3 if quick else 5, calls=5)
            dense = "" if density is None else f", density {density:g}"
            what = f"forget 1 row, {task.name} D={task.D}, s={shards}, rate {rate}{dense}"
            yield compared("codes", what, mine, theirs, against=paper.name, goal=1.0)
            yield compared("codes", what, mine, refit, against=sisa.name, goal=1.0)


def batches(*, quick: bool = False) -> Iterator[Result]:
    """Forget many rows at once, Protein, s=5, rate 5: against as many refits, and against its own products."""
    task = protein()
    for size in (1, 10, 100, 1_000, 10_000):
        ours, paper = Ours(task, shards=5, rate=5), PaperProtocol(task, shards=5, rate=5)
        ids = iter(np.arange(len(task.X) // size * size).reshape(-1, size))
        rounds = 3 if size == 10_000 else 4 if quick else 9
        width = task.D + 2
        own = products(2 * min(size, len(task.X) // 5), width, 3)  # coded rows before and after, three slices each
        solve = cholesky(width)
        mine, refit, dsyrk, factor = in_turns(
            lambda: ours.model.unlearn(next(ids)), forgetting(paper), own, solve, rounds=rounds
        )
        what = f"forget {size:,} {'row' if size == 1 else 'rows'} at once, protein D=300, s=5, rate 5"
        many = "1 refit (paper)" if size == 1 else f"{size:,} refits (paper)"
        yield compared("batch", what, mine, refit * size, against=many)
        goal = 1.5 if size == 1_000 else None
        yield compared("batch", what, mine, dsyrk + factor, against="own dsyrk and Cholesky", kind="of", goal=goal)


def features(*, quick: bool = False) -> Iterator[Result]:
    """Growth with D."""
    goals = {300: 2.0, 2_000: 1.5}
    for D in (25, 100, 300, 1_000, 2_000) if quick else (25, 100, 300, 1_000, 2_000, 4_000):
        task = synthetic(20_000, D)
        mine, factor, down, pass_ = in_turns(
            forgetting(Ours(task, shards=5, rate=5)),
            cholesky(D + 1),
            forgetting(Downdate(task)),
            moments_pass(D + 2),
            rounds=5,
            calls=15 if D <= 300 else 3 if D <= 1_000 else 1,
        )
        what = f"forget 1 row, {task.name}, D={D:,}, s=5, rate 5"
        yield compared("features", what, mine, factor, against="one Cholesky", kind="of", goal=goals.get(D))
        near = 2.5 if D >= 300 else None
        yield compared("features", what, mine, down, against="float downdate", kind="of", goal=near)
        yield compared("features", what, mine, pass_, against="one pass over the moments", kind="of")


def rows(*, quick: bool = False) -> Iterator[Result]:
    """Growth with n: forgetting must not care how many rows there are."""
    sizes = (10_000, 100_000, 1_000_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000)
    models = [Ours(synthetic(n, 100), shards=20, rate=5) for n in sizes]
    times = in_turns(*map(forgetting, models), rounds=9, calls=25)
    for n, mine in list(zip(sizes, times, strict=True))[1:]:
        goal = 1.2 if n == 10_000_000 else None
        what = f"forget 1 row of {n:,}, D=100, s=20, rate 5"
        yield compared("rows", what, mine, times[0], against="1 row of 10,000", kind="of", goal=goal)


def shapes(*, quick: bool = False) -> Iterator[Result]:
    """Learners from 1 to 100, and keep="rows" against keep="coded"."""
    task = protein()
    counts = (1, 4, 20, 100)
    models = [Ours(task, shards=5 * r, rate=5) for r in counts]
    times = in_turns(*map(forgetting, models), rounds=5, calls=10)
    for r, mine in list(zip(counts, times, strict=True))[1:]:
        what = f"forget 1 row, protein D=300, {r} learners"
        yield compared("learners", what, mine, times[0], against="1 learner", kind="of")
    coded = task.model(shards=5, rate=5).set_params(keep="coded").fit(task.X, task.y)
    brought = count()

    def bring() -> None:
        k = next(brought)
        coded.unlearn([k], task.X[k : k + 1], task.y[k : k + 1])

    mine, theirs = in_turns(bring, forgetting(Ours(task, shards=5, rate=5)), rounds=5, calls=10)
    yield compared("keep", 'forget 1 row, keep="coded", s=5', mine, theirs, against='keep="rows"', kind="of")


def sustained(*, quick: bool = False) -> Iterator[Result]:
    """Requests of mixed size for a minute: rows forgotten a second."""
    task, limit = protein(), 5.0 if quick else 60.0
    refit = in_turns(forgetting(PaperProtocol(task, shards=5, rate=5)), rounds=3)[0].median

    def fresh() -> Callable[[Rows], object]:
        return task.model(shards=5, rate=5).fit(task.X, task.y).unlearn

    yield mixed("sustained", "rows forgotten a second", fresh, len(task.X), refit, limit)


def mixed(
    section: str, what: str, fresh: Callable[[], Callable[[Rows], object]], rows: int, refit: float, limit: float
) -> Result:
    """So many seconds of requests for 1 to 1,000 rows, against a refit a row; few rows left: a fresh model, untimed."""
    rng, gone, spent = np.random.default_rng(2), 0, 0.0
    while spent < limit:
        unlearn, left = fresh(), rng.permutation(rows)
        while len(left) > rows // 2 and spent < limit:
            size = int(rng.choice([1, 1, 1, 1, 10, 10, 100, 1_000]))
            started = time.perf_counter()
            unlearn(left[:size])
            spent, gone, left = spent + time.perf_counter() - started, gone + size, left[size:]
    what = f"{gone / spent:,.0f} {what}, {limit:.0f} s of 1 to 1,000 a request"
    return Result(section, what, "a refit a row (paper)", spent / gone, refit, "faster", refit * gone / spent, (0, 0))
