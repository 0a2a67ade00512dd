"""Arrays of Arrow: what their cells are, and how they become arrays of NumPy."""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....exact.arrays import Floats

Arrow: TypeAlias = Any  # an array, type, batch or schema of pyarrow, which ships no types


def is_text(cells: Arrow) -> bool:
    """Return whether cells of this type are text."""
    return bool(pa.types.is_string(cells) or pa.types.is_large_string(cells) or pa.types.is_string_view(cells))


def unpacked_type(cells: Arrow) -> Arrow:
    """Return the type of the cells that a dictionary stands for."""
    return unpacked_type(cells.value_type) if pa.types.is_dictionary(cells) else cells


def unpacked(array: Arrow) -> Arrow:
    """Return dictionaries and views as plain arrays: many of pyarrow's functions take no others."""
    if pa.types.is_dictionary(array.type):
        return unpacked(array.dictionary).take(array.indices)
    return array.cast(pa.large_string()) if is_text(array.type) else array


def floats(array: Arrow) -> Floats:
    """Return a copy as floats, NaN for null.

    Adding 0.0 turns -0.0 into 0.0: which of the two it was would else show in the bounds.
    """
    copy: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0
    return copy


def mask(array: Arrow) -> NDArray[np.bool_]:
    """Return booleans without nulls as an array of NumPy."""
    flags: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return flags
