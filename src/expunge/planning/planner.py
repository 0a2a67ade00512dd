"""`plan`: looks at a sample of rows, tries settings, and says which model to train and what each choice costs."""

import os
from collections.abc import Callable, Iterator
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
from .advice import advice
from .candidates import Candidate, Size, Tried, chosen
from .columns import completed, split_scales
from .doubt import doubted
from .finals import Finals
from .ground import Ground, refuse_outside
from .knowledge import bits, line_bits
from .references import Reference, compared
from .sample import MOST_ROWS, QUICK_ROWS, draw_sample
from .search import search
from .straight import straight
from .targets import best_scaled, split_target_scales

_LARGEST = 1e150  # squares of larger numbers are none
_SEARCH, _FINALS = 0.5, 0.4  # about their parts of the time


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
    _doubt: float | None
    _eligible: list[Tried]
    _people: NDArray[np.intp]
    _base: dict[str, Any]

    def within(self, forget_ms: float | None) -> CodedRegressor:
        """The model to train if a row must be forgotten within so many milliseconds, without planning again."""
        limit = _limit(forget_ms)
        return _model(chosen(self._eligible, self._people, limit), self._base)

    @property
    def advice(self) -> str:
        """What was chosen, why, and what was given up, in words."""
        return advice(self.choice, self.table, self.references, self.forget_ms, self._doubt)

    def __str__(self) -> str:
        from .text import as_text

        return as_text(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write an HTML page: the advice, the picture, every candidate, and what the plan may know."""
        from .report import write_report

        with _writing(path):
            write_report(self, path)

    def figure(self, path: str | os.PathLike[str]) -> None:
        """Draw error against time to forget, all candidates and the references; needs matplotlib."""
        from .figure import write_figure

        with _writing(path):
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
    X, y, owners = _checked(X, y, ids)
    limit, told = _limit(forget_ms), progress or (lambda share: None)
    most, seed = whole_number("max_features", max_features), _seed(random_state)
    refuse_outside(X, y, bounds, target_bounds, clip=flag("clip", clip))
    sample = draw_sample(X, y, owners, as_generator(seed), most=QUICK_ROWS if flag("quick", quick) else MOST_ROWS)
    said, left = split_scales(scales, X.shape[1], unit=isinstance(bounds, str))
    said_targets, left_targets = split_target_scales(target_scales, y.shape[1], unit=isinstance(target_bounds, str))
    declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
    base = {**declared, "clip": clip, "random_state": seed}
    ground_of = partial(Ground.of, sample, **declared, scales=completed(said, left, sample.X))
    count = len(X) if rows is None else whole_number("rows", rows)
    with one_blas_thread():  # the threads work on parts of the rows: BLAS's own would wait for each other
        ground = best_scaled(said_targets, left_targets, sample.y, ground_of, seed)
        size = Size(count, X.shape[1], ground.columns, ground.targets)
        found = search(ground, seed, lambda share: told(_SEARCH * share), quick=quick)
        tried = Finals(ground, size, seed, most, codes=not quick).run(
            found, limit, lambda share: told(_SEARCH + _FINALS * share)
        )
        line = straight(sample, declared | {"scales": said, "target_scales": said_targets}, size.rows, seed)
        doubt = doubted(ground, sample, line, tried, limit, seed)
    others = compared(sample, ground.variance, seed) if flag("references", references) else []
    told(1.0)
    eligible = [line] if doubt is not None and doubt >= 0 else [*tried, line]
    tried.append(line)
    choice = chosen(eligible, ground.people, limit)
    table = [one.shown(ground.people) for one in tried]
    return Plan(
        best=_model(choice, base),
        table=table,
        references=others,
        choice=table[tried.index(choice)],
        bits=line_bits() if choice is line else bits(ground.columns, _knots(ground, left), len(left_targets)),
        rows=size.rows,
        sampled=len(sample.X),
        forget_ms=limit,
        _doubt=doubt,
        _eligible=eligible,
        _people=ground.people,
        _base=base,
    )


@contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say why a file cannot be written."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InvalidSetting(f"there is no folder {folder}")
    try:
        yield
    except OSError as error:
        raise InvalidSetting(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None


def _checked(X: Any, y: Any, ids: Any) -> tuple[Floats, Floats, NDArray[np.generic] | None]:
    """The rows as arrays, (n, d) and (n, t), and whose they are, (n,), if somebody says."""
    try:
        X, y = check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        shows = any(part in said for part in ("could not convert", "array=", "must be a string or a real number"))
        raise InvalidInput("X and y must be tables of numbers" if shows else said) from None  # no cell is shown
    if max(np.abs(X).max(), np.abs(y).max()) > _LARGEST:
        raise InvalidInput(f"X and y must not have numbers beyond {_LARGEST:g}; rescale the column")
    return X, y.reshape(len(y), -1), None if ids is None else as_ids(ids, rows=len(X))


def _seed(random_state: object) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InvalidSetting(f"random_state must be a whole number >= 0, so that plans repeat, got {random_state!r}")
    return int(random_state)


def _limit(forget_ms: float | None) -> float | None:
    if forget_ms is None:
        return None
    if not 0 < as_float(forget_ms) < np.inf:
        raise InvalidSetting(f"forget_ms must be None or a number of milliseconds above 0, got {forget_ms!r}")
    return as_float(forget_ms)


def _knots(ground: Ground, left: list[int]) -> list[list[float]]:
    """The knots that were proposed for each input that was left to the plan."""
    every = ground.folds[0].encoder.scales.given
    return [[knot for scale in every[j] if not isinstance(scale, str) for knot in scale] for j in left]


def _model(one: Tried, base: dict[str, Any]) -> CodedRegressor:
    names = ("shards", "rate", "features", "alpha", "scales", "target_scales", "outside")
    return CodedRegressor(**{name: getattr(one.settings, name) for name in names}, **base)
