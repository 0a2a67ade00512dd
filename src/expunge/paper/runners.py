"""Runners: one run of each kind of experiment, as rows of a result table.

Trade-off: error against the cost of forgetting one row, uncoded and coded. Cost in the paper is the time that
scikit-learn takes to refit the affected weak learner; ours is the whole call of `unlearn`. Both are measured on the
same model and row, on one BLAS thread.

Influence: the error of one learner when outliers, or inliers, are removed (Section III-B). A row's depth is the
distance of its most extreme original feature from the nearer end of that feature's distribution, as a percentile. The
paper's two criteria, with percentiles varied symmetrically, are the two ends of one ranking: outliers are the rows of
least depth, inliers those of most.

Warm start: what a solver has forgotten that restarts from the old weights, as the paper proposes. The distance of its
weights to retrained ones is shown beside that of the old weights: where the two are equal, the solver stopped where it
began, and nothing was forgotten.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import cg
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression, Ridge

from ..encoding.codes import Code, random_code
from ..estimator import FittedModel
from ..exact.arrays import Floats, Slots
from ..exact.moments import Moments
from ..exact.threads import one_blas_thread
from ..learning.blueprint import draw_blueprint
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule
from ..learning.settings import Settings
from ..learning.state import ModelState, place_rows
from ..regressor import CodedRegressor
from ..stores.ids import IdIndex
from ..stores.store import coded_floats
from ..transformers import RandomFourier
from .data import DATASETS, ExperimentTable
from .experiments import Influence, TradeOff, WarmStart

TIMING_REPEATS = 3  # a time is the shortest of this many: disturbances only ever add
MAX_REFIT_BYTES = 4e9  # a refit that would need more memory is timed on a part of its rows and extrapolated
CG_TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)

ResultRow = dict[str, Any]
MeasureCache = Callable[[int, Callable[[], list[ResultRow]]], list[ResultRow]]  # the k-th point's rows, saved or new


def run_influence(experiment: Influence, seed: int, *, share: float = 1.0) -> list[ResultRow]:
    """Return the test error for each share of training rows left, by either criterion, of one run."""
    rng = np.random.default_rng([seed, 1])
    sample = DATASETS[experiment.data].draw_table(rng, share=share)
    features = None
    if experiment.features is not None:
        features = RandomFourier(experiment.features, random_state=int(rng.integers(2**31)))
    order = np.argsort(row_depths(sample.original[: sample.train]), kind="stable")  # the most extreme row first
    columns = experiment.features or sample.X.shape[1]
    rows = []
    for left in np.linspace(1.0, 0.1, experiment.points):
        n = round(left * sample.train)
        if n <= columns:
            break
        for removed, kept in (("outliers", order[-n:]), ("inliers", order[:n])):
            model = CodedRegressor(
                code=Code.single(), features=features, alpha=experiment.alpha, fit_intercept=False, bounds="unit",
                target_bounds="unit", outside="extrapolate", random_state=0,
            ).fit(sample.X[kept], sample.y[kept])  # fmt: skip
            error = np.mean((model.predict(sample.X[sample.train :]) - sample.y[sample.train :]) ** 2)
            rows.append({"removed": removed, "left": round(float(left), 3), "test_mse": float(error)})
    return rows


def row_depths(original: Floats) -> Floats:
    """Return each row's depth: the least distance of its features, in ranks, from the nearer end."""
    ranks = rankdata(original, axis=0, method="average") / len(original)
    least: Floats = np.minimum(ranks, 1 - ranks).min(axis=1)
    return least


@dataclass(frozen=True, eq=False)
class SweepPoint:
    """One point of the sweep: a code, features, and random draws."""

    columns: ResultRow  # its columns in the table
    code: Code
    features: RandomFourier | None
    seed: int
    learner: int  # the learner whose refit is timed
    forgotten: Slots  # rows to unlearn

    @classmethod
    def draw(
        cls,
        columns: ResultRow,
        code: Code,
        features: RandomFourier | None,
        sample: ExperimentTable,
        rng: np.random.Generator,
    ) -> "SweepPoint":
        """Draw seed, learner and rows."""
        seed, learner = int(rng.integers(2**31)), int(rng.integers(code.learners))
        return cls(columns, code, features, seed, learner, rng.choice(sample.train, size=TIMING_REPEATS, replace=False))


def run_trade_off(
    experiment: TradeOff, seed: int, *, share: float = 1.0, cached: MeasureCache = lambda k, measure: measure()
) -> list[ResultRow]:
    """Draw or shuffle the data, split it, and measure every model of the sweep, for one run."""
    rng = np.random.default_rng([seed, 0])
    sample = DATASETS[experiment.data].draw_table(rng, share=share)
    rows: list[ResultRow] = []
    for k, point in enumerate(sweep_points(experiment, sample, rng)):
        rows += [point.columns | row for row in cached(k, partial(measure_point, sample, point, experiment.alphas))]
    return rows


def sweep_points(experiment: TradeOff, sample: ExperimentTable, rng: np.random.Generator) -> Iterator[SweepPoint]:
    """Yield the points to measure; their draws do not depend on what was measured before."""
    projection = int(rng.integers(2**31))
    for rate, s in sweep_sizes(experiment, sample):
        for intercept in experiment.intercepts:
            code = Code.uncoded(s) if rate == 1 else random_code(s, s // rate, balanced=False, random_state=rng)
            features = (
                None if experiment.features is None else RandomFourier(experiment.features, random_state=projection)
            )
            where = {"features": "projected", "rate": rate, "shards": s, "intercept": intercept}
            yield SweepPoint.draw(where, code, features, sample, rng)
    if experiment.baseline:
        where = {"features": "original", "rate": 1, "shards": 1, "intercept": False}
        yield SweepPoint.draw(where, Code.single(), None, sample, rng)


def sweep_sizes(experiment: TradeOff, sample: ExperimentTable) -> Iterator[tuple[int, int]]:
    """Yield pairs (rate, shards): log-spaced multiples of the rate, while a shard keeps more rows than features."""
    D = experiment.features or sample.X.shape[1]
    for rate in (1, *experiment.rates):
        most = sample.train // (D + 1) // rate
        if not most:
            continue
        for learners in np.unique(np.geomspace(1, most, experiment.points).round().astype(int)):
            yield rate, int(learners) * rate


def measure_point(sample: ExperimentTable, point: SweepPoint, alphas: tuple[float, ...]) -> list[ResultRow]:
    """Learn with one code and measure for each penalty."""
    model = CodedRegressor(
        code=point.code, features=point.features, alpha=alphas[0], fit_intercept=point.columns["intercept"],
        bounds="unit", target_bounds="unit", outside="extrapolate", random_state=point.seed,
    )  # fmt: skip
    train, test = slice(None, sample.train), slice(sample.train, None)
    started = time.perf_counter()
    ensembles = fit_ensembles(model, sample, alphas, point.forgotten)
    fitted = time.perf_counter() - started  # on all threads that there are, unlike the costs below
    X, y, shard_rows = read_shard_part(ensembles[0], point.learner)
    rows = []
    for alpha, ensemble in zip(alphas, ensembles, strict=True):
        errors = [(ensemble.predict(sample.X[part])[:, 0] - sample.y[part]) ** 2 for part in (test, train)]
        rows.append(
            {
                "alpha": alpha,
                "learners": point.code.learners,
                "shard_rows": shard_rows,
                "test_mse": float(np.mean(errors[0])),
                "train_mse": float(np.mean(errors[1])),
                "refit_seconds": time_refit(X, y, alpha) * shard_rows / len(X),
                "extrapolated": len(X) < shard_rows,
                "fit_seconds": fitted,
            }
        )
    unlearning = time_unlearning(model, point.forgotten)  # last: it changes the model
    return [row | {"unlearn_seconds": unlearning} for row in rows]


def fit_ensembles(
    model: CodedRegressor, sample: ExperimentTable, alphas: tuple[float, ...], forgotten: Slots
) -> list[Ensemble]:
    """Fit a model and return its ensemble for each penalty; the moments are the same for all.

    Moments are kept only of the learners that the ``forgotten`` rows feed, which are all that the model can unlearn:
    those of 249 learners on 2,000 features take 12 GB.
    """
    blueprint = draw_blueprint(Settings.from_model(model), sample.X.shape[1], 1)
    rows, slots = place_rows(blueprint, sample.X[: sample.train], sample.y[: sample.train, None])
    extents = blueprint.measure(rows)
    encoder, code = blueprint.encoder(extents), blueprint.code
    rules, fed = [RidgeRule(alpha) for alpha in alphas], code.learners_of(slots[forgotten])
    states: list[Moments | None] = []
    models: list[list[Any]] = [[] for _ in rules]
    with one_blas_thread():
        for j in range(code.learners):
            state = rules[0].learn(encoder, rows, j)
            states.append(state if j in fed else None)
            for rule, solved in zip(rules, models, strict=True):
                solved.append(rule.model(state, encoder))
    ensembles = [
        Ensemble(encoder, rows, rule, "mean", states, solved, [None] * code.learners)
        for rule, solved in zip(rules, models, strict=True)
    ]
    held = ModelState(blueprint, ensembles[0], extents, len(slots), len(slots))
    model._set_fitted_model(FittedModel(held, IdIndex(None, slots), default_ids=True, flat=True))
    return ensembles


def read_shard_part(ensemble: Ensemble, learner: int) -> tuple[Floats, Floats, int]:
    """Return a learner's coded rows, or as many as a refit can hold in `MAX_REFIT_BYTES`, and their total number."""
    encoder, code = ensemble.encoder, ensemble.encoder.code
    live = ensemble.store.live.reshape(-1, code.shards)[:, code.lanes_of(learner)]
    total = int(np.count_nonzero(live.any(axis=1)))
    most = min(total, int(MAX_REFIT_BYTES / (3 * 8 * encoder.n_weights)))  # scikit-learn holds about three copies
    blocks, row_count = [], 0
    for block in ensemble.store.shard(encoder, learner):
        blocks.append(block)
        row_count += len(block.rows)
        if row_count >= most:
            break
    X, y = coded_floats(encoder, iter(blocks))
    return X[:most], y[:most, 0], total


def time_refit(X: Floats, y: Floats, alpha: float) -> float:
    """Return the seconds of scikit-learn's refit of one weak learner: the paper's cost."""
    estimator = Ridge(alpha, fit_intercept=False) if alpha else LinearRegression(fit_intercept=False)
    return _time_calls(lambda: estimator.fit(X, y))


def time_unlearning(model: CodedRegressor, ids: Any) -> float:
    """Return the seconds of the whole call of `unlearn`: our cost."""
    rows = iter(ids.tolist())
    return _time_calls(lambda: model.unlearn(next(rows)), times=len(ids))


def _time_calls(call: Callable[[], object], times: int = TIMING_REPEATS) -> float:
    with one_blas_thread():
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
    return min(seconds)


def run_warm_start(experiment: WarmStart, seed: int, *, share: float = 1.0) -> list[ResultRow]:
    """Unlearn a row and solve its learner again by conjugate gradients, from the old weights and from zero."""
    rng = np.random.default_rng([seed, 2])
    sample = DATASETS[experiment.data].draw_table(rng, share=share)
    model = CodedRegressor(
        code=random_code(experiment.shards, 1, random_state=rng), alpha=experiment.alpha, fit_intercept=False,
        features=RandomFourier(experiment.features, random_state=int(rng.integers(2**31))), bounds="unit",
        target_bounds="unit", outside="extrapolate", random_state=int(rng.integers(2**31)),
    ).fit(sample.X[: sample.train], sample.y[: sample.train])  # fmt: skip
    old = model.weights_
    model.unlearn(int(rng.integers(sample.train)))
    new = model.weights_
    Q, q = model.coded_shard(0)
    A, b = Q.T @ Q + experiment.alpha * np.eye(Q.shape[1]), Q.T @ q
    rows = []
    for tolerance in CG_TOLERANCES:
        for start, name in ((old, "old weights"), (np.zeros_like(old), "zero")):
            solved, iterations = solve_by_cg(A, b, start, tolerance)
            error = float(np.linalg.norm(solved - new) / np.linalg.norm(new))
            moved = float(np.linalg.norm(old - new) / np.linalg.norm(new))
            rows.append(
                {"start": name, "tolerance": tolerance, "iterations": iterations, "error": error, "old_error": moved}
            )
    return rows


def solve_by_cg(A: Floats, b: Floats, start: Floats, tolerance: float) -> tuple[Floats, int]:
    """Return the solution by conjugate gradients, and the number of iterations."""
    iterations = 0

    def count(_: Floats) -> None:
        nonlocal iterations
        iterations += 1

    solved, _ = cg(A, b, x0=start, rtol=tolerance, atol=0.0, maxiter=100 * len(b), callback=count)
    return solved, iterations
