"""`plan`: try settings on a sample of rows, and recommend a model, with the costs of every choice."""

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
from ..encoding.scales import ScalesLike
from ..encoding.values import as_float, flag, whole_number
from ..errors import InvalidInput, InvalidSetting
from ..estimator import explain_inputs, explain_targets
from ..exact.arrays import Floats
from ..exact.threads import one_blas_thread
from ..preprocessing import SchemaTransformer
from ..regressor import CodedRegressor
from ..stores.ids import as_ids
from ..tables.schema import Schema
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
from .report import render_notebook, render_table, render_text, write_advice, write_figure, write_report
from .sample import (
    MAX_QUICK_ROWS,
    MAX_SAMPLE_ROWS,
    Hashes,
    Validation,
    draw_sample,
    hash_people,
    refuse_out_of_bounds,
)
from .search import SHAPE_KINDS, search_shapes
from .shapes import EIGHTHS, MAX_BLENDED_SHAPES, MAX_MIXED_INPUTS, MAX_MIXING, MAX_SCALE_POWER
from .trial import ALPHAS

_MAX_VALUE = 1e150  # larger numbers cannot be squared
_SEARCH_SHARE, _FINALS_SHARE = 0.5, 0.4  # of the progress: roughly their shares of the time

_SCALE_CHOICES = 2 * MAX_SCALE_POWER + 2  # possible scales of an input
_MAGNITUDES = 660  # orders of magnitude of a float, and 0
_MIXING_CHOICES = 2 * MAX_MIXING * EIGHTHS - 1  # possible entries of a mixing matrix
_SCORE_BITS = 2 * math.log2(10**SCORE_DIGITS * _MAGNITUDES)  # the error and its spread; R2 follows from the error
_LINE_BITS = 1.0  # whether it is a linear model


@dataclass(frozen=True, eq=False)
class Plan:
    """The result of `plan`.

    Attributes
    ----------
    best : CodedRegressor
        The recommended model: not fitted, with all parameters set.
    table : list of Candidate
        Every candidate: settings, validation error, R2, ms to forget, s to train, MB. Use
        ``pandas.DataFrame(plan.table)`` for a data frame.
    references : list of Reference
        A linear model and boosted trees on the same split.
    choice : Candidate
        The line of ``table`` that describes ``best``.
    bits : float
        Upper bound on the information, in bits, that the plan reveals about all sampled people together.
    rows, sampled : int
        Number of rows in the table and in the sample.
    people : int
        Number of people in the sample: those with the smallest keyed hashes.
    largest_hash : int
        The largest hash among them. A person whose hash is larger had no influence on the plan.
    quick, max_features, forget_ms
        As they were given.
    """

    best: CodedRegressor
    table: list[Candidate]
    references: list[Reference]
    choice: Candidate
    bits: float
    rows: int
    sampled: int
    people: int
    largest_hash: int
    forget_ms: float | None
    quick: bool
    max_features: int
    _line_advantage: float | None
    _eligible: list[TriedCandidate]
    _people: NDArray[np.intp]
    _base: dict[str, Any]

    def within(self, forget_ms: float | None) -> CodedRegressor:
        """Return the model to train if a row must be forgotten within ``forget_ms``, without planning again."""
        limit = _check_limit(forget_ms)
        return _build_model(choose_candidate(self._eligible, self._people, limit), self._base)

    @property
    def advice(self) -> str:
        """The choice, its reasons and its trade-offs, in words: one sentence per line."""
        return write_advice(self.choice, self.table, self.references, self.forget_ms, self._line_advantage)

    def __str__(self) -> str:
        return render_text(self)

    def __repr__(self) -> str:
        return render_table(self)

    def _repr_html_(self) -> str:
        return render_notebook(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write an HTML page: the advice, the figure, every candidate, and what the plan may reveal."""
        with _explain_write_errors(path):
            write_report(self, path)

    def figure(self, path: str | os.PathLike[str]) -> None:
        """Draw error against time to forget, for all candidates and references; needs matplotlib."""
        with _explain_write_errors(path):
            write_figure(self, path)


def plan(
    X: Any,
    y: Any,
    ids: Any = None,
    *,
    schema: Schema | None = None,
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

    It uses a sample of up to 20,000 rows, split by person. No decision depends on measured times: the same rows and
    seed give the same plan on every machine. The sample holds the people with the smallest keyed hashes of their ids,
    so planning without somebody outside the sample gives the same plan. A plan is based on rows that may later be
    erased, and does not change when they are: `Plan.bits` bounds what it can reveal about them, and `PlannedRegressor`
    plans again without them. If possible, plan on rows that are not personal.

    Parameters
    ----------
    X : array or frame, shape (n, d)
        The inputs: numbers without missing values or, with a schema, a frame with text, dates and gaps.
    y : array, shape (n,) or (n, t)
        The target or targets.
    ids : array of int or str, shape (n,), optional
        The person of each row: rows of one person are never both learned from and validated on. Default: every row is
        another person's.
    schema : Schema, optional
        The columns of a frame. It declares bounds and scales in place of the following parameters, and the recommended
        model takes what ``SchemaTransformer(schema)`` makes of the frame.
    bounds, target_bounds : None, "unit" or (low, high)
        As in `CodedRegressor`, and passed on to the model. None: observed, so erasing a person whose row sets a bound
        refits the model.
    scales : optional
        As in `CodedRegressor`. None: inputs with many values are given twice, min-max and by knots that are rounded
        quantiles of the sample. In a list, None as an entry does that for one input.
    target_scales : optional
        As in `CodedRegressor`. None, also as an entry of a list: linear or log, whichever has less error.
    clip : bool
        Whether rows outside declared bounds are clipped instead of refused; passed on to the model.
    random_state : int
        The seed of the sample, and of the model's features and code.
    forget_ms : float, optional
        The longest time to forget one row, as predicted from counts of operations.
    max_features : int
        The largest number of cosines to try.
    references : bool
        Whether to try a linear model and boosted trees for comparison.
    quick : bool
        Search less: fewer rows, fewer kinds of features, no codes; for a first model in seconds.
    rows : int, optional
        The number of rows that will be trained on, if X holds only a part of them; used to predict costs.
    progress : callable, optional
        Called with the completed share, from 0 to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((400, 2))
    >>> result = plan(X, np.sin(9 * X[:, 0]), max_features=50, references=False)
    >>> result.choice.r2 > 0.9
    True
    >>> model = result.best.fit(X, np.sin(9 * X[:, 0]))
    """
    declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
    declared |= {"scales": scales, "target_scales": target_scales}
    if schema is not None:
        if given := [name for name, value in declared.items() if value is not None]:
            raise InvalidSetting(f"a schema declares bounds and scales: leave out {', '.join(given)}")
        X, declared = SchemaTransformer(schema).transform(X), schema.plan_options()
    X, y, owners = _check_rows(X, y, ids)
    y = y if schema is None else schema.clip_targets(y)
    seed = check_seed(random_state)
    return plan_people(
        X,
        y,
        hash_people(owners, len(X), seed),
        **declared,
        clip=clip,
        random_state=seed,
        forget_ms=forget_ms,
        max_features=max_features,
        references=references,
        quick=quick,
        rows=rows,
        progress=progress,
    )


def plan_people(
    X: Floats,
    y: Floats,
    people: Hashes,
    *,
    bounds: BoundsLike,
    target_bounds: BoundsLike,
    scales: ScalesLike,
    target_scales: ScalesLike,
    clip: bool,
    random_state: int,
    forget_ms: float | None,
    max_features: int,
    references: bool = True,
    quick: bool = False,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Plan:
    """Plan like `plan`, from rows, (n, d) and (n, t), and the keyed hashes of their people (`hash_people`)."""
    limit, report_progress = _check_limit(forget_ms), progress or (lambda share: None)
    max_cosines, seed = whole_number("max_features", max_features), random_state
    refuse_out_of_bounds(X, y, bounds, target_bounds, clip=flag("clip", clip))
    sample = draw_sample(X, y, people, max_rows=MAX_QUICK_ROWS if flag("quick", quick) else MAX_SAMPLE_ROWS)
    declared, undecided = split_scales(scales, X.shape[1], unit=isinstance(bounds, str))
    declared_targets, undecided_targets = split_target_scales(
        target_scales, y.shape[1], unit=isinstance(target_bounds, str)
    )
    given_bounds: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
    base = {**given_bounds, "clip": clip, "random_state": seed}
    all_scales = complete_scales(declared, undecided, sample.X)
    validation_for = partial(Validation.from_sample, sample, **given_bounds, scales=all_scales)
    row_count = len(X) if rows is None else whole_number("rows", rows)
    with one_blas_thread():  # our threads work on parts of the rows; BLAS threads would wait for each other
        validation = choose_target_scales(declared_targets, undecided_targets, sample.y, validation_for, seed)
        # A power of two: people outside the sample must not move a choice, as long as there are about as many.
        counted = 1 << (row_count.bit_length() - 1)
        size = TableSize(counted, X.shape[1], validation.columns, validation.targets)
        shapes = search_shapes(validation, seed, lambda share: report_progress(_SEARCH_SHARE * share), quick=quick)
        tried = Finals(validation, size, seed, max_cosines, with_codes=not quick).run(
            shapes, limit, lambda share: report_progress(_SEARCH_SHARE + _FINALS_SHARE * share)
        )
        line_settings = given_bounds | {"scales": declared, "target_scales": declared_targets}
        line = try_line(sample, line_settings, size.rows, seed)
        line_advantage = measure_line_advantage(validation, sample, line, tried, limit, seed)
    others = try_references(sample, validation.variance, seed) if flag("references", references) else []
    report_progress(1.0)
    eligible = [line] if line_advantage is not None and line_advantage >= 0 else [*tried, line]
    tried.append(line)
    choice = choose_candidate(eligible, validation.people, limit)
    table = [candidate.to_candidate(validation.people) for candidate in tried]
    if choice is line:
        bits = count_line_bits()
    else:
        bits = count_bits(validation.columns, _planned_knots(validation, undecided), len(undecided_targets))
    return Plan(
        best=_build_model(choice, base),
        table=table,
        references=others,
        choice=table[tried.index(choice)],
        bits=bits,
        rows=row_count,
        sampled=len(sample.X),
        people=int(sample.people.max()) + 1,
        largest_hash=int(sample.hashes[-1]),
        forget_ms=limit,
        quick=quick,
        max_features=max_cosines,
        _line_advantage=line_advantage,
        _eligible=eligible,
        _people=validation.people,
        _base=base,
    )


def count_bits(columns: int, knots: Sequence[Sequence[float]], targets: int) -> float:
    """Return how many bits a plan can carry about the people whose rows it saw.

    A plan picks one of N settings, which reveals at most log2 N bits about all of them together. Knots have a code
    instead, in which unusual knots have long words, and reveal at most the length of their word. The score in a plan
    file is rounded, and counts like a setting.

    ``columns`` counts the scaled columns, each with a relevance in each of the blended shapes, and some of them mixed,
    in at most one of these; ``knots`` are those that the plan gave to each input, none if the scales were declared;
    ``targets`` counts the targets whose scale the plan chose, one of two.
    """
    kinds = (len(SHAPE_KINDS) + 1) ** MAX_BLENDED_SHAPES
    settings = kinds * len(ALPHAS) * (len(FORGET_STEPS_MS) + 1) * len(CODINGS) * MAX_BLENDED_SHAPES
    relevance = MAX_BLENDED_SHAPES * columns * math.log2(_SCALE_CHOICES)
    mixed = min(MAX_MIXED_INPUTS, columns)
    mixing = math.log2(math.comb(columns, mixed)) + mixed**2 * math.log2(_MIXING_CHOICES)
    knot_bits = sum(map(count_knot_bits, knots))
    return _SCORE_BITS + _LINE_BITS + targets + math.log2(settings) + relevance + mixing + knot_bits


def count_line_bits() -> float:
    """Return the bits that a plan can carry if it picked a linear model."""
    return _SCORE_BITS + _LINE_BITS + math.log2(len(LINE_ALPHAS) * len(OUTSIDE_CHOICES))


@contextmanager
def _explain_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of writing a file into messages."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InvalidSetting(f"there is no folder {folder}")
    try:
        yield
    except OSError as error:
        raise InvalidSetting(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None


def _check_rows(X: Any, y: Any, ids: Any) -> tuple[Floats, Floats, NDArray[np.generic] | None]:
    """Return the rows as arrays, (n, d) and (n, t), and the ids, (n,), if given."""
    try:
        X, y = check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if (own := explain_inputs(X) or explain_targets(y)) is not None:
            raise own from None
        message = str(error).partition("\n")[0]
        shows_cell = any(
            part in message for part in ("could not convert", "array=", "must be a string or a real number")
        )
        raise InvalidInput("X and y must be tables of numbers" if shows_cell else message) from None
    if max(np.abs(X).max(), np.abs(y).max()) > _MAX_VALUE:
        raise InvalidInput(f"X and y must not hold numbers beyond {_MAX_VALUE:g}; rescale the column")
    return X, y.reshape(len(y), -1), None if ids is None else as_ids(ids, rows=len(X))


def check_seed(random_state: object) -> int:
    """Return a seed, or refuse one by which a plan could not be repeated."""
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
    """Return the knots that the plan proposed for each undecided input."""
    scales = validation.folds[0].encoder.scales.by_input
    return [[knot for scale in scales[j] if not isinstance(scale, str) for knot in scale] for j in undecided]


def _build_model(candidate: TriedCandidate, base: dict[str, Any]) -> CodedRegressor:
    names = ("shards", "rate", "features", "alpha", "scales", "target_scales", "outside")
    return CodedRegressor(**{name: getattr(candidate.settings, name) for name in names}, **base)
