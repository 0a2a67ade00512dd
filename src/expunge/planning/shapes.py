"""Shapes: what the search varies about the features, on coarse grids: what a plan picks says little about anybody.

A shape is a kernel, how many inputs a feature looks at, one power of two for all inputs and one for each, and, of some
shapes, how the most relevant inputs are mixed: a matrix of eighths. A blend is several shapes whose features take
turns: what one of them cannot follow, another may.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..encoding.frequencies import Kernel
from ..exact.arrays import Floats
from ..transformers import RandomFourier

RELEVANCE_LEVELS = 7  # powers of two of relevance that slopes can give, from 1 down; below that, none
MAX_SCALE_POWER = (
    26  # scales are powers of two between 2^-26 and 2^26, or 0: mixed ones are still numbers that features take
)
MIN_SCALE_POWER = -12  # an input whose scale is at most this power of two has none
MAX_MIXED_INPUTS = 12  # as many inputs are mixed at most
EIGHTHS = 8  # entries of a mixing matrix are such parts of one,
MAX_MIXING = 4  # and less than this from those of the identity
MAX_BLENDED_SHAPES = 3  # as many shapes are blended at most


@dataclass(frozen=True, eq=False)
class Shape:
    """How the frequencies of the features are drawn."""

    kernel: Kernel
    order: int | None
    reach: float  # a power of two, which the relevance of each input is multiplied by
    relevance: Floats  # (d',), powers of two, and 0
    mixing: Floats | None = None  # (d', d'): what draws are multiplied by before the scales; None is the identity

    @property
    def kind(self) -> tuple[Kernel, int | None, bool]:
        """Kernel, order, and whether inputs are mixed."""
        return self.kernel, self.order, self.mixing is not None

    @classmethod
    def initial(cls, kernel: Kernel, order: int | None, columns: int) -> "Shape":
        """The shape to begin with: all inputs are equally relevant, and the cosines turn slowly."""
        return cls(kernel, order, 1.0, np.ones(columns)).normalise(1.0)

    def normalise(self, turns: float) -> "Shape":
        """The same with a reach such that a feature turns as much whatever the relevance is."""
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
        """The same with higher frequencies."""
        return replace(self, reach=self.reach * factor)

    def scale_input(self, column: int, factor: float) -> "Shape":
        """The same with one input more, or less, relevant; the others stay as they are."""
        relevance = self.relevance.copy()
        relevance[column] *= factor
        return replace(self, relevance=relevance)

    def weigh_inputs(self, slopes: Floats) -> "Shape":
        """The same with another relevance: slopes over the largest, as powers of two; it turns as much as before."""
        exponents = np.rint(np.log2(np.maximum(slopes, 1e-300) / max(slopes.max(), 1e-300)))
        relevance = np.where(exponents > -RELEVANCE_LEVELS, np.exp2(exponents), 0.0)
        return replace(self, relevance=relevance).normalise(self.reach * self.spread)

    def with_scales(self, powers: Floats, mixing: Floats | None = None) -> "Shape":
        """The same with these scales, given as powers of two that are rounded, and mixed by this matrix, rounded."""
        whole = np.rint(powers)
        relevance = np.where(whole <= min(MIN_SCALE_POWER, whole.max() - 1), 0.0, np.exp2(whole))
        if mixing is not None:
            one, farthest = np.eye(len(whole)), MAX_MIXING - 1 / EIGHTHS
            mixing = one + np.clip(np.rint((mixing - one) * EIGHTHS) / EIGHTHS, -farthest, farthest)
        return replace(self, reach=1.0, relevance=relevance, mixing=mixing)

    @property
    def scale(self) -> Floats:
        """The scale of each input, a power of two or 0, (d',)."""
        scale = self.reach * self.relevance
        return np.where(scale > 0, np.clip(scale, 2.0**-MAX_SCALE_POWER, 2.0**MAX_SCALE_POWER), 0.0)

    @property
    def metric(self) -> Floats:
        """What draws are multiplied by: the scale of each input, (d',), or if inputs are mixed a matrix, (d', d')."""
        return self.scale if self.mixing is None else self.scale[:, None] * self.mixing

    def features(self, cosines: int, seed: int) -> RandomFourier:
        """Features of this shape, and the inputs themselves."""
        return RandomFourier(
            cosines, kernel=self.kernel, scale=self.metric, linear=True, order=self.order, random_state=seed
        )


@dataclass(frozen=True, eq=False)
class Blend:
    """Shapes without an order, whose features take turns."""

    shapes: tuple[Shape, ...]

    def stretch(self, factor: float) -> "Blend":
        """The same with higher frequencies."""
        return Blend(tuple(shape.stretch(factor) for shape in self.shapes))

    def features(self, cosines: int, seed: int) -> RandomFourier:
        """Features of these shapes, and the inputs themselves."""
        metrics = [shape.metric for shape in self.shapes]
        if len({metric.ndim for metric in metrics}) > 1:
            metrics = [metric if metric.ndim == 2 else np.diag(metric) for metric in metrics]
        kernel = "+".join(shape.kernel for shape in self.shapes)
        return RandomFourier(cosines, kernel=kernel, scale=np.stack(metrics), linear=True, random_state=seed)


def blend_shapes(shapes: Sequence[Shape]) -> list[Blend]:
    """Blends of the first two and the first three shapes, the best first, that are of different kinds."""
    kinds = dict[object, Shape]()
    for shape in shapes:
        if shape.order is None:
            kinds.setdefault(shape.kind, shape)
    different = tuple(kinds.values())
    return [Blend(different[:count]) for count in range(2, min(MAX_BLENDED_SHAPES, len(different)) + 1)]
