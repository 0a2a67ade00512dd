"""Moments in floats: for trials, which choose settings and are thrown away. A third of the work, and not exact."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .arrays import Floats
from .blas import add_gram


@dataclass(frozen=True, eq=False)
class FloatMoments:
    """About the sum of q'q over coded rows q; `ridge_weights` takes it in the place of `Moments`."""

    total: Floats  # (w, w), the upper triangle

    @classmethod
    def of(cls, width: int, blocks: Iterable[Floats]) -> "FloatMoments":
        """Sum the products of coded rows, (m, w) integers in floats."""
        total = np.zeros((width, width))
        for rows in blocks:
            add_gram(total, np.ascontiguousarray(rows), 1.0)
        return cls(total)

    def __add__(self, other: "FloatMoments") -> "FloatMoments":
        return FloatMoments(self.total + other.total)

    def matrix(self, bits: int) -> Floats:
        """The lower triangle of Q'Q / 2^(2 bits), (w, w) in Fortran order; what is above it means nothing."""
        return (self.total * 2.0 ** (-2 * bits)).T
