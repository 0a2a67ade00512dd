"""Candidates: the settings that a plan chooses from, each with a validation error and predicted costs.

Costs are predicted from counts of operations. The rates below were measured once, with the native kernels on one core
of an ordinary server. They are constants, so that a choice that depends on costs is the same on every machine. Times
measured on this machine are shown beside them and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import Code
from ..encoding.features import FeatureMap
from ..encoding.randomness import as_generator
from ..encoding.wording import describe_kernels
from ..exact.arrays import Floats
from ..learning.settings import Settings
from ..transformers import RandomFourier
from .sample import standard_error
from .trial import Trial, rounded_error

MAX_GIVEN_UP = 0.01  # the largest relative increase of the error accepted for a cheaper model

_CALL_MS = 0.1  # ms per request: Python's overhead
_ENTRY_MS = 1.5e-6  # ms per entry of a w x w matrix that is updated, converted and copied
_FLOP_MS = 1 / 2.7e7  # ms per multiplication and addition in LAPACK and BLAS, on one thread
_COSINE_MS = 1.5e-6  # ms per cosine
_EXACT_PRODUCTS = 3  # exact products per float product


@dataclass(frozen=True)
class Coding:
    """How rows are distributed over learners: ``shards`` lanes, ``rate`` rows per coded row."""

    shards: int
    rate: int

    @property
    def learners(self) -> int:
        """Weak learners, r."""
        return self.shards // self.rate

    def __str__(self) -> str:
        if self.shards == 1:
            return "one learner"
        if self.rate == 1:
            return f"uncoded, {self.shards} shards"
        return f"coded, rate {self.rate}" + (f", {self.learners} learners" if self.learners > 1 else "")

    def describe_benefit(self) -> str:
        """Return a sentence on the benefits and limits of this code."""
        if self.shards == 1:
            return (
                "the lowest error for its features; every row counts in full. Training and audit read every row; "
                "the model before and after a deletion together reveal the deleted row"
            )
        count = self.shards if self.rate == 1 else self.rate
        part = _FRACTION_WORDS.get(count, f"1/{count}")
        if self.rate == 1:
            return (
                f"learners without a closed form train on {part} of the rows; no benefit for ridge, which forgets "
                "as fast with one learner"
            )
        return (
            f"training and audit cost {part} of the products; the model can be stored without raw rows "
            "(keep='coded'); the model before and after a deletion reveals less about the row"
            + (f", and with {self.learners} learners less still" if self.learners > 1 else "")
        )

    def apply(self, settings: Settings) -> Settings:
        """Return the settings with this code."""
        return replace(settings, shards=self.shards, rate=self.rate, code=None)

    def draw_code(self) -> Code:
        """Draw a code of this kind."""
        return Settings(shards=self.shards, rate=self.rate).draw_code(as_generator(0))


SINGLE = Coding(1, 1)
CODINGS = (SINGLE, Coding(2, 2), Coding(5, 5), Coding(10, 10), Coding(20, 5), Coding(5, 1))

_FRACTION_WORDS = {2: "half", 5: "a fifth", 10: "a tenth", 20: "a twentieth"}


@dataclass(frozen=True)
class Costs:
    """Predicted costs: ``forget_ms`` per row, ``train_s`` for all rows, ``mb`` of memory."""

    forget_ms: float
    train_s: float
    mb: float


def predict_costs(code: Code, *, rows: int, inputs: int, cosines: int, width: int) -> Costs:
    """Predict the costs of a ridge model; ``width`` counts features, the intercept and targets."""
    lanes = sum(len(code.lanes_of(j)) for j in range(code.learners))  # pairs of a lane and a learner that it feeds
    per_row = lanes / code.shards  # learners that a row feeds
    coded_rows = rows / code.shards * code.learners
    products = coded_rows * _EXACT_PRODUCTS * width**2 / 2 * _FLOP_MS * 2
    train = rows * per_row * cosines * _COSINE_MS + products + code.learners * _solve_ms(width)
    moments = code.learners * _EXACT_PRODUCTS * width * (width + 1) / 2 * 8
    return Costs(_CALL_MS + per_row * _solve_ms(width), train / 1e3, (moments + rows * inputs * 8) / 1e6)


def _solve_ms(width: int) -> float:
    """Return the milliseconds to change one learner's moments by a row, and to solve."""
    return _ENTRY_MS * width**2 + _FLOP_MS * width**3 / 3


def max_width(forget_ms: float) -> int:
    """Return the largest width that forgets a row within ``forget_ms`` milliseconds, with one learner per row."""
    width = 1
    while _CALL_MS + _solve_ms(width + 1) <= forget_ms:
        width += 1
    return width


@dataclass(frozen=True)
class Candidate:
    """One line of a plan's table: a setting, its validation error and its costs.

    Attributes
    ----------
    code, shards, rate
        How rows are distributed over learners.
    features, in_words, cosines
        The features as a command-line option (without the relevance of each input), the same in words, and the
        number of cosines; "identity" is a linear model.
    target_scales : str
        The scale on which each target is learned: "linear" or "log".
    outside : str
        How rows outside the bounds are predicted: "clamp" or "extrapolate".
    alpha : float
        The ridge penalty.
    error : float
        Mean squared error on the validation rows, divided by the target's variance there.
    spread : float
        The standard error of ``error``.
    r2 : float
        1 - error.
    forget_ms, train_s, mb : float
        Predicted from counts of operations: time to forget a row, time to train on all rows (one thread), memory.
    measured_forget_ms, measured_train_s : float
        Measured on this machine, on the sample. No choice depends on them.
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
class TriedCandidate:
    """A setting that was tried: its settings, costs, and the errors of all validation rows."""

    coding: Coding
    settings: Settings
    errors: Floats  # (m,)
    choice_errors: Floats  # (m,), the errors that choices are based on: see `Trial`
    costs: Costs
    measured_times: tuple[float, float]  # ms to forget, s to train
    is_line: bool = False  # whether it is the linear model

    @property
    def error(self) -> float:
        """The mean choice error, rounded so that all machines compare alike."""
        return rounded_error(self.choice_errors)

    @classmethod
    def from_trial(
        cls, coding: Coding, trial: Trial, size: "TableSize", measured: tuple[float, float]
    ) -> "TriedCandidate":
        """Add the costs for a table of this size to a trial."""
        cosines = _count_cosines(trial.settings)
        width = cosines + size.columns + 1 + size.targets
        costs = predict_costs(coding.draw_code(), rows=size.rows, inputs=size.inputs, cosines=cosines, width=width)
        return cls(coding, trial.settings, trial.errors, trial.choice_errors, costs, measured)

    def to_candidate(self, people: NDArray[np.intp]) -> Candidate:
        """Return the line of the plan's table."""
        error = float(self.errors.mean())
        return Candidate(
            code=str(self.coding),
            shards=self.coding.shards,
            rate=self.coding.rate,
            features=features_option(self.settings.features),
            in_words=features_in_words(self.settings.features),
            cosines=_count_cosines(self.settings),
            target_scales=", ".join(self.settings.target_scales or ["linear"]),
            outside=self.settings.outside,
            alpha=float(self.settings.alpha),
            error=error,
            spread=standard_error(self.errors, people),
            r2=1.0 - error,
            forget_ms=self.costs.forget_ms,
            train_s=self.costs.train_s,
            mb=self.costs.mb,
            measured_forget_ms=self.measured_times[0],
            measured_train_s=self.measured_times[1],
        )


@dataclass(frozen=True)
class TableSize:
    """The size of the table that will be trained on."""

    rows: int
    inputs: int
    columns: int  # scaled, d'
    targets: int


def choose_candidate(
    tried: Sequence[TriedCandidate], people: NDArray[np.intp], forget_ms: float | None
) -> TriedCandidate:
    """Return the cheapest to train among the candidates within one standard error of the best.

    Errors are paired over the validation rows. The standard error of a small sample is wide (15 % was given up on one
    table), so no candidate that is more than 1 % worse is chosen. Only candidates that forget a row within
    ``forget_ms`` are considered, or the fastest if there are none. The linear model is learned on a scale of its own,
    so it is compared by the errors in the target's own units.
    """
    fast = [candidate for candidate in tried if forget_ms is None or candidate.costs.forget_ms <= forget_ms]
    fast = fast or [min(tried, key=lambda candidate: candidate.costs.forget_ms)]
    others = [candidate for candidate in fast if not candidate.is_line] or fast
    best = min(others, key=lambda candidate: candidate.choice_errors.mean())
    for line in fast:
        if line.is_line and _is_as_good(line.errors, best.errors, people):
            return line
    good = [candidate for candidate in others if _is_as_good(candidate.choice_errors, best.choice_errors, people)]
    return min(good, key=lambda candidate: (candidate.costs.train_s, candidate.costs.forget_ms))


def _is_as_good(errors: Floats, best: Floats, people: NDArray[np.intp]) -> bool:
    """Return whether the mean error is within one standard error of the best, and at most `MAX_GIVEN_UP` larger."""
    worse = errors - best
    return bool(errors.mean() <= (1 + MAX_GIVEN_UP) * best.mean() and worse.mean() <= standard_error(worse, people))


def _count_cosines(settings: Settings) -> int:
    return int(settings.features.n_features) if isinstance(settings.features, RandomFourier) else 0


def features_option(features: FeatureMap | None) -> str:
    """Return the features as the value of `--features`, without the relevance of each input."""
    if not isinstance(features, RandomFourier):
        return "identity"
    order = "" if features.order is None else f",order={features.order}"
    return f"fourier:{features.n_features},kernel={features.kernel},linear{order}"


def features_in_words(features: FeatureMap | None) -> str:
    """Return the features in words; the inputs themselves are always among them."""
    if not isinstance(features, RandomFourier):
        return "the inputs themselves"
    order = {None: "", 1: ", each of 1 input"}.get(features.order, f", each of at most {features.order} inputs")
    return f"{features.n_features} cosines ({describe_kernels(features.kernel)}{order})"
