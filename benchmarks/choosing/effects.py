"""What each setting does: one function per figure, each returns its numbers by line and by place on the line."""

import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import CodedRegressor, RandomFourier
from expunge.encoding.encoder import Outside
from expunge.encoding.frequencies import Kernel
from expunge.encoding.scales import ScalesLike
from expunge.exact.arrays import Floats
from expunge.paper.data import read_dataset
from expunge.planning.candidates import CODINGS, SINGLE, Coding, Costs, predict_costs
from expunge.planning.column_scales import propose_scales
from expunge.planning.finals import try_references
from expunge.planning.planner import Plan, plan
from expunge.planning.sample import PlanSample, Validation
from expunge.planning.trial import single_learner, try_settings

TABLES = {"computer-activity": "Computer Activity", "protein": "Protein", "power-plant": "Power Plant"}
ROWS = 6_000  # a quarter of them judges
ALPHAS = (1e-4, 1e-2, 1.0, 10.0)


@cache
def table(name: str, rows: int = ROWS) -> tuple[Floats, Floats]:
    """Some rows of a table, in random order."""
    X, y = read_dataset(name)
    some = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[some], y[some]


def split_rows(X: Floats, y: Floats) -> PlanSample:
    """Rows in random order, of which a random quarter judges."""
    rng = np.random.default_rng(0)
    rank = np.argsort(rng.permutation(len(X)))
    order = rng.permutation(len(X))
    return PlanSample(X[order], y[order, None], rank[order].astype(np.uint64), (rank[order] % 4 == 0,))


def ground(X: Floats, y: Floats, scales: ScalesLike = None, outside: Outside = "clamp") -> Validation:
    """Rows to learn from and rows that judge, scaled."""
    sample = split_rows(X, y)
    return Validation.from_sample(sample, bounds=None, target_bounds=None, scales=scales, outside=outside)


def error(
    where: Validation,
    features: RandomFourier,
    coding: Coding = SINGLE,
    alphas: Sequence[float] = ALPHAS,
    seed: int = 0,
) -> float:
    """Mean squared error over the target's variance, with the best of the penalties."""
    return try_settings(where, coding.apply(single_learner(features, seed)), alphas).error


def kept(X: Floats, y: Floats, *, person: int, column: int) -> Iterator[str]:
    """Lines that compare a pipeline that unlearned a person with one that never saw them."""
    others = np.arange(len(X)) != person
    pipeline = make_pipeline(StandardScaler(), _model())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pipeline.fit(X, y)
        fresh = make_pipeline(StandardScaler(), _model()).fit(X[others], y[others])
    pipeline[-1].unlearn(person)
    mean, refit = pipeline[0].mean_[column], fresh[0].mean_[column]
    n = len(X)
    yield f"rows {n}, of which one is erased; input {column}, its value in that row {X[person, column]:g}"
    yield f"the scaler's mean after the erasure {mean:.5f}, of a scaler that never saw the row {refit:.5f}"
    yield f"{n} times the first less {n - 1} times the second: {n * mean - (n - 1) * refit:.3f}"
    yield f"fit warned: {str(told[0].message).partition(':')[0]}"
    model = _model(bounds=_declared(X), scales="log").fit(X, y)
    model.unlearn(person)
    same = model.digest() == model.retrained().digest()
    yield f"scaled inside the model, with declared bounds: {'the same' if same else 'NOT THE SAME'} as never seen"


def _model(**given: Any) -> CodedRegressor:
    return CodedRegressor(shards=1, rate=1, features=RandomFourier(100, random_state=0), random_state=0, **given)


def _declared(X: Floats) -> tuple[float, Floats]:
    """Round numbers above every value; a user would declare them without a look at the rows."""
    return 0.0, 10.0 ** np.ceil(np.log10(X.max(axis=0)))


Lines: TypeAlias = dict[str, dict[float, float]]
Codes: TypeAlias = dict[str, tuple[float, Costs, tuple[float, float]]]

COSINES = (30, 100, 300, 1000)
PENALTIES = tuple(10.0**k for k in range(-6, 4))
REACHES = tuple(2.0**k for k in range(-3, 5))
KINDS: dict[str, tuple[Kernel, int | None]] = {
    "gaussian": ("gaussian", None),
    "matern52": ("matern52", None),
    "exponential": ("exponential", None),
    "laplacian": ("laplacian", None),
    "gaussian, order=2": ("gaussian", 2),
}
USELESS = (0, 4, 16)
_SCALE = {"computer-activity": 1.0, "protein": 2.0, "power-plant": 2.0}
_FORGOTTEN = 7  # rows, of which the fastest counts


def drawn(cosines: int, scale: float | Floats, kind: str = "gaussian") -> RandomFourier:
    """Features of a kind, and the inputs themselves."""
    kernel, order = KINDS[kind]
    return RandomFourier(cosines, kernel=kernel, order=order, scale=scale, linear=True, random_state=0)


def cosines() -> Lines:
    """The error with more and more cosines."""
    grounds = {name: ground(*table(name)) for name in TABLES}
    return {TABLES[name]: {D: error(where, drawn(D, _SCALE[name])) for D in COSINES} for name, where in grounds.items()}


def forgetting() -> Lines:
    """Milliseconds to forget a row with more and more cosines, as the plan predicts it and as measured here."""
    X, y = table("computer-activity")
    return {
        "predicted": {D: costs(SINGLE, X, D).forget_ms for D in (30, 50, 100, 200, 300, 500, 700, 1000)},
        "measured here": {D: measured(SINGLE, X, y, D)[0] for D in COSINES},
    }


def costs(coding: Coding, X: Floats, cosines: int) -> Costs:
    """What the plan predicts for one target."""
    rows, inputs = X.shape
    return predict_costs(coding.draw_code(), rows=rows, inputs=inputs, cosines=cosines, width=cosines + inputs + 2)


def measured(coding: Coding, X: Floats, y: Floats, cosines: int) -> tuple[float, float]:
    """Milliseconds to forget a row and seconds to train, of one core's own time: others may use the machine, too."""
    model = CodedRegressor(shards=coding.shards, rate=coding.rate, features=drawn(cosines, 1.0), random_state=0)
    started = time.process_time()
    model.fit(X, y)
    trained, times = time.process_time() - started, list[float]()
    for person in range(_FORGOTTEN):
        started = time.process_time()
        if not model.unlearn(person).bounds_moved:
            times.append(time.process_time() - started)
    return min(times) * 1e3, trained


def penalties() -> Lines:
    """The error with every penalty, also if predictions may lie anywhere: many cosines need one then, few do not."""
    every = [(f"{D} cosines", D, ground(*table("protein"))) for D in (100, 300, 1000)]
    every += [(f"{D}, extrapolated", D, ground(*table("protein"), outside="extrapolate")) for D in (300, 1000)]
    return {
        name: {alpha: error(where, drawn(D, 2.0), alphas=(alpha,)) for alpha in PENALTIES} for name, D, where in every
    }


def kernels(name: str) -> Lines:
    """The error with every kind of features and every scale."""
    where = ground(*table(name))
    return {kind: {reach: error(where, drawn(500, reach, kind)) for reach in REACHES} for kind in KINDS}


def useless() -> Lines:
    """The error with inputs that say nothing: all inputs alike, with the relevance of a quick plan, and of trees."""
    X, y = table("power-plant")
    lines: Lines = {"all inputs alike": {}, "relevance, by a quick plan": {}, "boosted trees, 400": {}}
    for extra in USELESS:
        wide = np.hstack([X, np.random.default_rng(1).random((len(X), extra))])
        where = ground(wide, y)
        alike, relevant, trees = lines.values()
        alike[extra] = min(error(where, drawn(500, reach)) for reach in REACHES[:6:2])
        relevant[extra] = plan(wide, y, quick=True, scales="linear", max_features=500, references=False).choice.error
        trees[extra] = try_references(split_rows(wide, y), where.variance, 0)[-1].error
    return lines


def codes() -> Codes:
    """The error (mean of three draws), the predicted costs and the measured times of every code of a plan."""
    X, y = table("computer-activity")
    where = ground(X, y)
    return {
        str(coding): (
            float(np.mean([error(where, drawn(500, 1.0), coding, seed=seed) for seed in range(3)])),
            costs(coding, X, 500),
            measured(coding, X, y, 500),
        )
        for coding in (*CODINGS, Coding(20, 1))
    }


def scales() -> Lines:
    """The error with every scale of the inputs; the places on a line are the scales' numbers in `SCALES`."""
    lines: Lines = {}
    for name in TABLES:
        X, y = table(name)
        both = propose_scales(X)
        knots = [one if one == "linear" else one[1] for one in both]  # type: ignore[index]  # a list of two
        given = ("linear", "log", knots, both)
        lines[TABLES[name]] = {
            k: min(error(ground(X, y, scales), drawn(500, reach)) for reach in REACHES[1:6:2])
            for k, scales in enumerate(given)
        }
    return lines


SCALES = ("linear", "log", "knots", "linear and knots")


def planned() -> Plan:
    """A plan for Computer Activity; its target is a percentage."""
    return plan(*table("computer-activity"), target_bounds=(0, 100))
