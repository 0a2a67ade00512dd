"""Sides: the bounds in force as a manifest writes them, and back."""

import numpy as np

from ...encoding.bounds import Bounds
from ...encoding.extents import Extent, Extents
from .manifest import Manifest, Side


def side_of(extent: Extent) -> Side:
    """An extent, for the manifest."""
    bounds = extent.bounds
    low, high, at_low, at_high = (
        tuple(array.tolist()) for array in (bounds.low, bounds.high, extent.at_low, extent.at_high)
    )
    return Side(low, high, at_low, at_high, bounds.unit)


def extents_of(manifest: Manifest) -> Extents:
    """The bounds in force that a manifest tells of."""
    return Extents(_extent(manifest.inputs), _extent(manifest.targets))


def _extent(side: Side) -> Extent:
    bounds = Bounds(np.array(side.low, dtype=np.float64), np.array(side.high, dtype=np.float64), side.unit)
    return Extent(bounds, np.array(side.at_low, dtype=np.int64), np.array(side.at_high, dtype=np.int64))
