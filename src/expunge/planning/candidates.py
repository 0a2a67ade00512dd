"""Candidates: what a plan chooses from, each with its error and its costs."""

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
from .trial import Trial

# MERGED codes: Codes as candidates, and in words what each of them buys.


@dataclass(frozen=True)
class Coding:
    """How rows are shared out among learners: ``shards`` lanes, ``rate`` rows per coded row."""

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
        """What it buys, and what it does not."""
        if self.shards == 1:
            return (
                "the least error for its features; every row counts in full. Training and audit read every row; "
                "whoever sees the model before and after a deletion can reconstruct the row"
            )
        if self.rate == 1:
            return (
                f"learners that have no closed form train on a {_fraction_word(self.shards)} of the rows; nothing for ridge, "
                "which forgets as fast with one learner"
            )
        return (
            f"training and audit cost a {_fraction_word(self.rate)} of the products; a model that keeps no raw row is possible "
            "(keep='coded'); before and after a deletion tell less about the row"
            + (f"; {self.learners} learners blunt that further" if self.learners > 1 else "")
        )

    def apply(self, settings: Settings) -> Settings:
        """Settings with this code."""
        return replace(settings, shards=self.shards, rate=self.rate, code=None)

    def draw_code(self) -> Code:
        """A code of this kind."""
        return Settings(shards=self.shards, rate=self.rate).draw_code(as_generator(0))


SINGLE = Coding(1, 1)
CODINGS = (SINGLE, Coding(2, 2), Coding(5, 5), Coding(10, 10), Coding(20, 5), Coding(5, 1))

_FRACTION_WORDS = {2: "half", 5: "fifth", 10: "tenth", 20: "twentieth"}


def _fraction_word(count: int) -> str:
    return _FRACTION_WORDS.get(count, f"{count}th")


# MERGED costs: Costs: what a model takes to forget, to train and to hold, predicted from counts of operations.
# MERGED costs:
# MERGED costs: The rates below were measured once, with the native kernels on one core of an ordinary server; they are constants, so
# MERGED costs: that a choice that depends on costs is the same on every machine. What was measured here and now is shown beside them
# MERGED costs: and decides nothing.


_CALL_MS = 0.1  # ms per request: what Python takes
_ENTRY_MS = 1.5e-6  # ms per entry of a w x w matrix that is updated, converted and copied
_FLOP_MS = 1 / 2.7e7  # ms per multiplication and addition of LAPACK and BLAS, in one thread
_COSINE_MS = 1.5e-6  # ms per cosine
_PRODUCTS_PER_PRODUCT = 3  # exact products per product


@dataclass(frozen=True)
class Costs:
    """What a model takes: ``forget_ms`` per row, ``train_s`` for all rows, ``mb`` to hold."""

    forget_ms: float
    train_s: float
    mb: float


def predict_costs(code: Code, *, rows: int, inputs: int, cosines: int, width: int) -> Costs:
    """The costs of a ridge model: ``width`` counts features, ones and targets."""
    lanes = sum(len(code.lanes_of(j)) for j in range(code.learners))  # lanes that feed a learner, in all
    per_row = lanes / code.shards  # learners that a row feeds
    coded_rows = rows / code.shards * code.learners
    products = coded_rows * _PRODUCTS_PER_PRODUCT * width**2 / 2 * _FLOP_MS * 2
    train = rows * per_row * cosines * _COSINE_MS + products + code.learners * _solve_ms(width)
    moments = code.learners * _PRODUCTS_PER_PRODUCT * width * (width + 1) / 2 * 8
    return Costs(_CALL_MS + per_row * _solve_ms(width), train / 1e3, (moments + rows * inputs * 8) / 1e6)


def _solve_ms(width: int) -> float:
    """Milliseconds to change one learner's moments by a row, and to solve."""
    return _ENTRY_MS * width**2 + _FLOP_MS * width**3 / 3


def max_width(forget_ms: float) -> int:
    """The largest width that forgets a row within so many milliseconds, with one learner per row."""
    width = 1
    while _CALL_MS + _solve_ms(width + 1) <= forget_ms:
        width += 1
    return width


MAX_GIVEN_UP = 0.01  # the largest part of the error that is given up for a cheaper model


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
class TriedCandidate:
    """A candidate with what it is made of: its settings and the errors of all validation rows."""

    coding: Coding
    settings: Settings
    errors: Floats  # (m,)
    choice_errors: Floats  # (m,), what choices go by: see `Trial`
    costs: Costs
    measured_times: tuple[float, float]  # ms to forget, s to train
    is_line: bool = False  # whether it is the linear model

    @classmethod
    def from_trial(
        cls, coding: Coding, trial: Trial, size: "TableSize", measured: tuple[float, float]
    ) -> "TriedCandidate":
        """A trial with its costs for a table of this size."""
        cosines = _count_cosines(trial.settings)
        width = cosines + size.columns + 1 + size.targets
        costs = predict_costs(coding.draw_code(), rows=size.rows, inputs=size.inputs, cosines=cosines, width=width)
        return cls(coding, trial.settings, trial.errors, trial.choice_errors, costs, measured)

    def to_candidate(self, people: NDArray[np.intp]) -> Candidate:
        """The candidate as a line of a table."""
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
    """How large the table is that will be trained on."""

    rows: int
    inputs: int
    columns: int  # scaled, d'
    targets: int


def choose_candidate(
    tried: Sequence[TriedCandidate], people: NDArray[np.intp], forget_ms: float | None
) -> TriedCandidate:
    """Of those within one standard error of the best, paired over the validation rows, the cheapest to train.

    A small sample's standard error is wide (it gave up 15 % on one table): none is more than 1 % worse, either.
    Only those count that forget a row within ``forget_ms``; if none does, the fastest. A line is learned on a scale of
    its own: it is compared with what was chosen by the errors in the target's own units.
    """
    quick = [one for one in tried if forget_ms is None or one.costs.forget_ms <= forget_ms]
    quick = quick or [min(tried, key=lambda one: one.costs.forget_ms)]
    others = [one for one in quick if not one.is_line] or quick
    best = min(others, key=lambda one: one.choice_errors.mean())
    for line in quick:
        if line.is_line and _is_as_good(line.errors, best.errors, people):
            return line
    good = [one for one in others if _is_as_good(one.choice_errors, best.choice_errors, people)]
    return min(good, key=lambda one: (one.costs.train_s, one.costs.forget_ms))


def _is_as_good(errors: Floats, best: Floats, people: NDArray[np.intp]) -> bool:
    """Whether errors are within one standard error of others in the mean, and at most so much larger."""
    worse = errors - best
    return bool(errors.mean() <= (1 + MAX_GIVEN_UP) * best.mean() and worse.mean() <= standard_error(worse, people))


def _count_cosines(settings: Settings) -> int:
    return int(settings.features.n_features) if isinstance(settings.features, RandomFourier) else 0


def features_option(features: FeatureMap | None) -> str:
    """The features as the command line writes them, but for the relevance of single inputs."""
    if not isinstance(features, RandomFourier):
        return "identity"
    order = "" if features.order is None else f",order={features.order}"
    return f"fourier:{features.n_features},kernel={features.kernel},linear{order}"


def features_in_words(features: FeatureMap | None) -> str:
    """The features for people; that the inputs are beside the cosines is always so."""
    if not isinstance(features, RandomFourier):
        return "the inputs themselves"
    looks = {None: "", 1: ", each of 1 input"}.get(features.order, f", each of at most {features.order} inputs")
    return f"{features.n_features} cosines ({describe_kernels(features.kernel)}{looks})"
