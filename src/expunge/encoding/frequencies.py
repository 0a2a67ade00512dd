"""Frequencies: how the projection of random Fourier features is distributed.

The kernel that cosines of random frequencies approximate is the characteristic function of the frequencies (Rahimi and
Recht 2007): normal vectors have the Gaussian kernel, independent Cauchy entries the Laplacian, and a multivariate t
with 2 nu degrees of freedom the Matern kernel of smoothness nu.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .values import as_float, whole_number

Kernel: TypeAlias = Literal["gaussian", "laplacian", "exponential", "matern32", "matern52"]
ScaleLike: TypeAlias = Any  # None, a number, an array of one per input or a matrix

# The degrees of freedom of a kernel whose frequencies are a multivariate t.
_FREEDOM: Mapping[str, int | None] = {
    "gaussian": None,
    "laplacian": None,
    "exponential": 1,
    "matern32": 3,
    "matern52": 5,
}

_LARGEST = 1e9  # of a scale: beyond it phases have no bits left
_LEAST_CHI = 2.0**-100  # less is drawn once in 10^15 draws, and would be beyond what phases can hold


@dataclass(frozen=True, eq=False)
class Frequencies:
    """The distribution of the frequencies for a number of inputs."""

    kernel: Kernel
    scale: float | Floats | None  # (d,) or (d, d) if it is an array
    order: int | None
    n_inputs: int

    @classmethod
    def of(cls, kernel: Kernel, scale: ScaleLike, order: int | None, n_inputs: int) -> Self:
        """Read parameters that `check_frequencies` lets pass."""
        read = _read(scale)
        if isinstance(read, np.ndarray) and read.shape not in ((n_inputs,), (n_inputs, n_inputs)):
            raise InvalidSetting(
                f"scale must be None, a number, one number per input or a matrix, of {n_inputs} scaled inputs here, "
                f"got shape {read.shape}"
            )
        return cls(kernel, read, order, n_inputs)

    @cached_property
    def relevant(self) -> NDArray[np.bool_]:
        """Which inputs may have an influence, (d,)."""
        if not isinstance(self.scale, np.ndarray):
            return np.ones(self.n_inputs, dtype=np.bool_)
        rows = self.scale.reshape(self.n_inputs, -1)  # of a matrix, or single numbers
        relevant: NDArray[np.bool_] = np.abs(rows).max(axis=1) > 0.0
        return relevant

    def looks_at(self, count: int) -> NDArray[np.intp]:
        """How many inputs each feature looks at, (D,)."""
        most = int(np.count_nonzero(self.relevant))
        if self.order is None:
            return np.full(count, most)
        return np.minimum(1 + np.arange(count) % min(self.order, count), most)  # an order may be any integer

    def turns(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw frequencies in turns, (d, D): a feature is cos(2 pi x . turns + b)."""
        shape, freedom = (self.n_inputs, count), _FREEDOM[self.kernel]
        base = rng.standard_cauchy(shape) if self.kernel == "laplacian" else rng.standard_normal(shape)
        if freedom is not None:
            base /= np.sqrt(np.maximum(rng.chisquare(freedom, count), _LEAST_CHI) / freedom)
        turns = self._scaled(base)
        if self.order is not None:
            turns *= self._looks(count, rng)
        return turns

    def _scaled(self, base: Floats) -> Floats:
        """Multiply by the scale, over 2 pi."""
        if self.scale is None:
            d = self.n_inputs if self.order is None else self.looks_at(base.shape[1])
            return base * (1 / np.sqrt(2 * d) / (2 * np.pi))
        scale = self.scale / (2 * np.pi)
        if np.ndim(scale) == 2:
            return np.asarray(scale @ base)
        if isinstance(scale, np.ndarray):
            return base * (scale if self.order is None else np.sqrt(scale * scale.max()))[:, None]
        return base * scale

    def _looks(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw which inputs each feature looks at, one after the other, by their relevance: (d, D).

        Whose exponential time over its relevance comes first is drawn first (Efraimidis and Spirakis 2006).
        """
        chance = self.relevant.astype(np.float64)
        if isinstance(self.scale, np.ndarray) and self.scale.ndim == 1:
            chance = self.scale
        with np.errstate(divide="ignore"):
            times = rng.standard_exponential((self.n_inputs, count)) / chance[:, None]  # never, without relevance
        chosen: NDArray[np.bool_] = times.argsort(axis=0).argsort(axis=0) < self.looks_at(count)
        return chosen


def check_frequencies(kernel: object, scale: ScaleLike, order: object) -> None:
    """Refuse parameters that no number of inputs could make right."""
    if not isinstance(kernel, str) or kernel not in _FREEDOM:
        raise InvalidSetting(f"kernel must be one of {', '.join(map(repr, _FREEDOM))}, got {kernel!r}")
    _read(scale)
    if order is not None:
        whole_number("order", order)


def _read(scale: ScaleLike) -> float | Floats | None:
    """A scale as None, a float or an array."""
    if scale is None:
        return None
    if not isinstance(scale, list | tuple | np.ndarray):
        if not 0 < as_float(scale) < _LARGEST:
            raise InvalidSetting(f"scale must be None, a number between 0 and 1e9 or an array of such, got {scale!r}")
        return as_float(scale)
    try:
        array = np.array(scale)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise InvalidSetting(
            f"scale must be None, a number, an array of one number per input or a square matrix, got {_shown(array)}"
        )
    array = array.astype(np.float64)
    if not (np.abs(array) < _LARGEST).all() or not array.any() or (array.ndim == 1 and (array < 0.0).any()):
        allowed = "of 0 or more, less than 1e9" if array.ndim == 1 else "between -1e9 and 1e9"
        raise InvalidSetting(f"scale must have numbers {allowed}, and not all 0")
    return array


def _shown(array: NDArray[Any]) -> str:
    return f"an array of shape {array.shape}, dtype {array.dtype}"
