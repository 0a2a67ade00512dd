"""Ids of rows: reading them, and finding the slots of an id."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, PeopleMismatch, UnknownId, format_positions
from ..exact.arrays import Slots

Ids: TypeAlias = NDArray[Any]  # int64 or fixed-width text

GONE = -1  # the slot of an erased row
_FEW, _ONE_IN = 1_000, 512  # an index keeps up to 1,000 erased entries, or one in 512, before it drops them

_ONE = np.array([1])
_ONE.flags.writeable = False

_LAST = 2**63 - 1  # sorts after every id that is a number

_TOO_LARGE = "ids that are whole numbers must fit in 64 bits, signed; use text for longer ones"


def as_ids(ids: Any, *, rows: int | None = None) -> Ids:
    """Return ids, whole numbers or text, one or many, as an array of ``rows`` entries if that is given."""
    if type(ids) is int and abs(ids) < 2**63 - 1 and rows is None:
        return np.array([ids])  # the same as below, faster
    if type(ids) is np.ndarray and ids.dtype == np.int64 and ids.shape == (1,) and rows is None and ids[0] != _LAST:
        return ids.copy()
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        ids = [ids]
    array = np.atleast_1d(ids) if hasattr(ids, "__array__") else np.array(list(ids), dtype=object)
    if array.ndim != 1:
        raise InvalidInput(f"ids must be one-dimensional, got shape {array.shape}")
    if not len(array):
        array = array.astype(np.int64)
    if rows is not None and len(array) != rows:
        raise InvalidInput(f"ids must be one per row, got {len(array)} ids for {rows} rows")
    if array.dtype.kind in "OT":
        array = _from_objects(array)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and (array > np.iinfo(np.int64).max).any():
            raise InvalidInput(_TOO_LARGE)
        array = array.astype(np.int64)
    elif array.dtype.kind != "U":
        raise InvalidInput(f"ids must be whole numbers or text, got {array.dtype}")
    if (array == _last_value(array.dtype)).any():  # reserved: it overwrites erased ids
        raise InvalidInput("ids must not be 2**63 - 1, nor text of U+10FFFF alone")
    return array


def _from_objects(array: Ids) -> Ids:
    values = array.tolist()
    kinds = set(map(type, values))
    if all(issubclass(kind, str) for kind in kinds):
        if any(v.endswith("\0") for v in values):
            raise InvalidInput("ids must not end in a NUL character")  # NumPy drops it: two ids would become one
        return np.array(values, dtype=np.str_)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            raise InvalidInput(_TOO_LARGE) from None
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise InvalidInput(f"ids must be all whole numbers or all text, without gaps, got {names}; try str(id)")


class IdIndex:
    """The slots of each id, in order of arrival.

    Two arrays, sorted by id. Erasing overwrites entries in place (the slot by `GONE`, the id by its right neighbour's,
    which keeps the order), so the id is nowhere afterwards. Erased entries are found and overwritten along with that
    neighbour: once there are more than a thousand, and more than one in 512, the next search drops them all. So the
    cost of a request grows neither with the number of rows nor with the number of earlier erasures.
    """

    def __init__(self, ids: Ids | None, slots: Slots) -> None:
        """Index the rows in these slots by their ids; None stands for 0, 1, 2, ..."""
        if ids is None:
            self._ids, self._slots = np.arange(len(slots)), slots.copy()
        else:
            order = np.argsort(ids, kind="stable")
            self._ids, self._slots = ids[order], slots[order]
        self._gone = 0

    def entries(self) -> tuple[Ids, Slots]:
        """Return ids and slots of all present rows; text is no wider than the longest id."""
        live = self._slots != GONE
        ids = self._ids[live]
        if ids.dtype.kind == "U":
            ids = ids.astype(f"<U{max(1, np.char.str_len(ids).max(initial=0))}")
        return ids, self._slots[live]

    def number_people(self, slots: Slots) -> Slots | None:
        """Return a number for the person of each of these rows; None if everybody has one row."""
        ids, own = self.entries()
        number = np.cumsum(ids[1:] != ids[:-1])
        if len(ids) < 2 or number[-1] == len(number):
            return None
        people = np.zeros(int(own.max()) + 1, dtype=np.int64)
        people[own[1:]] = number
        return people[slots]

    def with_rows(self, ids: Ids, slots: Slots) -> "IdIndex":
        """Return a new index with more rows; earlier rows of an id stay first."""
        mine, mine_slots = self.entries()
        _check_same_kind(mine, ids)
        if len(mine) and len(ids):
            ids = np.concatenate([mine, ids])
        return IdIndex(ids if len(ids) else mine, np.concatenate([mine_slots, slots]))

    def find(self, wanted: Ids) -> "FoundRows":
        """Find all rows of these ids; raise `UnknownId` if an id has none."""
        if self._gone > max(_FEW, len(self._ids) // _ONE_IN):
            live = self._slots != GONE
            self._ids, self._slots, self._gone = self._ids[live], self._slots[live], 0
        low, high = self._ranges(wanted)
        if len(wanted) == 1:
            return self._find_one(int(low[0]), int(high[0]))
        owner, place = _expand_ranges(low, high - low)
        slots = self._slots[place]
        live = slots != GONE
        slots, counts = slots[live], np.bincount(owner[live], minlength=len(wanted))
        place.sort()
        if counts.min(initial=1) == 0:
            raise _unknown_ids(np.flatnonzero(counts == 0).tolist(), len(wanted))
        return FoundRows(slots, counts, place)

    def _find_one(self, low: int, high: int) -> "FoundRows":
        """Return the rows of one id from its range of entries, which erased entries of earlier ids may precede."""
        slots = self._slots
        if high > low and slots[high - 1] == GONE:
            high = low
        if high - low > 1:
            mine = slots[low:high] if slots[high - 2] != GONE else slots[high - 1 : high]
            mine = mine[mine != GONE]
        else:
            mine = slots[low:high].copy()
        if not len(mine):
            raise _unknown_ids([0], 1)
        return FoundRows(mine, _ONE if len(mine) == 1 else np.array([len(mine)]), range(low, high))

    def erase(self, found: "FoundRows") -> None:
        """Erase ids that were found. Repeating it changes nothing."""
        places, ids = found.places, self._ids
        if isinstance(places, range):  # one id: its entries are neighbours
            low, high = places.start, places.stop
            if self._slots[high - 1] != GONE:
                self._gone += len(found.slots)
            self._slots[low:high] = GONE
            ids[low:high] = ids[high] if high < len(ids) else _last_value(ids.dtype)
            return
        self._gone += int(np.count_nonzero(self._slots[places] != GONE))
        self._slots[places] = GONE
        lasts = _last_of_runs(places)
        after = places[lasts] + 1  # the right neighbours, which stay
        heirs = ids.take(after, mode="clip")
        heirs[after == len(ids)] = _last_value(ids.dtype)
        ids[places] = heirs if len(heirs) == 1 else heirs.repeat(np.diff(lasts, prepend=-1))

    def _ranges(self, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return where the entries of these ids begin and end."""
        if not len(self._ids):
            return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=np.intp)
        if wanted.dtype == self._ids.dtype:
            return self._ids.searchsorted(wanted), self._ids.searchsorted(wanted, "right")
        _check_same_kind(self._ids, wanted)
        cut = wanted.astype(self._ids.dtype, copy=False)
        low, high = self._ids.searchsorted(cut, "left"), self._ids.searchsorted(cut, "right")
        if wanted.dtype.itemsize > self._ids.dtype.itemsize:  # text that may be longer than any here was cut: no match
            high[cut != wanted] = low[cut != wanted]
        return low, high


class FoundRows(NamedTuple):
    """Rows that were found: their slots, grouped by id in the order of the query, each id's in order of arrival."""

    slots: Slots  # (k,)
    counts: NDArray[np.intp]  # rows per id
    places: NDArray[np.intp] | range  # positions of these ids' entries in the index, sorted


def slots_of_mentions(
    group: NDArray[np.intp], slots: Slots, counts: NDArray[np.intp], *, where: str, way_out: str
) -> Slots:
    """Return the slot of each row that names an id: the k-th mention of an id is its k-th row.

    Parameters
    ----------
    group : array, shape (n,)
        The number of the id that each row names.
    slots : array, shape (n,)
        The slots of these ids, grouped by id, each id's in order of arrival.
    counts : array
        Rows per id.
    where, way_out : str
        Parts of the error for ids that were named more or less often than they have rows: "2 ids have a different
        number of rows {where}: give all rows of an id; to remove or add some, {way_out}".
    """
    mentions = np.bincount(group, minlength=len(counts))
    if mismatches := int((mentions != counts).sum()):
        ids = "1 id has" if mismatches == 1 else f"{mismatches:,} ids have"
        raise PeopleMismatch(
            f"{ids} a different number of rows {where}: give all rows of an id; to remove or add some, {way_out}"
        )
    ordered = np.empty_like(slots)
    ordered[np.argsort(group, kind="stable")] = slots
    return ordered


def _unknown_ids(places: list[int], wanted: int) -> UnknownId:
    return UnknownId(
        f"ids that are not in the model (unknown, or unlearned before): {len(places):,} of {wanted:,}, "
        f"{format_positions(places)}; nothing was changed"
    )


def _expand_ranges(first: NDArray[np.intp], counts: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Expand ranges: return the range that each place is in, and the places."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) + np.repeat(first - (np.cumsum(counts) - counts), counts)


def _last_of_runs(places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the positions at which runs of neighbours end among sorted places."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return np.array([len(places) - 1])
    return np.flatnonzero(np.diff(places, append=-1) != 1)


def _check_same_kind(mine: Ids, theirs: Ids) -> None:
    if len(mine) and len(theirs) and mine.dtype.kind != theirs.dtype.kind:
        kinds = {"i": "whole numbers", "U": "text"}
        raise InvalidInput(f"this model's ids are {kinds[mine.dtype.kind]}, got {kinds[theirs.dtype.kind]}")


def _last_value(dtype: np.dtype[Any]) -> Any:
    """Return a value that sorts after every id."""
    return _LAST if dtype.kind == "i" else "\U0010ffff" * (dtype.itemsize // 4)
