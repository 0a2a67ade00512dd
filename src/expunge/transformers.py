"""Feature maps as scikit-learn transformers: for pipelines, and to inspect what a model sees."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from .encoding.features import FeatureMap, IdentityMap, PowersMap
from .encoding.fourier import RandomFourierMap
from .encoding.randomness import as_generator
from .exact.arrays import Floats, cut


class _FeatureTransformer(TransformerMixin, BaseEstimator, FeatureMap):  # type: ignore[misc]  # scikit-learn has no types
    """Base class that makes a feature map a scikit-learn transformer."""

    def fit(self, X: Any, y: object = None) -> Self:
        """Draw the map for as many inputs as X has columns; the values of X are not used."""
        self.check()
        X = validate_data(self, X, dtype=np.float64)
        self.draw(X.shape[1], as_generator(getattr(self, "random_state", None)))
        return self

    def transform(self, X: Any) -> Floats:
        """Map rows of scaled inputs, (n, d) -> (n, D). Any finite input; exact inside [-1, 1]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        out = np.empty((len(X), self.n_out))
        for block in cut(len(X), self.n_out):
            out[block] = self.map_block(X[block])
        return out


class Identity(_FeatureTransformer, IdentityMap, name="Identity"):
    """The scaled inputs as they are: a linear model."""

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the inputs."""
        names: NDArray[np.object_] = _check_feature_names_in(self, input_features)
        return names


class Powers(_FeatureTransformer, PowersMap, name="Powers"):
    """Element-wise powers X, X^2, ..., X^degree without interactions, as in the paper's polynomials.

    Parameters
    ----------
    degree : int
        The highest power.

    Examples
    --------
    >>> Powers(3).fit_transform([[0.5, -1.0]])
    array([[ 0.5  , -1.   ,  0.25 ,  1.   ,  0.125, -1.   ]])
    """

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names such as ``x0`` and ``x0^2``."""
        names = _check_feature_names_in(self, input_features)
        powers = ["" if k == 1 else f"^{k}" for k in range(1, self.degree + 1)]
        return np.array([f"{name}{power}" for power in powers for name in names], dtype=object)


class RandomFourier(_FeatureTransformer, RandomFourierMap, name="RandomFourier"):
    """Random cosine features, cos(x . theta + b) with random theta and b (Rahimi and Recht 2007; the paper's eq. 7).

    Parameters
    ----------
    n_features : int
        The number of cosines, D.
    kernel : {"gaussian", "laplacian", "exponential", "matern32", "matern52"}
        How theta is distributed, and so which kernel the features approximate. "gaussian": normal entries, as in the
        paper. "laplacian": Cauchy entries, exp(-|x - x'|_1); often better on tables with sharp edges. The others are
        Matern kernels of smoothness 1/2 (exp(-|x - x'|_2)), 3/2 and 5/2: normal vectors divided by the root of a
        chi-square per degree of freedom, with 1, 3 and 5 degrees. Kernels joined by + ("gaussian+laplacian")
        alternate: of k kernels, feature j has number j % k.
    scale : float, or array of shape (d,) or (d, d), optional
        The factor of theta, an inverse length: a number; or one >= 0 per input, its relevance (0: no influence on the
        cosines); or a matrix, theta = scale @ draw. None is 1 / sqrt(2 d), the paper's choice, where d is the number of
        inputs that a feature uses. With k kernels an array has one entry per kernel, (k, d) or (k, d, d).
    linear : bool
        Whether the inputs themselves are features as well, after the cosines.
    order : int, optional
        Feature j uses only 1 + j % order of the relevant inputs. With one scale per input, an input is drawn with
        probability proportional to its scale, and its entry of theta is multiplied by the geometric mean of its scale
        and the largest: relevant inputs get more features, not only higher frequencies. None: all inputs.
    random_state : int, Generator, RandomState or None
        The seed. Inside a `CodedRegressor`, None means that the model's own seed is used.

    Attributes
    ----------
    theta_ : array, shape (d, D)
    offset_ : array, shape (D,)
        The draws in radians; ``projection_``, ``phases_`` and ``exponents_`` are the integers behind them.

    Examples
    --------
    >>> RandomFourier(300, random_state=0).fit_transform([[0.2, 0.8], [0.5, 0.5]]).shape
    (2, 300)
    """

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return ``randomfourier0``, ``randomfourier1``, ...; with ``linear``, followed by the names of the inputs."""
        check_is_fitted(self)
        inputs = _check_feature_names_in(self, input_features)
        cosines = [f"randomfourier{j}" for j in range(self.n_features)]
        return np.array([*cosines, *inputs] if self.linear else cosines, dtype=object)


MAPS = {kind.map_name: kind for kind in (Identity, Powers, RandomFourier)}
