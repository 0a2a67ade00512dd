"""Weak learners: weights from exact moments, or any scikit-learn regressor on its coded shard.

Both are pure functions of integers. Whoever calls them with the same integers on the same machine gets the same bytes,
because all of it runs on one BLAS thread.
"""

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs
from sklearn.base import clone, is_classifier

from ..encoding.codes import Code
from ..errors import InvalidInput, InvalidSetting
from ..exact.arrays import Floats
from ..exact.moments import Moments
from ..exact.threads import alone, one_blas_thread

_LARGE = 2.0**500  # no sum of squares of ours comes near


def ridge_weights(moments: Moments, *, bits: int, targets: int, alpha: float, intercept: bool) -> Floats:
    """Solve (Q'Q + alpha I) W = Q'y for one learner: (D [+ 1], t), the intercept last and unpenalised.

    A system that is singular to working precision (a pivot of its Cholesky factor is below w * 2^-52 of the diagonal
    entry that it is left of) gets the least-squares solution of minimum norm, the intercept apart: see `_minimum_norm`.
    """

    def solve() -> Floats:
        M = moments.matrix(bits)  # (w, w) in Fortran order: the lower triangle of [[A, B], [B', C]]
        w = len(M)
        p = w - targets
        diagonal = M.T.reshape(-1)[:: w + 1]  # a view
        diagonal[: p - intercept] += alpha
        least = diagonal[:p] * (w * 2.0**-52)
        # Its factor is [[L, 0], [V', R]] with L L' = A and L V = B: half of the solution comes with it, and nothing has
        # to be copied. C is not needed: anything large will do in its place.
        M[p:, p:] = 0.0
        diagonal[p:] = _LARGE
        factor, failed = dpotrf(M, lower=1, clean=0, overwrite_a=1)
        if not failed and (diagonal[:p] ** 2 > least).all():
            V = np.zeros((w, targets), order="F")
            V[:p] = factor[p:, :p].T
            W: Floats = dtrtrs(factor, V, lower=1, trans=1, overwrite_b=1)[0]  # L' W = V; below it 0 = 0
            return W[:p].copy()
        M = moments.matrix(bits)
        M.T.reshape(-1)[:: w + 1][: p - intercept] += alpha
        return _minimum_norm(np.tril(M[:p, :p]) + np.tril(M[:p, :p], -1).T, M[p:, :p].T, intercept=intercept)

    return alone(solve)


def _minimum_norm(A: Floats, B: Floats, *, intercept: bool) -> Floats:
    """The solution of minimum norm; eigenvalues below w * 2^-52 of the largest count as zero.

    The intercept is eliminated first (A and B are centred), so that it neither counts in the norm nor is cut.
    """
    W = np.zeros(B.shape)
    if intercept:
        ones, n = A[:-1, -1:], A[-1, -1]  # Phi'1 and 1'1 of the encoded column of ones
        if n == 0:  # members of opposite sign left every coded one zero: the rows say nothing of an intercept
            W[:-1] = _minimum_norm(A[:-1, :-1], B[:-1], intercept=False)
            return W
        slope = _minimum_norm(A[:-1, :-1] - ones * (ones.T / n), B[:-1] - ones * (B[-1:] / n), intercept=False)
        W[:-1], W[-1] = slope, (B[-1:] - ones.T @ slope) / n
        return W
    eigenvalues, V = np.linalg.eigh(A)
    kept = eigenvalues > eigenvalues.max(initial=0.0) * len(A) * 2.0**-52
    V = V[:, kept]
    W[:] = V @ ((V.T @ B) / eigenvalues[kept, None])
    return W


def check_learner(estimator: Any, code: Code) -> None:
    """Refuse an estimator that cannot learn from this code's coded rows, and say why."""
    if isinstance(estimator, type):
        raise InvalidSetting(f"learner must be an instance, got the class: write {estimator.__name__}()")
    for method in ("fit", "predict", "get_params"):
        if not hasattr(estimator, method):
            raise InvalidSetting(
                f"learner must be 'ridge' or a scikit-learn regressor, got {type(estimator).__name__} without {method}"
            )
    if is_classifier(estimator):
        raise InvalidSetting(f"learner must be a regressor, got the classifier {type(estimator).__name__}")
    if code.is_selection:
        return
    name = type(estimator).__name__
    if estimator.get_params(deep=False).get("fit_intercept"):
        raise InvalidSetting(
            f"learner: {name}(fit_intercept=True) would learn one intercept a coded row, but a coded row sums several "
            f"rows; use {name}(fit_intercept=False): the model encodes a column of ones of its own"
        )


def fit_estimator(estimator: Any, X: Floats, y: Floats, *, seed: int, code: Code) -> Any:
    """Train a clone from scratch on one coded shard (Algorithm 1, line 12), its randomness derived from ``seed``."""
    model = clone(estimator)
    model.set_params(
        **{
            name: seed
            for name, value in model.get_params().items()
            if name.split("__")[-1] == "random_state" and not isinstance(value, int | np.integer)
        }
    )
    with one_blas_thread():
        try:
            model.fit(X, y[:, 0] if y.shape[1] == 1 else y)
        except Exception as error:
            raise InvalidInput(
                f"learner: {type(model).__name__} cannot be trained on the {len(X)} coded rows that it would have "
                f"({error}); nothing was changed"
            ) from error
        if not code.is_selection:
            _check_linear(model, X)
    return model


def _check_linear(model: Any, X: Floats) -> None:
    """A coded row is a sum of rows: only a model that is linear in its features can learn rows from sums."""
    name = type(model).__name__
    reason = "a coded row is a sum of rows, from which only a model linear in its features can learn"
    if not hasattr(model, "coef_"):
        raise InvalidSetting(f"learner: {name} has no coef_; {reason}; use Code.uncoded or a linear model")
    predicted = np.reshape(model.predict(X), (len(X), -1))
    linear = X @ np.atleast_2d(model.coef_).T
    if predicted.shape != linear.shape or not np.allclose(predicted, linear, rtol=1e-6, atol=1e-9):
        raise InvalidSetting(f"learner: the coef_ of {name} does not reproduce its predictions; {reason}")
