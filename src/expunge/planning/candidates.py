"""Candidates: what a plan chooses from, each with its error and its costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encoding.features import FeatureMap
from ..encoding.wording import kernels_in_words
from ..exact.arrays import Floats
from ..learning.settings import Settings
from ..transformers import RandomFourier
from .codes import Coding
from .costs import Costs, predicted
from .sample import standard_error
from .trial import Trial

GIVEN_UP = 0.01  # the largest part of the error that is given up for a cheaper model


@dataclass(frozen=True)
class Candidate:
    """One setting: what it is, how well it predicts, and what it takes.

    Attributes
    ----------
    code, shards, rate
        How rows are shared out among learners.
    features, in_words, cosines
        The features, as the command line writes them (but for the relevance of single inputs) and in words, and how
        many of them are cosines; "identity" is a linear model.
    target_scales : str
        On which scale each target is learned: "linear" or "log".
    outside : str
        What is predicted for rows outside the bounds: "clamp" or "extrapolate".
    alpha : float
        The ridge penalty.
    error : float
        Mean squared error on the validation rows, over the target's variance there.
    spread : float
        Its standard error.
    r2 : float
        1 - error.
    forget_ms, train_s, mb : float
        Predicted from counts of operations: to forget a row, to train on all rows (one thread), to hold.
    measured_forget_ms, measured_train_s : float
        Measured here, on the sample. No choice depends on them.
    """

    code: str
    shards: int
    rate: int
    features: str
    in_words: str
    cosines: int
    target_scales: str
    outside: str
    alpha: float
    error: float
    spread: float
    r2: float
    forget_ms: float
    train_s: float
    mb: float
    measured_forget_ms: float
    measured_train_s: float


@dataclass(frozen=True, eq=False)
class Tried:
    """A candidate with what it is made of: its settings and the errors of all validation rows."""

    coding: Coding
    settings: Settings
    errors: Floats  # (m,)
    judged: Floats  # (m,), what choices go by: see `Trial`
    costs: Costs
    measured: tuple[float, float]  # ms to forget, s to train
    line: bool = False  # whether it is the linear model

    @classmethod
    def of(cls, coding: Coding, trial: Trial, size: "Size", measured: tuple[float, float]) -> "Tried":
        """A trial with its costs for a table of this size."""
        cosines = _cosines(trial.settings)
        width = cosines + size.columns + 1 + size.targets
        costs = predicted(coding.drawn(), rows=size.rows, inputs=size.inputs, cosines=cosines, width=width)
        return cls(coding, trial.settings, trial.errors, trial.judged, costs, measured)

    def shown(self, people: NDArray[np.intp]) -> Candidate:
        """The candidate as a line of a table."""
        error = float(self.errors.mean())
        return Candidate(
            code=str(self.coding),
            shards=self.coding.shards,
            rate=self.coding.rate,
            features=described(self.settings.features),
            in_words=in_words(self.settings.features),
            cosines=_cosines(self.settings),
            target_scales=", ".join(self.settings.target_scales or ["linear"]),
            outside=self.settings.outside,
            alpha=float(self.settings.alpha),
            error=error,
            spread=standard_error(self.errors, people),
            r2=1.0 - error,
            forget_ms=self.costs.forget_ms,
            train_s=self.costs.train_s,
            mb=self.costs.mb,
            measured_forget_ms=self.measured[0],
            measured_train_s=self.measured[1],
        )


@dataclass(frozen=True)
class Size:
    """How large the table is that will be trained on."""

    rows: int
    inputs: int
    columns: int  # scaled, d'
    targets: int


def chosen(tried: Sequence[Tried], people: NDArray[np.intp], forget_ms: float | None) -> Tried:
    """Of those within one standard error of the best, paired over the validation rows, the cheapest to train.

    A small sample's standard error is wide (it gave up 15 % on one table): none is more than 1 % worse, either.
    Only those count that forget a row within ``forget_ms``; if none does, the fastest. A line is learned on a scale of
    its own: it is compared with what was chosen by the errors in the target's own units.
    """
    quick = [one for one in tried if forget_ms is None or one.costs.forget_ms <= forget_ms]
    quick = quick or [min(tried, key=lambda one: one.costs.forget_ms)]
    others = [one for one in quick if not one.line] or quick
    best = min(others, key=lambda one: one.judged.mean())
    for line in quick:
        if line.line and _as_good(line.errors, best.errors, people):
            return line
    good = [one for one in others if _as_good(one.judged, best.judged, people)]
    return min(good, key=lambda one: (one.costs.train_s, one.costs.forget_ms))


def _as_good(errors: Floats, best: Floats, people: NDArray[np.intp]) -> bool:
    """Whether errors are within one standard error of others in the mean, and at most so much larger."""
    worse = errors - best
    return bool(errors.mean() <= (1 + GIVEN_UP) * best.mean() and worse.mean() <= standard_error(worse, people))


def _cosines(settings: Settings) -> int:
    return int(settings.features.n_features) if isinstance(settings.features, RandomFourier) else 0


def described(features: FeatureMap | None) -> str:
    """The features as the command line writes them, but for the relevance of single inputs."""
    if not isinstance(features, RandomFourier):
        return "identity"
    order = "" if features.order is None else f",order={features.order}"
    return f"fourier:{features.n_features},kernel={features.kernel},linear{order}"


def in_words(features: FeatureMap | None) -> str:
    """The features for people; that the inputs are beside the cosines is always so."""
    if not isinstance(features, RandomFourier):
        return "the inputs themselves"
    looks = {None: "", 1: ", each of 1 input"}.get(features.order, f", each of at most {features.order} inputs")
    return f"{features.n_features} cosines ({kernels_in_words(features.kernel)}{looks})"
