"""Labels: the classes of a model, and the columns of zeros and ones that stand for them.

Classes are declared, as public facts, or observed: then they depend on the rows, like observed bounds. No message has a
label: it may be a person's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, InvalidSetting
from ..exact.arrays import Floats, Integers, unique

MOST_CLASSES = 100


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of a model, sorted."""

    values: NDArray[Any]  # (K,) bool, whole numbers, or text
    declared: bool

    @classmethod
    def observe(cls, y: Any) -> Self:
        """Return the classes of these rows, (n,)."""
        return cls(_check_count(unique(as_labels(y))), declared=False)

    @classmethod
    def declare(cls, classes: Any) -> Self:
        """Read declared classes, each once, in any order."""
        try:
            given = as_labels([classes] if isinstance(classes, str) or not isinstance(classes, Iterable) else classes)
        except InvalidInput as error:
            raise InvalidSetting(f"classes: {error}") from None
        values = unique(given)
        if len(values) < len(given) or not len(values):
            raise InvalidSetting("classes must name at least one class, and each once")
        return cls(_check_count(values), declared=True)

    def __len__(self) -> int:
        return len(self.values)

    def with_new(self, y: Any) -> Self:
        """Return the classes with those of more rows, if they are observed."""
        y = self._check_kind(as_labels(y))
        if self.declared or not len(new := unique(y[~self._find(y)[1]])):
            return self
        return type(self)(_check_count(np.sort(np.concatenate([self.values, new]))), declared=False)

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return some of the classes; text is no wider than the longest of them."""
        values = self.values[kept]
        if values.dtype.kind == "U":
            values = values.astype(f"<U{max(1, np.char.str_len(values).max(initial=0))}")
        return type(self)(values, self.declared)

    def one_hot(self, y: Any) -> Floats:
        """Return a column of zeros and ones per class: (n,) -> (n, K); refuse a label that is none of the classes."""
        place, known = self._find(self._check_kind(as_labels(y)))
        if unknown := int(np.count_nonzero(~known)):
            raise InvalidInput(
                f"y has labels that are none of the {len(self)} {'declared ' * self.declared}classes in {unknown:,} of "
                f"{len(place):,} rows; correct them, or declare all classes when the model is trained"
            )
        columns = np.zeros((len(place), len(self)))
        columns[np.arange(len(place)), place] = 1.0
        return columns

    def columns_of(self, others: "Labels") -> Integers:
        """Return the column that each of the other classes has here; -1 for those that are not here."""
        if not len(self):
            return np.full(len(others), -1)
        place, known = self._find(others.values)
        return np.where(known, place, -1)

    def describe(self) -> dict[str, Any]:
        """Return the classes as plain JSON values."""
        return {"kind": self.values.dtype.kind, "values": self.values.tolist(), "declared": self.declared}

    @classmethod
    def from_description(cls, described: dict[str, Any]) -> Self:
        """Return the classes that `describe` described; raise an error for anything that it would not have written."""
        values = as_labels(described["values"]) if described["values"] else np.zeros(0, dtype=np.int64)
        if described["kind"] in "iuf" and values.dtype.kind in "if":
            values = values.astype(described["kind"] + "8")
        labels = cls(values, bool(described["declared"]))
        if labels.describe() != described or not np.array_equal(unique(values), values):
            raise ValueError("not classes")
        return labels

    def _find(self, y: NDArray[Any]) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the column of each label, and whether it is one of the classes."""
        if not len(self):
            return np.zeros(len(y), dtype=np.int64), np.zeros(len(y), dtype=np.bool_)
        place = np.minimum(np.searchsorted(self.values, y), len(self) - 1)
        return place, self.values[place] == y

    def _check_kind(self, y: NDArray[Any]) -> NDArray[Any]:
        if len(self) and len(y) and (self.values.dtype.kind == "U") != (y.dtype.kind == "U"):
            kinds = {True: "text", False: "numbers"}
            raise InvalidInput(
                f"this model's classes are {kinds[self.values.dtype.kind == 'U']}, got {kinds[y.dtype.kind == 'U']}"
            )
        return y


def as_labels(labels: Any) -> NDArray[Any]:
    """Return labels as an array of booleans, whole numbers (maybe as floats) or text."""
    y: NDArray[Any] = labels if isinstance(labels, np.ndarray) else np.array(list(labels), dtype=object)
    if y.dtype.kind in "OT":
        kinds = set(map(type, y.tolist()))
        if all(issubclass(kind, str) for kind in kinds):
            y = y.astype(np.str_)
        elif kinds <= {bool, np.bool_}:
            y = y.astype(np.bool_)
        elif all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
            y = y.astype(np.int64)
        elif all(issubclass(kind, float | np.floating) for kind in kinds):
            y = y.astype(np.float64)
        else:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InvalidInput(
                f"labels must be all text, all whole numbers or all True and False, without gaps, got {names}"
            )
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.floor(y))).all():
        raise InvalidInput("labels that are numbers must be whole; for other targets use CodedRegressor")
    if y.dtype.kind not in "biufU":
        raise InvalidInput(f"labels must be text, whole numbers or True and False, got {y.dtype}")
    return y


def _check_count(values: NDArray[Any]) -> NDArray[Any]:
    if len(values) > MOST_CLASSES:
        raise InvalidInput(
            f"y has {len(values):,} classes, at most {MOST_CLASSES} are possible; merge rare classes, or use "
            "CodedRegressor if y is a number"
        )
    return values
