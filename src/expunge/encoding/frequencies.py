"""Frequencies: how the projection of random Fourier features is distributed.

The kernel that cosines of random frequencies approximate is the characteristic function of the frequencies (Rahimi and
Recht 2007): normal vectors have the Gaussian kernel, independent Cauchy entries the Laplacian, and a multivariate t
with 2 nu degrees of freedom the Matern kernel of smoothness nu. Features of several kernels side by side approximate
the mean of these kernels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .values import as_float, whole_number

Kernel: TypeAlias = Literal["gaussian", "laplacian", "exponential", "matern32", "matern52"]
ScaleLike: TypeAlias = Any  # None, a number, one per input or a matrix; for several kernels an array of these

T = TypeVar("T", bound=np.generic)

# The degrees of freedom of a kernel whose frequencies are a multivariate t.
_FREEDOM: Mapping[str, int | None] = {
    "gaussian": None,
    "laplacian": None,
    "exponential": 1,
    "matern32": 3,
    "matern52": 5,
}

_MAX_SCALE = 1e9  # with a larger scale, phases have no bits left
_MIN_CHI_SQUARE = 2.0**-100  # phases cannot hold less, which comes up once in 10^15 draws


@dataclass(frozen=True, eq=False)
class Frequencies:
    """The distribution of the frequencies of one kernel for a number of inputs."""

    kernel: Kernel
    scale: float | Floats | None  # (d,) or (d, d) if it is an array
    order: int | None
    n_inputs: int

    @classmethod
    def parse(cls, kernel: Kernel, scale: ScaleLike, order: int | None, n_inputs: int) -> Self:
        """Read parameters of one kernel, which `check_frequencies` has checked."""
        parsed = _parse_scale(scale)
        if isinstance(parsed, np.ndarray) and parsed.shape not in ((n_inputs,), (n_inputs, n_inputs)):
            raise InvalidSetting(
                f"scale must be None, a number, one number per input or a matrix, for {n_inputs} scaled inputs here, "
                f"got shape {parsed.shape}"
            )
        return cls(kernel, parsed, order, n_inputs)

    @cached_property
    def relevant(self) -> NDArray[np.bool_]:
        """Which inputs can have an influence, (d,)."""
        if not isinstance(self.scale, np.ndarray):
            return np.ones(self.n_inputs, dtype=np.bool_)
        rows = self.scale.reshape(self.n_inputs, -1)  # of a matrix, or single numbers
        relevant: NDArray[np.bool_] = np.abs(rows).max(axis=1) > 0.0
        return relevant

    def inputs_per_feature(self, count: int) -> NDArray[np.intp]:
        """Return how many inputs each feature uses, (D,)."""
        most = int(np.count_nonzero(self.relevant))
        if self.order is None:
            return np.full(count, most)
        return np.minimum(1 + np.arange(count) % min(self.order, count), most)  # an order may be any integer

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw frequencies in turns, (d, D): a feature is cos(2 pi x . turns + b)."""
        shape, freedom = (self.n_inputs, count), _FREEDOM[self.kernel]
        base = rng.standard_cauchy(shape) if self.kernel == "laplacian" else rng.standard_normal(shape)
        if freedom is not None:
            base /= np.sqrt(np.maximum(rng.chisquare(freedom, count), _MIN_CHI_SQUARE) / freedom)
        turns = self._apply_scale(base)
        if self.order is not None:
            turns *= self._draw_inputs(count, rng)
        return turns

    def _apply_scale(self, base: Floats) -> Floats:
        """Multiply by the scale, divided by 2 pi."""
        if self.scale is None:
            d = self.n_inputs if self.order is None else self.inputs_per_feature(base.shape[1])
            return base * (1 / np.sqrt(2 * d) / (2 * np.pi))
        scale = self.scale / (2 * np.pi)
        if np.ndim(scale) == 2:
            return np.asarray(scale @ base)
        if isinstance(scale, np.ndarray):
            return base * (scale if self.order is None else np.sqrt(scale * scale.max()))[:, None]
        return base * scale

    def _draw_inputs(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw which inputs each feature uses, without replacement, weighted by their relevance: (d, D).

        The inputs with the smallest exponential time divided by relevance are drawn (Efraimidis and Spirakis 2006).
        """
        chance = self.relevant.astype(np.float64)
        if isinstance(self.scale, np.ndarray) and self.scale.ndim == 1:
            chance = self.scale
        with np.errstate(divide="ignore"):
            times = rng.standard_exponential((self.n_inputs, count)) / chance[:, None]  # infinite without relevance
        chosen: NDArray[np.bool_] = times.argsort(axis=0).argsort(axis=0) < self.inputs_per_feature(count)
        return chosen


@dataclass(frozen=True, eq=False)
class FrequencyMixture:
    """The frequencies of k kernels that alternate: feature j has those of part j % k."""

    parts: tuple[Frequencies, ...]

    @classmethod
    def parse(cls, kernel: str, scale: ScaleLike, order: int | None, n_inputs: int) -> Self:
        """Read parameters, which `check_frequencies` has checked."""
        pairs = _pair_kernels(kernel, scale)
        return cls(tuple(Frequencies.parse(name, part_scale, order, n_inputs) for name, part_scale in pairs))

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw frequencies in turns, (d, D): a feature is cos(2 pi x . turns + b)."""
        turns = np.empty((self.parts[0].n_inputs, count))
        for part, columns in self._columns_by_part(turns):
            columns[:] = part.draw(columns.shape[1], rng)
        return turns

    def could_draw(self, turns: NDArray[Any]) -> bool:
        """Return whether frequencies, (d, D), use only inputs that scale and order allow."""
        return not any(
            columns[~part.relevant].any()
            or (np.count_nonzero(columns, axis=0) > part.inputs_per_feature(columns.shape[1])).any()
            for part, columns in self._columns_by_part(turns)
        )

    def _columns_by_part(self, turns: NDArray[T]) -> Iterator[tuple[Frequencies, NDArray[T]]]:
        """Yield each part and a view of its columns."""
        yield from ((part, turns[:, k :: len(self.parts)]) for k, part in enumerate(self.parts))


def check_frequencies(kernel: object, scale: ScaleLike, order: object) -> None:
    """Refuse parameters that are invalid for any number of inputs."""
    if not isinstance(kernel, str) or not set(kernel.split("+")) <= set(_FREEDOM):
        raise InvalidSetting(
            f"kernel must be one of {', '.join(map(repr, _FREEDOM))}, or several joined by +, got {kernel!r}"
        )
    for _, part_scale in _pair_kernels(kernel, scale):
        _parse_scale(part_scale)
    if order is not None:
        whole_number("order", order)


def _pair_kernels(kernel: str, scale: ScaleLike) -> list[tuple[Kernel, ScaleLike]]:
    """Return each kernel with its scale: a number is shared by all, an array or list has one entry per kernel."""
    names = cast("list[Kernel]", kernel.split("+"))
    if len(names) == 1 or not isinstance(scale, list | tuple | np.ndarray):
        return [(name, scale) for name in names]
    if getattr(scale, "ndim", 1) and len(scale) == len(names):
        return list(zip(names, scale, strict=True))
    raise InvalidSetting(f"scale must be None, a number, or an array with an entry for each of {len(names)} kernels")


def _parse_scale(scale: ScaleLike) -> float | Floats | None:
    """Return a scale as None, a float or an array."""
    if scale is None:
        return None
    if not isinstance(scale, list | tuple | np.ndarray):
        if not 0 < as_float(scale) < _MAX_SCALE:
            raise InvalidSetting(f"scale must be None, a number between 0 and 1e9 or an array of these, got {scale!r}")
        return as_float(scale)
    try:
        array = np.array(scale)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise InvalidSetting(
            "scale must be None, a number, an array of one number per input or a square matrix, "
            f"got an array of shape {array.shape}, dtype {array.dtype}"
        )
    array = array.astype(np.float64)
    if not (np.abs(array) < _MAX_SCALE).all() or not array.any() or (array.ndim == 1 and (array < 0.0).any()):
        allowed = "of 0 or more, less than 1e9" if array.ndim == 1 else "between -1e9 and 1e9"
        raise InvalidSetting(f"scale must have numbers {allowed}, and not all 0")
    return array
