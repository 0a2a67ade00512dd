"""Costs: what a model takes to forget, to train and to hold, predicted from counts of operations.

The rates below were measured once, with the native kernels on one core of an ordinary server; they are constants, so
that a choice that depends on costs is the same on every machine. What was measured here and now is shown beside them
and decides nothing.
"""

from dataclasses import dataclass

from ..encoding.codes import Code

_CALLS = 0.1  # ms per request: what Python takes
_ENTRY = 1.5e-6  # ms per entry of a w x w matrix that is updated, converted and copied
_FLOP = 1 / 2.7e7  # ms per multiplication and addition of LAPACK and BLAS, in one thread
_COSINE = 1.5e-6  # ms per cosine
_LIMBS = 3  # exact products per product


@dataclass(frozen=True)
class Costs:
    """What a model takes: ``forget_ms`` per row, ``train_s`` for all rows, ``mb`` to hold."""

    forget_ms: float
    train_s: float
    mb: float


def predicted(code: Code, *, rows: int, inputs: int, cosines: int, width: int) -> Costs:
    """The costs of a ridge model: ``width`` counts features, ones and targets."""
    lanes = sum(len(code.lanes_of(j)) for j in range(code.learners))  # lanes that feed a learner, in all
    per_row = lanes / code.shards  # learners that a row feeds
    coded_rows = rows / code.shards * code.learners
    products = coded_rows * _LIMBS * width**2 / 2 * _FLOP * 2
    train = rows * per_row * cosines * _COSINE + products + code.learners * _solve(width)
    moments = code.learners * _LIMBS * width * (width + 1) / 2 * 8
    return Costs(_CALLS + per_row * _solve(width), train / 1e3, (moments + rows * inputs * 8) / 1e6)


def _solve(width: int) -> float:
    """Milliseconds to change one learner's moments by a row, and to solve."""
    return _ENTRY * width**2 + _FLOP * width**3 / 3


def widest(forget_ms: float) -> int:
    """The largest width that forgets a row within so many milliseconds, with one learner per row."""
    width = 1
    while _CALLS + _solve(width + 1) <= forget_ms:
        width += 1
    return width
