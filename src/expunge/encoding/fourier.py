"""Random Fourier features with exact phases: the same bits on every machine."""

from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from ..exact.native import kernels, native_map
from .features import FeatureMap
from .frequencies import FrequencyMixture, ScaleLike, check_frequencies
from .randomness import Seed
from .values import flag, whole_number

# Inputs are rounded to a grid of 2^-32: with 22 bits predictions on real data move by 2e-5, with 32 by less than 1e-6.
INPUT_BITS = 32

_COSINES_PER_BLOCK = 2**13  # cosines that are computed at once

# sin(pi/2 v) = v * P(v^2) on [-1, 1], minimax by Remez' algorithm: within 9e-17, and within 2.5e-15 in float64.
_SINE = (
    1.570796326794895,
    -0.6459640975061731,
    0.07969262624514287,
    -0.004681754128873882,
    0.00016044116327436667,
    -3.5988024751542696e-06,
    5.687769397448236e-08,
    -6.43484189759962e-10,
)


class RandomFourierMap(FeatureMap, name="RandomFourier"):
    """Random cosine features, cos(x . theta + b) with random theta and b (Rahimi and Recht 2007; the paper's eq. 7).

    `expunge.RandomFourier` documents the parameters.

    Attributes
    ----------
    projection_ : array of int, shape (d, D)
        theta in turns, as integers: column j counts in units of ``2**(32 - exponents_[j])``.
    phases_ : array of int, shape (D,)
        b in turns, in units of ``2**-exponents_[j]``.
    exponents_ : array of int, shape (D,)
        One per column, because a Cauchy column can be thousands of turns.
    """

    projection_: NDArray[np.int64]
    phases_: NDArray[np.int64]
    exponents_: NDArray[np.int64]

    def __init__(
        self,
        n_features: int = 100,
        *,
        kernel: str = "gaussian",
        scale: ScaleLike = None,
        linear: bool = False,
        order: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_features = n_features
        self.kernel = kernel
        self.scale = scale
        self.linear = linear
        self.order = order
        self.random_state = random_state

    @property
    def n_out(self) -> int:
        return int(self.n_features) + (self.n_features_in_ if self.linear else 0)

    @property
    def theta_(self) -> Floats:
        """The projection in radians, (d, D): what a float implementation would use."""
        return 2 * np.pi * np.ldexp(self.projection_.astype(np.float64), INPUT_BITS - self.exponents_)

    @property
    def offset_(self) -> Floats:
        """The phases b in radians, (D,)."""
        return 2 * np.pi * np.ldexp(self.phases_.astype(np.float64), -self.exponents_)

    def map_block(self, scaled: Floats, unit: float = 1.0) -> Floats:
        """Compute cosines from exact phases.

        With x on a grid of 2^-32, ``x . theta + b`` is an integer times 2^-k, and `_round_to_grid` keeps the sum of the
        absolute values of its terms below 2^53 units. Every partial sum is then exact, in any order and with any fused
        operation that BLAS uses, and so are the fraction of a turn and its distance from a quarter turn. Beyond [-1, 1]
        sums are rounded, and BLAS uses another order for one row than for many: these phases are summed in one fixed
        order.
        """
        if (kernel := self.native(unit)) is not None:
            features: Floats = kernel.features(np.ascontiguousarray(scaled))
            return features
        inputs = np.ones((len(scaled), self.n_features_in_ + 1))  # the last column adds b
        grid = inputs[:, :-1]
        np.minimum(scaled, 2.0**64, out=grid)  # so that any finite input has a finite phase
        np.maximum(grid, -(2.0**64), out=grid)
        grid *= 2.0**INPUT_BITS
        np.rint(grid, out=grid)
        turns = inputs @ self._turns
        far = np.abs(grid).max(axis=1, initial=0.0) > 2.0**INPUT_BITS
        if far.any():
            turns[far] = _multiply_in_order(inputs[far], self._turns)
        if not self.linear:
            return cosines(turns, unit)
        features = np.empty((len(scaled), self.n_out))
        features[:, : self.n_features] = cosines(turns, unit)
        np.multiply(scaled, unit, out=features[:, self.n_features :])
        return features

    def native(self, unit: float) -> Any:
        if kernels() is None:
            return None
        if self._kernels.get(unit) is None:
            self._kernels[unit] = native_map(self._turns, np.array(_coefficients(unit)), bool(self.linear), unit)
        return self._kernels[unit]

    def slopes(self, scaled: Floats, weights: Floats) -> Floats:
        """Return the gradients of the prediction with these weights, at some rows: (b, d), (D,) -> (b, d)."""
        theta = self.theta_
        cosines = weights[: self.n_features]
        slopes: Floats = (np.sin(scaled @ theta + self.offset_) * -cosines) @ theta.T
        return slopes + weights[self.n_features :] if self.linear else slopes

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {"projection": self.projection_, "phases": self.phases_, "exponents": self.exponents_}

    def restore(self, n_inputs: int, arrays: dict[str, NDArray[np.int64]]) -> Self:
        self.check()
        frequencies = self._frequencies(n_inputs)
        shapes = {name: array.shape for name, array in arrays.items()}
        D = self.n_features
        if shapes != {"projection": (n_inputs, D), "phases": (D,), "exponents": (D,)}:
            raise InvalidSetting(f"RandomFourier({D}) on {n_inputs} inputs cannot have arrays of shapes {shapes}")
        if any(array.dtype.kind != "i" for array in arrays.values()):
            raise InvalidSetting("RandomFourier: the arrays must be integers")
        theta, b, k = arrays["projection"], arrays["phases"], arrays["exponents"]
        if ((k < -200) | (k > 53)).any() or not _is_exact(theta.astype(np.float64), b.astype(np.float64)).all():
            raise InvalidSetting("RandomFourier: projection or phases exceed the exact range")
        if not frequencies.could_draw(theta):
            raise InvalidSetting("RandomFourier: the projection uses inputs that scale or order exclude")
        self.n_features_in_ = n_inputs
        self._keep(theta, b, k)
        return self

    def check(self) -> None:
        whole_number("n_features", self.n_features)
        flag("linear", self.linear)
        check_frequencies(self.kernel, self.scale, self.order)

    def draw(self, n_inputs: int, rng: np.random.Generator) -> None:
        theta = self._frequencies(n_inputs).draw(self.n_features, rng)
        b = rng.uniform(-0.5, 0.5, self.n_features)
        self._keep(*_round_to_grid(theta, b))

    def _frequencies(self, n_inputs: int) -> FrequencyMixture:
        return FrequencyMixture.parse(self.kernel, self.scale, self.order, n_inputs)

    def _keep(self, theta: NDArray[np.int64], b: NDArray[np.int64], k: NDArray[np.int64]) -> None:
        self.projection_, self.phases_, self.exponents_ = theta, b, k
        self._kernels = dict[float, Any]()  # by unit
        self._turns = np.ldexp(np.vstack([theta, b]).astype(np.float64), -k)  # (d + 1, D)


def _round_to_grid(theta: Floats, b: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Round a projection (in turns) to the finest grid on which every phase is exact; return the exponents as well."""
    k = 53 - np.frexp(np.abs(theta).sum(axis=0) + 0.5)[1]
    while True:
        grid_theta, grid_b = np.rint(np.ldexp(theta, k - INPUT_BITS)), np.rint(np.ldexp(b, k))
        exact = _is_exact(grid_theta, grid_b)
        if exact.all():
            return grid_theta.astype(np.int64), grid_b.astype(np.int64), k.astype(np.int64)
        k = k - ~exact  # rounding up can slightly exceed the bound: use one bit less there


def _is_exact(theta: Floats, b: Floats) -> NDArray[np.bool_]:
    """Return whether every partial sum of a phase stays below 2^53, for any inputs of absolute values up to 2^32."""
    bounded: NDArray[np.bool_] = np.abs(theta).sum(axis=0) * 2.0**INPUT_BITS + np.abs(b) < 2.0**53
    return bounded


def _multiply_in_order(inputs: Floats, turns: Floats) -> Floats:
    """Multiply two matrices, each entry summed in order."""
    total: Floats = inputs[:, :1] * turns[0]
    for column, row in zip(inputs.T[1:], turns[1:], strict=True):
        total += column[:, None] * row
    return total


def cosines(turns: Floats, unit: float = 1.0) -> Floats:
    """Compute unit * cos(2 pi t) in place of t, in C order, in blocks whose intermediate results stay in cache.

    Around a quarter turn cos is odd, so one polynomial is enough.
    """
    assert turns.flags.c_contiguous  # else reshaping would copy
    if (native := kernels()) is not None:
        native.cosines(turns.reshape(1, -1), np.array(_coefficients(unit)))
        return turns
    *rest, last = _coefficients(unit)
    flat = turns.reshape(-1)  # a view
    buffers = np.empty((2, min(flat.size, _COSINES_PER_BLOCK)))
    for start in range(0, flat.size, _COSINES_PER_BLOCK):
        t = flat[start : start + _COSINES_PER_BLOCK]
        square, value = buffers[:, : t.size]
        t -= np.rint(t, out=square)  # exact, in [-1/2, 1/2]
        np.abs(t, out=t)
        t -= 0.25  # exact, in [-1/4, 1/4]: cos(2 pi t) = -sin(2 pi (|t| - 1/4))
        np.multiply(t, t, out=square)
        np.multiply(square, last, out=value)
        for coefficient in rest[:0:-1]:
            value += coefficient
            value *= square
        value += rest[0]
        t *= value
    return turns


@cache
def _coefficients(unit: float) -> tuple[float, ...]:
    """Return the coefficients of -unit * sin(2 pi t), from those of sin(pi/2 v), v = 4 t, scaled without rounding."""
    return tuple(-c * unit * 4.0 ** (2 * k + 1) for k, c in enumerate(_SINE))
