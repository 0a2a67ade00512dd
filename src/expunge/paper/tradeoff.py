"""Trade-off: error against the cost to forget one row, uncoded and coded, as the paper measures it and as ours does.

Cost in the paper is the time that scikit-learn takes to refit the affected weak learner; ours is the whole call of
`unlearn`. Both are taken on the same model and row, on one BLAS thread.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge

from ..encoding.codes import Code
from ..encoding.drawing import random_code
from ..exact.arrays import Floats, Slots
from ..exact.moments import Moments
from ..exact.threads import one_blas_thread
from ..fitted import Fitted, placed
from ..learning.blueprint import draw_blueprint
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule
from ..learning.settings import Settings
from ..learning.state import State
from ..regressor import CodedRegressor
from ..stores.ids import IdIndex
from ..stores.store import coded_floats
from ..transformers import RandomFourier
from .data import DATASETS, Sample
from .experiments import TradeOff

REPEATS = 3  # a time is the least of so many: what disturbs a run only ever adds
REFIT_BYTES = 4e9  # a refit that would need more is timed on a part of its rows and extrapolated

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """A code of the sweep, its features, and what is drawn for it."""

    where: Row  # its columns in the table
    code: Code
    features: RandomFourier | None
    seed: int
    learner: int  # whose refit is timed
    forgotten: Slots  # rows that are unlearned

    @classmethod
    def draw(
        cls, where: Row, code: Code, features: RandomFourier | None, sample: Sample, rng: np.random.Generator
    ) -> "Cell":
        """Draw seed, learner and rows."""
        seed, learner = int(rng.integers(2**31)), int(rng.integers(code.learners))
        return cls(where, code, features, seed, learner, rng.choice(sample.train, size=REPEATS, replace=False))


Measured = Callable[[int, Callable[[], list[Row]]], list[Row]]  # the k-th cell's rows: kept ones, or measured now


def run(
    experiment: TradeOff, seed: int, *, share: float = 1.0, measured: Measured = lambda k, measure: measure()
) -> list[Row]:
    """One run: draw or shuffle the data, split, and measure every model of the sweep."""
    rng = np.random.default_rng([seed, 0])
    sample = DATASETS[experiment.data].sample(rng, share=share)
    rows: list[Row] = []
    for k, cell in enumerate(cells(experiment, sample, rng)):
        rows += [cell.where | row for row in measured(k, partial(measure, sample, cell, experiment.alphas))]
    return rows


def cells(experiment: TradeOff, sample: Sample, rng: np.random.Generator) -> Iterator[Cell]:
    """Everything to measure; the draws do not depend on what was measured before."""
    projection = int(rng.integers(2**31))
    for rate, s in sweep(experiment, sample):
        for intercept in experiment.intercepts:
            code = Code.uncoded(s) if rate == 1 else random_code(s, s // rate, balanced=False, random_state=rng)
            features = (
                None if experiment.features is None else RandomFourier(experiment.features, random_state=projection)
            )
            where = {"features": "projected", "rate": rate, "shards": s, "intercept": intercept}
            yield Cell.draw(where, code, features, sample, rng)
    if experiment.baseline:
        where = {"features": "original", "rate": 1, "shards": 1, "intercept": False}
        yield Cell.draw(where, Code.single(), None, sample, rng)


def sweep(experiment: TradeOff, sample: Sample) -> Iterator[tuple[int, int]]:
    """Pairs (rate, shards): log-spaced, multiples of the rate, as long as a shard keeps more rows than features."""
    D = experiment.features or sample.X.shape[1]
    for rate in (1, *experiment.rates):
        most = sample.train // (D + 1) // rate
        if not most:
            continue
        for learners in np.unique(np.geomspace(1, most, experiment.points).round().astype(int)):
            yield rate, int(learners) * rate


def measure(sample: Sample, cell: Cell, alphas: tuple[float, ...]) -> list[Row]:
    """Learn with one code and measure for each penalty."""
    model = CodedRegressor(
        code=cell.code, features=cell.features, alpha=alphas[0], fit_intercept=cell.where["intercept"], bounds="unit",
        target_bounds="unit", outside="extrapolate", random_state=cell.seed,
    )  # fmt: skip
    train, test = slice(None, sample.train), slice(sample.train, None)
    started = time.perf_counter()
    ensembles = learn(model, sample, alphas, cell.forgotten)
    fitted = time.perf_counter() - started  # on all threads that there are, unlike the costs below
    X, y, shard_rows = shard_part(ensembles[0], cell.learner)
    rows = []
    for alpha, ensemble in zip(alphas, ensembles, strict=True):
        errors = [(ensemble.predict(sample.X[part])[:, 0] - sample.y[part]) ** 2 for part in (test, train)]
        rows.append(
            {
                "alpha": alpha,
                "learners": cell.code.learners,
                "shard_rows": shard_rows,
                "test_mse": float(np.mean(errors[0])),
                "train_mse": float(np.mean(errors[1])),
                "refit_seconds": refit_seconds(X, y, alpha) * shard_rows / len(X),
                "extrapolated": len(X) < shard_rows,
                "fit_seconds": fitted,
            }
        )
    unlearning = unlearn_seconds(model, cell.forgotten)  # last: it changes the model
    return [row | {"unlearn_seconds": unlearning} for row in rows]


def learn(model: CodedRegressor, sample: Sample, alphas: tuple[float, ...], forgotten: Slots) -> list[Ensemble]:
    """Fit a model and return its ensemble for each penalty; the moments are the same for all.

    Moments are kept only of the learners that the ``forgotten`` rows feed, which are all that the model can unlearn:
    those of 249 learners on 2,000 features take 12 GB.
    """
    blueprint = draw_blueprint(Settings.of(model), sample.X.shape[1], 1)
    rows, slots = placed(blueprint, sample.X[: sample.train], sample.y[: sample.train, None])
    extents = blueprint.measured(rows)
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
    held = State(blueprint, ensembles[0], extents, len(slots), len(slots))
    model._take(Fitted(held, IdIndex(None, slots), default_ids=True, flat=True))
    return ensembles


def shard_part(ensemble: Ensemble, learner: int) -> tuple[Floats, Floats, int]:
    """A learner's coded rows, or as many as a refit can take in `REFIT_BYTES`, and how many there are in all."""
    encoder, code = ensemble.encoder, ensemble.encoder.code
    live = ensemble.store.live.reshape(-1, code.shards)[:, code.lanes_of(learner)]
    total = int(np.count_nonzero(live.any(axis=1)))
    most = min(total, int(REFIT_BYTES / (3 * 8 * encoder.n_weights)))  # scikit-learn holds about three copies
    blocks, taken = [], 0
    for block in ensemble.store.shard(encoder, learner):
        blocks.append(block)
        taken += len(block.rows)
        if taken >= most:
            break
    X, y = coded_floats(encoder, iter(blocks))
    return X[:most], y[:most, 0], total


def refit_seconds(X: Floats, y: Floats, alpha: float) -> float:
    """What the paper calls cost: scikit-learn's refit of one weak learner."""
    estimator = Ridge(alpha, fit_intercept=False) if alpha else LinearRegression(fit_intercept=False)
    return _least_seconds(lambda: estimator.fit(X, y))


def unlearn_seconds(model: CodedRegressor, ids: Any) -> float:
    """What ours costs: the whole call of `unlearn`."""
    rows = iter(ids.tolist())
    return _least_seconds(lambda: model.unlearn(next(rows)), times=len(ids))


def _least_seconds(call: Callable[[], object], times: int = REPEATS) -> float:
    with one_blas_thread():
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
    return min(seconds)
