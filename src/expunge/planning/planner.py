"""`plan`: looks at a sample of rows, tries settings, and says which model to train and what each choice costs."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_X_y

from ..encoding.bounds import BoundsLike
from ..encoding.randomness import as_generator
from ..encoding.scales import ScalesLike
from ..encoding.values import as_float, flag, whole_number
from ..errors import InvalidInput, InvalidSetting
from ..exact.arrays import Floats
from ..exact.threads import one_blas_thread
from ..regressor import CodedRegressor
from ..stores.ids import as_ids
from .candidates import CODINGS, Candidate, TableSize, TriedCandidate, choose_candidate
from .column_scales import choose_target_scales, complete_scales, count_knot_bits, split_scales, split_target_scales
from .finals import (
    FORGET_STEPS_MS,
    LINE_ALPHAS,
    OUTSIDE_CHOICES,
    Finals,
    Reference,
    measure_line_advantage,
    try_line,
    try_references,
)
from .plan_file import SCORE_DIGITS
from .report import write_advice
from .sample import MAX_QUICK_ROWS, MAX_SAMPLE_ROWS, Validation, draw_sample, refuse_out_of_bounds
from .search import SHAPE_KINDS, search_shapes
from .shapes import EIGHTHS, MAX_BLENDED_SHAPES, MAX_MIXED_INPUTS, MAX_MIXING, MAX_SCALE_POWER
from .trial import ALPHAS

# MERGED knowledge: What a plan knows: how many bits its choice can carry about the people whose rows it saw.
# MERGED knowledge:
# MERGED knowledge: A plan picks one of N settings; whoever reads it learns at most log2 N bits about all of them together. Knots have a
# MERGED knowledge: code instead, in which what is unusual has long words: whoever reads them learns at most the length of theirs. The score
# MERGED knowledge: in a plan file is rounded, and counts like a setting.


_SCALE_CHOICES = 2 * MAX_SCALE_POWER + 2  # what the scale of an input can be
_MAGNITUDES = 660  # orders of magnitude of a float, and 0
_MIXING_CHOICES = 2 * MAX_MIXING * EIGHTHS - 1  # and an entry of a mixing matrix
_SCORE_BITS = 2 * math.log2(10**SCORE_DIGITS * _MAGNITUDES)  # the error and its spread; R2 follows from the error
_LINE_BITS = 1.0  # whether it is a linear model


def count_bits(columns: int, knots: Sequence[Sequence[float]], targets: int) -> float:
    """The logarithm of the number of settings that a plan could have picked.

    ``columns`` are the scaled ones, each with a relevance in each of the shapes that are blended, and some of them
    mixed, in one of these at most; ``knots`` are those that the plan gave to each input, none if the scales are not its
    own; ``targets`` are those whose scale is, one of two.
    """
    settings = (
        (len(SHAPE_KINDS) + 1) ** MAX_BLENDED_SHAPES
        * len(ALPHAS)
        * (len(FORGET_STEPS_MS) + 1)
        * len(CODINGS)
        * MAX_BLENDED_SHAPES
    )
    relevance = MAX_BLENDED_SHAPES * columns * math.log2(_SCALE_CHOICES)
    mixed = min(MAX_MIXED_INPUTS, columns)
    mixing = math.log2(math.comb(columns, mixed)) + mixed**2 * math.log2(_MIXING_CHOICES)
    return (
        _SCORE_BITS + _LINE_BITS + targets + math.log2(settings) + relevance + mixing + sum(map(count_knot_bits, knots))
    )


def count_line_bits() -> float:
    """The same for a plan that picked a linear model."""
    return _SCORE_BITS + _LINE_BITS + math.log2(len(LINE_ALPHAS) * len(OUTSIDE_CHOICES))


_MAX_VALUE = 1e150  # squares of larger numbers are none
_SEARCH_SHARE, _FINALS_SHARE = 0.5, 0.4  # about their parts of the time


@dataclass(frozen=True, eq=False)
class Plan:
    """What `plan` found.

    Attributes
    ----------
    best : CodedRegressor
        The model to train, not fitted, with everything set.
    table : list of Candidate
        Every candidate: settings, validation error, R2, ms to forget, s to train, MB. ``pandas.DataFrame(plan.table)``
        makes a frame of it.
    references : list of Reference
        A linear model and boosted trees on the same split.
    choice : Candidate
        The line of the table that `best` is.
    bits : float
        At most so many bits the plan tells about all people together whose rows it saw.
    rows, sampled : int
        Rows of the table, and of the sample that was looked at.
    """

    best: CodedRegressor
    table: list[Candidate]
    references: list[Reference]
    choice: Candidate
    bits: float
    rows: int
    sampled: int
    forget_ms: float | None
    _line_advantage: float | None
    _eligible: list[TriedCandidate]
    _people: NDArray[np.intp]
    _base: dict[str, Any]

    def within(self, forget_ms: float | None) -> CodedRegressor:
        """The model to train if a row must be forgotten within so many milliseconds, without planning again."""
        limit = _check_limit(forget_ms)
        return _build_model(choose_candidate(self._eligible, self._people, limit), self._base)

    @property
    def advice(self) -> str:
        """What was chosen, why, and what was given up, in words."""
        return write_advice(self.choice, self.table, self.references, self.forget_ms, self._line_advantage)

    def __str__(self) -> str:
        from .report import render_text

        return render_text(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write an HTML page: the advice, the picture, every candidate, and what the plan may know."""
        from .report import write_report

        with _explain_write_errors(path):
            write_report(self, path)

    def figure(self, path: str | os.PathLike[str]) -> None:
        """Draw error against time to forget, all candidates and the references; needs matplotlib."""
        from .report import write_figure

        with _explain_write_errors(path):
            write_figure(self, path)


def plan(
    X: Any,
    y: Any,
    ids: Any = None,
    *,
    bounds: BoundsLike = None,
    target_bounds: BoundsLike = None,
    scales: ScalesLike = None,
    target_scales: ScalesLike = None,
    clip: bool = False,
    random_state: int = 0,
    forget_ms: float | None = None,
    max_features: int = 2000,
    references: bool = True,
    quick: bool = False,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Plan:
    """Choose a model for these rows: kernel, relevance of the inputs, number of features, penalty and code.

    It looks at a sample of up to 20,000 rows, split by person. No decision depends on the clock: the same rows and seed
    give the same plan on every machine. The plan is chosen by looking at rows that may later be erased, and stays as it
    is when they are: `Plan.bits` bounds what it can tell about them. Plan on rows that are not personal if you can.

    Parameters
    ----------
    X : array or frame, shape (n, d)
        The inputs: numbers without gaps.
    y : array, shape (n,) or (n, t)
        The target or targets.
    ids : array of int or str, shape (n,), optional
        Whose row it is: nobody is both learned from and judged on. Default: every row is another person's.
    bounds, target_bounds : None, "unit" or (low, high)
        As in `CodedRegressor`; the model gets them. None: observed, so that erasing who holds a bound refits the model.
    scales : optional
        As in `CodedRegressor`. None: inputs with many values are given twice, min-max and by knots that are rounded
        quantiles of the sample. In a list, None as an entry does that for one input.
    target_scales : optional
        As in `CodedRegressor`. None, also as an entry of a list: linear or log, whichever has less error.
    clip : bool
        Whether rows outside declared bounds are clipped instead of refused; the model gets it, too.
    random_state : int
        The seed of sample, features and code, also of the model.
    forget_ms : float, optional
        The time that forgetting one row may take, predicted from counts of operations.
    max_features : int
        The most cosines that are tried.
    references : bool
        Whether to try a linear model and boosted trees for comparison.
    quick : bool
        Whether to look less far: fewer rows, fewer kinds of features, no codes; for a first model in seconds.
    rows : int, optional
        How many rows will be trained on, if X has only some of them: for the costs.
    progress : callable, optional
        Is called with how far the plan is, from 0 to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((400, 2))
    >>> result = plan(X, np.sin(9 * X[:, 0]), max_features=50, references=False)
    >>> result.choice.r2 > 0.9
    True
    >>> model = result.best.fit(X, np.sin(9 * X[:, 0]))
    """
    X, y, owners = _check_rows(X, y, ids)
    limit, told = _check_limit(forget_ms), progress or (lambda share: None)
    most, seed = whole_number("max_features", max_features), _check_seed(random_state)
    refuse_out_of_bounds(X, y, bounds, target_bounds, clip=flag("clip", clip))
    sample = draw_sample(
        X, y, owners, as_generator(seed), max_rows=MAX_QUICK_ROWS if flag("quick", quick) else MAX_SAMPLE_ROWS
    )
    said, left = split_scales(scales, X.shape[1], unit=isinstance(bounds, str))
    said_targets, left_targets = split_target_scales(target_scales, y.shape[1], unit=isinstance(target_bounds, str))
    declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
    base = {**declared, "clip": clip, "random_state": seed}
    ground_of = partial(Validation.from_sample, sample, **declared, scales=complete_scales(said, left, sample.X))
    count = len(X) if rows is None else whole_number("rows", rows)
    with one_blas_thread():  # the threads work on parts of the rows: BLAS's own would wait for each other
        ground = choose_target_scales(said_targets, left_targets, sample.y, ground_of, seed)
        size = TableSize(count, X.shape[1], ground.columns, ground.targets)
        found = search_shapes(ground, seed, lambda share: told(_SEARCH_SHARE * share), quick=quick)
        tried = Finals(ground, size, seed, most, with_codes=not quick).run(
            found, limit, lambda share: told(_SEARCH_SHARE + _FINALS_SHARE * share)
        )
        line = try_line(sample, declared | {"scales": said, "target_scales": said_targets}, size.rows, seed)
        doubt = measure_line_advantage(ground, sample, line, tried, limit, seed)
    others = try_references(sample, ground.variance, seed) if flag("references", references) else []
    told(1.0)
    eligible = [line] if doubt is not None and doubt >= 0 else [*tried, line]
    tried.append(line)
    choice = choose_candidate(eligible, ground.people, limit)
    table = [one.to_candidate(ground.people) for one in tried]
    return Plan(
        best=_build_model(choice, base),
        table=table,
        references=others,
        choice=table[tried.index(choice)],
        bits=count_line_bits()
        if choice is line
        else count_bits(ground.columns, _planned_knots(ground, left), len(left_targets)),
        rows=size.rows,
        sampled=len(sample.X),
        forget_ms=limit,
        _line_advantage=doubt,
        _eligible=eligible,
        _people=ground.people,
        _base=base,
    )


@contextmanager
def _explain_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say why a file cannot be written."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InvalidSetting(f"there is no folder {folder}")
    try:
        yield
    except OSError as error:
        raise InvalidSetting(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None


def _check_rows(X: Any, y: Any, ids: Any) -> tuple[Floats, Floats, NDArray[np.generic] | None]:
    """The rows as arrays, (n, d) and (n, t), and whose they are, (n,), if somebody says."""
    try:
        X, y = check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        shows = any(part in said for part in ("could not convert", "array=", "must be a string or a real number"))
        raise InvalidInput("X and y must be tables of numbers" if shows else said) from None  # no cell is shown
    if max(np.abs(X).max(), np.abs(y).max()) > _MAX_VALUE:
        raise InvalidInput(f"X and y must not have numbers beyond {_MAX_VALUE:g}; rescale the column")
    return X, y.reshape(len(y), -1), None if ids is None else as_ids(ids, rows=len(X))


def _check_seed(random_state: object) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InvalidSetting(f"random_state must be a whole number >= 0, so that plans repeat, got {random_state!r}")
    return int(random_state)


def _check_limit(forget_ms: float | None) -> float | None:
    if forget_ms is None:
        return None
    if not 0 < as_float(forget_ms) < np.inf:
        raise InvalidSetting(f"forget_ms must be None or a number of milliseconds above 0, got {forget_ms!r}")
    return as_float(forget_ms)


def _planned_knots(validation: Validation, undecided: list[int]) -> list[list[float]]:
    """The knots that were proposed for each input that was left to the plan."""
    every = validation.folds[0].encoder.scales.by_input
    return [[knot for scale in every[j] if not isinstance(scale, str) for knot in scale] for j in undecided]


def _build_model(candidate: TriedCandidate, base: dict[str, Any]) -> CodedRegressor:
    names = ("shards", "rate", "features", "alpha", "scales", "target_scales", "outside")
    return CodedRegressor(**{name: getattr(candidate.settings, name) for name in names}, **base)
