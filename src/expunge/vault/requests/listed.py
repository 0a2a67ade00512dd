"""Listed: the two kinds of lists in a request, arrays in memory; JSON in a short record, bytes beside the ledger.

A million slots and hashes are 43 MB of JSON and many objects of Python, but 24 MB of two arrays.
"""

import re
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...saving.files import Data
from ..disk.people import as_text, from_text

MOST = 2**63  # numbers are below
_HASH = re.compile("[0-9a-f]{32}")


class Kind(Protocol):
    """A kind of list."""

    width: ClassVar[int]  # bytes per entry

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        """What a short record has."""

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        """The inverse of `to_json`; None of what no vault writes."""

    def to_bytes(self, array: NDArray[Any]) -> Data:
        """What is kept beside the ledger."""

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        """The inverse of `to_bytes`; None of what no vault writes."""


class _Numbers:
    """Whole numbers: slots, or requests."""

    width = 8

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        numbers: list[int] = array.tolist()
        return numbers

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        right = all(type(one) is int and 0 <= one < MOST for one in value)
        return np.array(value, dtype=np.int64) if right else None

    def to_bytes(self, array: NDArray[Any]) -> Data:
        return array.astype("<i8").data

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        array = np.frombuffer(data, dtype="<i8").astype(np.int64)
        return None if (array < 0).any() else array


class _People:
    """Keyed hashes of ids, (n, 2)."""

    width = 16

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        return list(as_text(array))

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        right = all(type(one) is str and _HASH.fullmatch(one) for one in value)
        return from_text(value) if right else None

    def to_bytes(self, array: NDArray[Any]) -> Data:
        return array.astype("<u8").reshape(-1).view(np.uint8).data

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)


Numbers: TypeAlias = Annotated[NDArray[np.int64], _Numbers()]  # (n,)
People: TypeAlias = Annotated[NDArray[np.uint64], _People()]  # (n, 2)
