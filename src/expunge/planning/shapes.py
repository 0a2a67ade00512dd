"""Shapes: the parameters of the features that the search varies.

They lie on coarse grids, so that the shape that a plan picks reveals little about anyone. A shape is a kernel, the
number of inputs that a feature depends on, one power of two for all inputs and one for each, and optionally a matrix of
eighths that mixes the most relevant inputs. A blend is several shapes whose features alternate, because one may fit
where another cannot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..encoding.frequencies import Kernel
from ..exact.arrays import Floats
from ..transformers import RandomFourier

RELEVANCE_LEVELS = 7  # powers of two, from 1 down, that slopes can give as a relevance; below them it is 0
MAX_SCALE_POWER = 26  # scales are 0 or powers of two from 2^-26 to 2^26, which features accept even when mixed
MIN_SCALE_POWER = -12  # a scale of at most this power of two becomes 0
MAX_MIXED_INPUTS = 12
EIGHTHS = 8  # entries of a mixing matrix are multiples of 1/8
MAX_MIXING = 4  # and differ from the identity's by less than this
MAX_BLENDED_SHAPES = 3


@dataclass(frozen=True, eq=False)
class Shape:
    """The distribution from which the frequencies of features are drawn."""

    kernel: Kernel
    order: int | None  # inputs per feature; None: all
    reach: float  # a power of two that multiplies the relevance of each input
    relevance: Floats  # (d',), powers of two, and 0
    mixing: Floats | None = None  # (d', d'), multiplies draws before the scales; None is the identity

    @property
    def kind(self) -> tuple[Kernel, int | None, bool]:
        """Kernel, order, and whether inputs are mixed."""
        return self.kernel, self.order, self.mixing is not None

    @classmethod
    def initial(cls, kernel: Kernel, order: int | None, columns: int) -> "Shape":
        """Return the first shape of a search: all inputs are equally relevant, and the cosines turn slowly."""
        return cls(kernel, order, 1.0, np.ones(columns)).normalise(1.0)

    def normalise(self, turns: float) -> "Shape":
        """Return the shape with a reach such that features turn by ``turns``, whatever the relevance is."""
        return replace(self, reach=2.0 ** round(math.log2(turns / self.spread)))

    @property
    def spread(self) -> float:
        """How far a feature turns per unit of reach."""
        r = self.relevance
        if self.order is not None:
            return math.sqrt(2 * self.order)
        if self.kernel == "laplacian":
            return 2 * float(r.sum())  # the distances of the inputs add up
        return math.sqrt(2 * float((r * r).sum()))

    def stretch(self, factor: float) -> "Shape":
        """Return the shape with its frequencies multiplied by a power of two."""
        return replace(self, reach=self.reach * factor)

    def scale_input(self, column: int, factor: float) -> "Shape":
        """Return the shape with the relevance of one input multiplied by a power of two."""
        relevance = self.relevance.copy()
        relevance[column] *= factor
        return replace(self, relevance=relevance)

    def weigh_inputs(self, slopes: Floats) -> "Shape":
        """Return the shape with the relevance given by slopes, rounded to powers of two; features turn as before."""
        exponents = np.rint(np.log2(np.maximum(slopes, 1e-300) / max(slopes.max(), 1e-300)))
        relevance = np.where(exponents > -RELEVANCE_LEVELS, np.exp2(exponents), 0.0)
        return replace(self, relevance=relevance).normalise(self.reach * self.spread)

    def with_scales(self, powers: Floats, mixing: Floats | None = None) -> "Shape":
        """Return the shape with scales 2**powers and a mixing matrix, both rounded to their grids."""
        whole = np.rint(powers)
        relevance = np.where(whole <= min(MIN_SCALE_POWER, whole.max() - 1), 0.0, np.exp2(whole))
        if mixing is not None:
            identity, limit = np.eye(len(whole)), MAX_MIXING - 1 / EIGHTHS
            mixing = identity + np.clip(np.rint((mixing - identity) * EIGHTHS) / EIGHTHS, -limit, limit)
        return replace(self, reach=1.0, relevance=relevance, mixing=mixing)

    @property
    def scale(self) -> Floats:
        """The scale of each input, a power of two or 0, (d',)."""
        scale = self.reach * self.relevance
        return np.where(scale > 0, np.clip(scale, 2.0**-MAX_SCALE_POWER, 2.0**MAX_SCALE_POWER), 0.0)

    @property
    def metric(self) -> Floats:
        """The factor of draws: the scale of each input, (d',), or a matrix, (d', d'), if inputs are mixed."""
        return self.scale if self.mixing is None else self.scale[:, None] * self.mixing

    def features(self, cosines: int, seed: int) -> RandomFourier:
        """Return features of this shape, and the inputs themselves."""
        return RandomFourier(
            cosines, kernel=self.kernel, scale=self.metric, linear=True, order=self.order, random_state=seed
        )


@dataclass(frozen=True, eq=False)
class Blend:
    """Shapes without an order whose features alternate."""

    shapes: tuple[Shape, ...]

    def stretch(self, factor: float) -> "Blend":
        """Return the blend with its frequencies multiplied by a power of two."""
        return Blend(tuple(shape.stretch(factor) for shape in self.shapes))

    def features(self, cosines: int, seed: int) -> RandomFourier:
        """Return features of these shapes, and the inputs themselves."""
        metrics = [shape.metric for shape in self.shapes]
        if len({metric.ndim for metric in metrics}) > 1:
            metrics = [metric if metric.ndim == 2 else np.diag(metric) for metric in metrics]
        kernel = "+".join(shape.kernel for shape in self.shapes)
        return RandomFourier(cosines, kernel=kernel, scale=np.stack(metrics), linear=True, random_state=seed)


def blend_shapes(shapes: Sequence[Shape]) -> list[Blend]:
    """Return blends of the first two and the first three shapes of different kinds; ``shapes`` has the best first."""
    first_of_kind = dict[object, Shape]()
    for shape in shapes:
        if shape.order is None:
            first_of_kind.setdefault(shape.kind, shape)
    different = tuple(first_of_kind.values())
    return [Blend(different[:count]) for count in range(2, min(MAX_BLENDED_SHAPES, len(different)) + 1)]
