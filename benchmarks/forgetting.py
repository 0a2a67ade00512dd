"""Time to forget: one row against every other method, batches, and growth with features, rows and learners."""

import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from expunge.encoding.placement import draw_slots

from .measure import Result, cholesky, compare, in_turns, moments_pass, products
from .methods import (
    BareRefit,
    Boosting,
    Downdate,
    Method,
    Ours,
    PaperProtocol,
    Sharded,
    ShermanMorrison,
    codes_of,
    forgetting,
)
from .tasks import Rows, Task, computer_activity, power_plant, protein, synthetic

SHARDS = 20
CODES = ((5, 1, None), (20, 2, None), (20, 20, None), (100, 5, None), (20, 5, 0.5))  # shards, rate, density

OVERHEAD = (
    "a deletion rewrites three exact limbs where floats have one matrix, and spends about twenty microseconds in "
    "Python; both matter less for larger factorisations"
)
PER_LEARNER = "with a dense code a row feeds many learners, and each costs its own calls and its own solution"
COSINES = "a batch also computes the cosines of all rows that share a coded row with a deleted one"
COPY = "the new moments are a copy: at D=4,000 that is 190 MB of memory touched for the first time"


def one_row(*, quick: bool = False) -> Iterator[Result]:
    """Forget one row: every data set, three shapes, every method."""
    rounds = 3 if quick else 7
    for task in (protein(), computer_activity(), power_plant()):
        for name, shape in codes_of(SHARDS).items():
            refitted: list[Method] = [PaperProtocol(task, **shape), Sharded(task, SHARDS), Sharded(task, 1)]
            floats: list[Method] = [BareRefit(task, **shape), Downdate(task), ShermanMorrison(task)]
            forget, boosted = forgetting(Ours(task, **shape)), Boosting(task)
            slow, fast = ([forgetting(method) for method in methods] for methods in (refitted, floats))
            mine, *theirs = in_turns(forget, *slow, rounds=rounds, calls=(15, 3, 3, 3))
            what = f"forget 1 row, {task.name} D={task.D}, {name}"
            for method, times in zip(refitted, theirs, strict=True):
                yield compare("forget", what, mine, times, against=method.name, goal=1.0, why=OVERHEAD)
            mine, times = in_turns(forget, forgetting(boosted), rounds=3, calls=(15, 1))
            yield compare("forget", what, mine, times, against=boosted.name, goal=1.0)
            mine, bare, down, update, factor = in_turns(forget, *fast, cholesky(task.D + 1), rounds=rounds, calls=15)
            few = 0.7 if task.D <= 25 and shape.get("shards") == SHARDS else None
            yield compare("forget", what, mine, bare, against=floats[0].name, kind="of", goal=few, why=OVERHEAD)
            near = 2.5 if task.D >= 300 else None
            yield compare("forget", what, mine, down, against=floats[1].name, kind="of", goal=near, why=OVERHEAD)
            yield compare("forget", what, mine, update, against=floats[2].name, kind="of")
            limit = 1.4 if task.D == 300 else None
            yield compare("forget", what, mine, factor, against="one Cholesky", kind="of", goal=limit, why=OVERHEAD)


def codes(*, quick: bool = False) -> Iterator[Result]:
    """Forget one row with other numbers of shards, rates and densities, against those that refit a shard."""
    for task in (protein(), computer_activity(), power_plant()):
        for shards, rate, density in CODES[:2] if quick else CODES:
            shape = {"shards": shards, "rate": rate, "density": density}
            sisa, paper = Sharded(task, shards), PaperProtocol(task, **shape)
            functions = forgetting(Ours(task, **shape)), forgetting(paper), forgetting(sisa)
            mine, theirs, refit = in_turns(*functions, rounds=3 if quick else 7, calls=5)
            dense = "" if density is None else f", density {density:g}"
            what = f"forget 1 row, {task.name} D={task.D}, s={shards}, rate {rate}{dense}"
            yield compare("codes", what, mine, theirs, against=paper.name, goal=1.0, why=PER_LEARNER)
            yield compare("codes", what, mine, refit, against=sisa.name, goal=1.0, why=PER_LEARNER)


def batches(*, quick: bool = False) -> Iterator[Result]:
    """Forget many rows in one request, Protein, s=5, rate 5; the others refit once a request, too."""
    task, width = protein(), 302
    n = len(task.X)
    for size in (1, 10, 100, 1_000, 10_000):
        rounds = 3 if size == 10_000 else 4 if quick else 9
        methods = (Ours(task, shards=5, rate=5), PaperProtocol(task, shards=5, rate=5), Sharded(task, 1))
        own = products(_coded_rows(methods[0], size, n), width, 3)
        times = in_turns(*(forgetting(m, size, n) for m in methods), own, cholesky(width), rounds=rounds)
        what = f"forget {size:,} {'row' if size == 1 else 'rows'} at once, protein D=300, s=5, rate 5"
        yield compare("batch", what, times[0], times[1], against=methods[1].name)
        yield compare("batch", what, times[0], times[2], against=methods[2].name)
        if size < 10_000:  # of which there are so few that each batch has other products
            goal, limit = 1.55 if size == 1_000 else None, times[3] + times[4]
            against = "own products and Cholesky"
            yield compare("batch", what, times[0], limit, against=against, kind="of", goal=goal, why=COSINES)


def _coded_rows(ours: Ours, size: int, n: int) -> int:
    """How many coded rows a batch has to multiply: those that it touches, before and after."""
    s = ours.model.code_.shards
    slots = draw_slots(ours.model._state.blueprint.key, 0, n, s)
    return 2 * len(np.unique(slots[:size] // s))


def features(*, quick: bool = False) -> Iterator[Result]:
    """Growth with D."""
    goals = {300: 1.4, 1_000: 1.1, 2_000: 1.1}
    for D in (25, 100, 300, 1_000, 2_000) if quick else (25, 100, 300, 1_000, 2_000, 4_000):
        task = synthetic(20_000, D)
        mine, factor, down, update, pass_ = in_turns(
            forgetting(Ours(task, shards=5, rate=5)),
            cholesky(D + 1),
            forgetting(Downdate(task)),
            forgetting(ShermanMorrison(task)),
            moments_pass(D + 2),
            rounds=5,
            calls=15 if D <= 300 else 3 if D <= 1_000 else 1,
        )
        what = f"forget 1 row, {task.name}, D={D:,}, s=5, rate 5"
        yield compare(
            "features", what, mine, factor, against="one Cholesky", kind="of", goal=goals.get(D), why=OVERHEAD
        )
        near, why = (2.5 if D >= 300 else None), COPY if D == 4_000 else OVERHEAD
        yield compare("features", what, mine, down, against="float downdate", kind="of", goal=near, why=why)
        yield compare("features", what, mine, update, against="Sherman-Morrison", kind="of")
        yield compare("features", what, mine, pass_, against="one pass over the moments", kind="of")


def rows(*, quick: bool = False) -> Iterator[Result]:
    """Growth with n: forgetting must not care how many rows there are."""
    sizes = (10_000, 100_000, 1_000_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000)
    models = [Ours(synthetic(n, 100), shards=20, rate=5) for n in sizes]
    times = in_turns(*map(forgetting, models), rounds=9, calls=25)
    for n, mine in list(zip(sizes, times, strict=True))[1:]:
        goal = 1.2 if n == 10_000_000 else None
        what = f"forget 1 row of {n:,}, D=100, s=20, rate 5"
        why = "the rows of a large table are not in the processor's cache"
        yield compare("rows", what, mine, times[0], against="1 row of 10,000", kind="of", goal=goal, why=why)


def streams(*, quick: bool = False) -> Iterator[Result]:
    """A third of the ids is gone, and the next go on in the same order: who was erased before must not matter."""
    n = 60_000 if quick else 600_000
    task, whole = synthetic(n, 25), np.arange(n)
    orders = {"in order": whole, "in reverse": whole[::-1], "at random": np.random.default_rng(3).permutation(n)}

    def going_on(order: Rows) -> Callable[[], object]:
        model = Ours(task, shards=20, rate=5).model
        model.unlearn(order[: n // 3])
        following = iter(order[n // 3 :].tolist())
        return lambda: model.unlearn(next(following))

    fresh, *times = in_turns(
        forgetting(Ours(task, shards=20, rate=5)), *map(going_on, orders.values()), rounds=5 if quick else 9, calls=400
    )
    for order, mine in zip(orders, times, strict=True):
        what = f"forget 1 row {order}, a third of {n:,} gone, D=25, s=20"
        yield compare("streams", what, mine, fresh, against="1 row, none gone", kind="of", goal=1.2)


def shapes(*, quick: bool = False) -> Iterator[Result]:
    """Learners from 1 to 100, keep="rows" against keep="coded", and a row that holds an observed bound."""
    task = protein()
    counts = (1, 4, 20, 100)
    models = [Ours(task, shards=5 * r, rate=5) for r in counts]
    times = in_turns(*map(forgetting, models), rounds=5, calls=10)
    for r, mine in list(zip(counts, times, strict=True))[1:]:
        what = f"forget 1 row, protein D=300, {r} learners"
        yield compare("learners", what, mine, times[0], against="1 learner", kind="of")
    coded = task.model(shards=5, rate=5).set_params(keep="coded").fit(task.X, task.y)
    brought = count()

    def bring() -> None:
        k = next(brought)
        coded.unlearn([k], task.X[k : k + 1], task.y[k : k + 1])

    mine, theirs = in_turns(bring, forgetting(Ours(task, shards=5, rate=5)), rounds=5, calls=10)
    yield compare("keep", 'forget 1 row, keep="coded", s=5', mine, theirs, against='keep="rows"', kind="of")
    observed = task.model(shards=5, rate=5).set_params(bounds=None).fit(task.X, task.y)
    extremes = iter(np.argsort(-task.X[:, 0]).tolist())
    functions = (lambda: observed.unlearn(next(extremes))), forgetting(Sharded(task, 1))
    mine, theirs = in_turns(*functions, rounds=3 if quick else 5)
    what = "forget the row with the largest value, bounds observed, protein D=300, s=5"
    yield compare("keep", what, mine, theirs, against="full retrain")


def inserting(*, quick: bool = False) -> Iterator[Result]:
    """Learn one more row, or a thousand, and correct one, against a float update."""
    for n in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        task = synthetic(n, 100)
        model, floats, numbers = Ours(task, shards=20, rate=5).model, Downdate(task), count()
        X, y, ids = task.X[:1_000], task.y[:1_000], np.arange(1_000)

        def learn(size: int) -> Callable[[], object]:
            return lambda: model.partial_fit(X[:size], y[:size], ids=np.arange(size) + n + 1_000 * next(numbers))

        model.fit(task.X, task.y, ids=np.arange(n))
        one, many, right, theirs = in_turns(
            learn(1), learn(1_000), lambda: model.rectify(ids[:1], X[:1], y[:1]), lambda: floats.learn(7), calls=5
        )
        for what, mine in (("learn 1 more row", one), ("learn 1,000 more rows", many), ("correct 1 row", right)):
            yield compare(
                "insert", f"{what}, {n:,} rows, D=100", mine, theirs, against="float update, 1 row", kind="of"
            )


def sustained(*, quick: bool = False) -> Iterator[Result]:
    """Requests of mixed size for a minute: rows forgotten a second."""
    task, limit = protein(), 5.0 if quick else 60.0

    def fresh() -> Callable[[Rows], object]:
        return Ours(task, shards=5, rate=5).forget

    yield mixed("sustained", "rows forgotten a second", fresh, task, limit)


def mixed(section: str, what: str, fresh: Callable[[], Callable[[Rows], object]], task: Task, limit: float) -> Result:
    """Requests for 1 to 1,000 rows, for so many seconds; the paper's protocol, a refit a request, for a sixth of it."""
    rate, paper = _rate(fresh, len(task.X), limit), _rate(_paper(task), len(task.X), limit / 6)
    what = f"{rate:,.0f} {what}, {limit:.0f} s of 1 to 1,000 a request"
    return Result(section, what, "paper's protocol", 1 / rate, 1 / paper, "faster", rate / paper)


def _paper(task: Task) -> Callable[[], Callable[[Rows], object]]:
    return lambda: PaperProtocol(task, shards=5, rate=5).forget


def _rate(fresh: Callable[[], Callable[[Rows], object]], rows: int, limit: float) -> float:
    """Rows forgotten a second. When half of them are gone a fresh model takes over, untimed."""
    rng, gone, spent = np.random.default_rng(2), 0, 0.0
    while spent < limit:
        forget, left = fresh(), rng.permutation(rows)
        while len(left) > rows // 2 and spent < limit:
            size = int(rng.choice([1, 1, 1, 1, 10, 10, 100, 1_000]))
            started = time.perf_counter()
            forget(left[:size])
            spent, gone, left = spent + time.perf_counter() - started, gone + size, left[size:]
    return gone / spent
