"""The encoder: from a row to the integers that are summed into coded rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..exact.arrays import Floats, cut
from ..exact.limbs import feature_bits
from .bounds import Bounds
from .codes import Code
from .features import FeatureMap


@dataclass(frozen=True, eq=False)
class Encoder:
    """All that it takes to turn a row into integers: scale, map to features, put on a grid. Knows no row."""

    code: Code
    features: FeatureMap
    inputs: Bounds
    targets: Bounds
    intercept: bool

    @cached_property
    def bits(self) -> int:
        """F: a feature phi becomes the integer rint(phi * 2^F)."""
        return feature_bits(self.code.heaviest)

    @cached_property
    def n_targets(self) -> int:
        """Columns of y, t."""
        return len(self.targets.low)

    @cached_property
    def n_weights(self) -> int:
        """Columns of a coded row that a learner weighs: D features and, with an intercept, the ones."""
        return self.features.n_out + self.intercept

    @cached_property
    def width(self) -> int:
        """Columns of a coded row: features, ones, targets."""
        return self.n_weights + self.n_targets

    def integers(self, X: Floats, y: Floats) -> Floats:
        """Rows as integers in floats, (n, d) and (n, t) -> (n, width). No entry exceeds 2^F."""
        Z = np.empty((len(X), self.width))
        for block in cut(len(X), self.width):
            self._fill(Z[block], X[block], y[block])
        return Z

    def _fill(self, Z: Floats, X: Floats, y: Floats) -> None:
        p, unit = self.n_weights, 2.0**self.bits
        np.rint(self.features.map_block(self.inputs.scale(X), unit), out=Z[:, : p - self.intercept])
        if self.intercept:
            Z[:, p - 1] = unit
        np.rint(self.targets.scale(y) * unit, out=Z[:, p:])
