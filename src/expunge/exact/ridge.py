"""The ridge solve: weights from exact moments.

A pure function of integers: the same integers give the same bytes on the same machine, because all of it runs on one
BLAS thread.
"""

from typing import Any, Protocol, TypeAlias

import numpy as np

from .arrays import Floats
from .blas import factorise, invert, solve_transposed
from .limbs import limb_scales, limb_type
from .moments import Moments, check_capacity
from .native import kernels
from .threads import run_on_one_thread

_LARGE = 2.0**500  # larger than any sum of squares here


# X, y, live and the first slot of a stripe, the lane of the row that changes, and the new row or twice None: see
# `Column.relearned` of the extension.
OneRow: TypeAlias = tuple[Any, ...]


class MomentMatrix(Protocol):
    """The common interface of `Moments` and `FloatMoments`."""

    def matrix(self, bits: int) -> Floats:
        """Return the lower triangle of Q'Q / 2^(2 bits), (w, w) in Fortran order, a new array."""


def ridge_weights(
    moments: MomentMatrix, *, bits: int, targets: int, alpha: float, intercept: bool, scratch: Floats | None = None
) -> Floats:
    """Solve (Q'Q + alpha I) W = Q'y for one learner: (D [+ 1], t), the intercept last and unpenalised.

    A system that is singular to working precision (a pivot of its Cholesky factor is below w * 2^-52 of its original
    diagonal entry) gets the least-squares solution of minimum norm, not counting the intercept: see `_minimum_norm`.
    ``scratch``, (w, w), may be overwritten.
    """

    def solve() -> Floats:
        if (native := kernels()) is not None and isinstance(moments, Moments):
            scales, w = limb_scales(bits), moments.width
            W: Floats | None = native.ridge(moments.limbs, scales, w, targets, alpha, intercept, _LARGE, scratch)
            return solve_singular() if W is None else W
        M = moments.matrix(bits)  # (w, w) in Fortran order: the lower triangle of [[A, B], [B', C]]
        w = len(M)
        p = w - targets
        diagonal = M.T.reshape(-1)[:: w + 1]  # a view
        diagonal[: p - intercept] += alpha
        least = diagonal[:p] * (w * 2.0**-52)
        # Its factor is [[L, 0], [V', R]] with L L' = A and L V = B: that is half of the solution, and nothing has to be
        # copied. C is not needed: any large number will do in its place.
        M[p:, p:] = 0.0
        diagonal[p:] = _LARGE
        factor, failed = factorise(M)
        if not failed and (diagonal[:p] ** 2 > least).all():
            V = np.zeros((w, targets), order="F")
            V[:p] = factor[p:, :p].T
            return solve_transposed(factor, V)[:p].copy()  # L' W = V; below it 0 = 0
        return solve_singular()

    def solve_singular() -> Floats:
        M = moments.matrix(bits)
        w = len(M)
        p = w - targets
        M.T.reshape(-1)[:: w + 1][: p - intercept] += alpha
        return _minimum_norm(np.tril(M[:p, :p]) + np.tril(M[:p, :p], -1).T, M[p:, :p].T, intercept=intercept)

    return run_on_one_thread(solve)


def relearn_row(
    moments: Moments, column: Any, row: OneRow, *, bits: int, alpha: float
) -> tuple[Moments, Floats | None]:
    """Return moments and weights after one row changed, by a native column; no weights if the system is singular."""
    old = moments.limbs.astype(limb_type(moments.coded_rows + 2), copy=False)
    limbs, W, before, after = run_on_one_thread(column.relearned, *row, old, bits, alpha, _LARGE)
    coded_rows = check_capacity(moments.coded_rows - (before > 0) + (after > 0))
    return Moments(limbs, moments.rows - before + after, coded_rows), W


def ridge_inverse(moments: MomentMatrix, *, bits: int, targets: int, alpha: float, intercept: bool) -> Floats:
    """Return (Q'Q + alpha I)^-1, (p, p), of the system that `ridge_weights` solves; its pseudo-inverse if singular."""

    def invert_system() -> Floats:
        M = moments.matrix(bits)
        p = len(M) - targets
        A = np.asfortranarray(M[:p, :p])
        A.T.reshape(-1)[:: p + 1][: p - intercept] += alpha
        factor, failed = factorise(A.copy(order="F"))
        if not failed and (np.diagonal(factor) ** 2 > np.diagonal(A) * (len(M) * 2.0**-52)).all():
            return invert(factor)
        A = np.tril(A) + np.tril(A, -1).T
        eigenvalues, V = np.linalg.eigh(A)
        kept = eigenvalues > eigenvalues.max(initial=0.0) * p * 2.0**-52
        inverse: Floats = (V[:, kept] / eigenvalues[kept]) @ V[:, kept].T
        return inverse

    return run_on_one_thread(invert_system)


def _minimum_norm(A: Floats, B: Floats, *, intercept: bool) -> Floats:
    """Return the solution of minimum norm; eigenvalues below w * 2^-52 of the largest count as zero.

    The intercept is eliminated first (A and B are centred), so that it neither counts in the norm nor is cut off.
    """
    W = np.zeros(B.shape)
    if intercept:
        ones, n = A[:-1, -1:], A[-1, -1]  # Phi'1 and 1'1 of the encoded column of ones
        if n == 0:  # rows of opposite sign made every coded one zero: they say nothing about an intercept
            W[:-1] = _minimum_norm(A[:-1, :-1], B[:-1], intercept=False)
            return W
        slope = _minimum_norm(A[:-1, :-1] - ones * (ones.T / n), B[:-1] - ones * (B[-1:] / n), intercept=False)
        W[:-1], W[-1] = slope, (B[-1:] - ones.T @ slope) / n
        return W
    eigenvalues, V = np.linalg.eigh(A)
    significant = eigenvalues > eigenvalues.max(initial=0.0) * len(A) * 2.0**-52
    V = V[:, significant]
    W[:] = V @ ((V.T @ B) / eigenvalues[significant, None])
    return W
