"""The search: shapes for the features, by which the validation error is small.

The scales of the inputs are found in two ways. Where a feature looks at all inputs, the slope of the validation error
is followed (`descent`), from a slow and from a fast beginning; with the Gaussian kernel the inputs are then mixed, too.
For other kinds a first model says by its slopes which inputs matter (Radhakrishnan et al. 2024 do so with a kernel
machine), the next one looks at these more closely, round after round. The best two shapes are then polished with more
features: the reach, and the scale of one input after the other, are doubled and halved.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..encoding.frequencies import Kernel
from ..exact.threads import spread
from .descent import LEARNED, descended, mixed
from .ground import Ground
from .shapes import Shape
from .trial import Trial, relevance, single, tried

_DESCENTS: tuple[tuple[Kernel, float], ...] = (  # kernels, and how far their features turn in the beginning
    ("gaussian", 2.0),
    ("laplacian", 2.0),
    ("gaussian", 8.0),
    ("laplacian", 8.0),
)
_WEIGHED: tuple[tuple[Kernel, int | None], ...] = (("exponential", None), ("gaussian", 2), ("gaussian", 4))
KINDS = (*dict.fromkeys((kernel, None) for kernel, _ in _DESCENTS), *_WEIGHED)  # what a shape can be: kernel and order
_STEPS = 100  # of a descent
_FEW_STEPS = 40  # of a quick search
_FEW_COSINES = 256

_WIDE, _WIDEST = 576, 1024  # cosines of a step of a descent
_COSINES = 384  # of a trial after descents, and in rounds
_ROWS = 6_000  # to learn from in a trial
_ALPHAS = (1e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
_ROUNDS = 6
_LOSS = 1.02  # a round that loses more is the last
_FIRST = (1.0, 4.0, 16.0)  # reaches of the first round
_NEXT = (0.5, 1.0, 2.0, 4.0)  # factors of the reach in later rounds
_AFTER = (1.0, 2.0)  # after a descent

_POLISHED = 2  # shapes that are polished
_FINE = 512  # cosines of a trial in polishing
_MORE_ROWS = 8_000
_SWEEPS = 4
_INPUTS = 8  # the most relevant inputs, whose relevance is polished
_SWEPT = 0.99  # a sweep that gains less is the last


@dataclass(frozen=True, eq=False)
class Found:
    """A shape and how it did."""

    shape: Shape
    trial: Trial


def search(ground: Ground, seed: int, told: Callable[[float], None], *, quick: bool = False) -> list[Found]:
    """The best shapes, the best first; ``told`` hears how far the search is, from 0 to 1.

    ``quick`` tries the two most useful ways only, with less effort, and polishes nothing.
    """
    descents, kinds = (_DESCENTS[:1], _WEIGHED[-1:]) if quick else (_DESCENTS, _WEIGHED)
    kinds = tuple((kernel, order) for kernel, order in kinds if order is None or order < ground.columns)
    thinned, steps = ground.thinned(_ROWS // 2 if quick else _ROWS, 2), len(descents) + len(kinds) + _POLISHED
    made = _descended(ground, descents, seed, *((_FEW_STEPS, _FEW_COSINES) if quick else (_STEPS, _wide(ground))))
    told(len(descents) / steps)
    found = [_best(thinned, shape, _AFTER, seed) for shape in made]
    for k, (kernel, order) in enumerate(kinds):
        found.append(_rounds(thinned, Shape.first(kernel, order, ground.columns), seed))
        told((len(descents) + k + 1) / steps)
    found.sort(key=lambda one: one.trial.error)
    if quick:
        return found
    polished = list[Found]()
    for k, one in enumerate(found[:_POLISHED]):
        polished.append(_polished(ground.thinned(_MORE_ROWS, 4), one.shape, seed))
        told((steps - _POLISHED + k + 1) / steps)
    return [*polished, *found[_POLISHED:]]


def glanced(ground: Ground, seed: int) -> list[Found]:
    """Two small models of different kinds: a look that takes a moment, to compare grounds by."""
    thinned = ground.thinned(_ROWS, 2)
    kernel, order = _WEIGHED[-1] if ground.columns > 4 else _WEIGHED[0]
    return [
        _best(thinned, Shape.first("gaussian", None, ground.columns), _FIRST[:2], seed),
        _rounds(thinned, Shape.first(kernel, order, ground.columns), seed),
    ]


def _descended(
    ground: Ground, descents: Sequence[tuple[Kernel, float]], seed: int, steps: int, cosines: int
) -> list[Shape]:
    """Where the descents end, and from there on those that mix inputs; as many at a time as there are threads."""
    firsts = [Shape.first(kernel, None, ground.columns).stretched(turns) for kernel, turns in descents]
    ends = _each(partial(descended, ground, seed=seed, steps=steps, cosines=cosines), firsts)
    gaussian = [shape for shape in ends if shape.kernel == "gaussian"]
    return [*ends, *_each(partial(mixed, ground, seed=seed, steps=steps, cosines=cosines), gaussian)]


def _wide(ground: Ground) -> int:
    """Cosines of a step: more where rows are few, for then they cost little, but no more than rows.

    With few cosines a slope is mostly their draw, and slow features do best, though not with as many as the model will
    have: with 384 the error on a table of 1,500 rows was a quarter higher.
    """
    rows = len(ground.folds[0].Z)
    return max(_COSINES, min(_WIDEST, rows, _WIDE * LEARNED // min(rows, LEARNED)))


def _each(task: Callable[[Shape], Shape], shapes: Sequence[Shape]) -> list[Shape]:
    made = spread(lambda k, n: [task(shape) for shape in shapes[k::n]], len(shapes))
    return [made[k % len(made)][k // len(made)] for k in range(len(shapes))]


def _rounds(ground: Ground, shape: Shape, seed: int) -> Found:
    """Look more closely at the inputs that matter, until that gains nothing."""
    best = latest = _best(ground, shape, _FIRST, seed)
    for _ in range(_ROUNDS):
        slopes = relevance(ground, latest.trial)
        if not slopes.any():
            break
        latest = _best(ground, latest.shape.weighed(slopes), _NEXT, seed)
        if latest.trial.error > _LOSS * best.trial.error:
            break
        best = min(best, latest, key=lambda one: one.trial.error)
    return best


def _best(ground: Ground, shape: Shape, factors: tuple[float, ...], seed: int) -> Found:
    made = [_tried(ground, shape.stretched(factor), _COSINES, seed) for factor in factors]
    return min(made, key=lambda one: one.trial.error)


def _polished(ground: Ground, shape: Shape, seed: int) -> Found:
    """Double and halve single numbers of a shape, as long as that helps."""
    best = _tried(ground, shape, _FINE, seed)
    for _ in range(_SWEEPS):
        before = best.trial.error
        for pair in _neighbours(best.shape):
            for change in pair:  # what is better doubled is not halved
                after = _tried(ground, change(best.shape), _FINE, seed)
                if after.trial.error < best.trial.error:
                    best = after
                    break
        if best.trial.error > _SWEPT * before:
            break
    return best


def _neighbours(shape: Shape) -> Iterator[tuple[Callable[[Shape], Shape], Callable[[Shape], Shape]]]:
    """Pairs of small changes: one number doubled, and halved."""
    yield partial(Shape.stretched, factor=2.0), partial(Shape.stretched, factor=0.5)
    for j in np.argsort(-shape.relevance, kind="stable")[:_INPUTS].tolist():
        yield partial(Shape.stressed, column=j, factor=2.0), partial(Shape.stressed, column=j, factor=0.5)


def _tried(ground: Ground, shape: Shape, cosines: int, seed: int) -> Found:
    return Found(shape, tried(ground, single(shape.features(cosines, seed), seed), _ALPHAS))
