"""Request: what every request can do, whichever it is.

A request is a small frozen class. Its fields are the body of its record in the ledger, so that whoever reads the record
after a crash can carry the request out again. If it has long lists, they lie in a file beside the ledger and the record
has their lengths and the file's SHA-256. `plan` is a class method of each: from the vault as it is to a `Plan`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeAlias, TypedDict, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidFile, InvalidSetting
from ...exact.arrays import Slots, unique
from ...saving.files import Data
from ...stores.bits import Bits
from ..disk.folder import sha256_hex
from ..disk.people import hashes_from_hex, hashes_to_bytes, hashes_to_hex
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot
from ..ledger.records import LIST

# MERGED caller: Callers: who asked for a request and why, in the caller's own words.


_MAX_LINE_LENGTH = 200  # characters


@dataclass(frozen=True)
class Caller:
    """What a caller says about a request. It goes into the ledger, and into the certificate only if that is asked for.

    Attributes
    ----------
    reference : str
        What the caller calls the request: the number of a ticket.
    actor : str
        Who asked, or on whose behalf.
    job : str
        The id of the request in the system that passes it on, by which it finds the request in the ledger again.
    in_certificate : bool
        Whether the certificate says the reference and the actor as well.
    despite_hold : str
        Why people are erased although they may be on legal hold; empty if nobody on hold may be.
    """

    reference: str = ""
    actor: str = ""
    job: str = ""
    in_certificate: bool = False
    despite_hold: str = ""

    def __post_init__(self) -> None:
        for name in ("reference", "actor", "job", "despite_hold"):
            check_one_line(name, getattr(self, name))
        if self.in_certificate is not True and self.in_certificate is not False:
            raise InvalidSetting("in_certificate must be True or False")

    def describe(self) -> dict[str, str]:
        """Return what the ledger's record says about this caller."""
        words = {"job": self.job, "reference": self.reference, "actor": self.actor}
        return words | {"despite_hold": self.despite_hold}

    def note_unsaved(self) -> tuple[str, ...]:
        """Return a note for a caller whose reference was not saved, if there was one."""
        return ("the reference was not saved, because no new request was needed",) if self.reference else ()


@dataclass(frozen=True)
class Erasure:
    """One caller's erasure, to be carried out together with those of others (`Vault.unlearn_group`).

    Parameters
    ----------
    ids : int, str or a sequence of them
        Whose rows to erase.
    reference, actor, job : str
        As in `Caller`.
    """

    ids: Any
    reference: str = ""
    actor: str = ""
    job: str = ""

    @property
    def caller(self) -> Caller:
        """Who asks for it."""
        return Caller(self.reference, self.actor, self.job)


class CallerArgs(TypedDict, total=False):
    """The fields of a `Caller`, as arguments of a request."""

    reference: str
    actor: str
    job: str
    in_certificate: bool


def caller_fields(callers: Sequence[Caller]) -> dict[str, Any]:
    """Return what the record of a request says about its callers: those who said anything."""
    described = [caller.describe() for caller in callers]
    return {
        "callers": [caller for caller in described if any(caller.values())],
        "in_certificate": any(caller.in_certificate for caller in callers),
    }


def check_one_line(name: str, text: object) -> str:
    """Return what a caller says, or refuse what is not one line of text."""
    if not isinstance(text, str) or len(text) > _MAX_LINE_LENGTH or not text.isprintable():
        raise InvalidSetting(f"{name} must be one line of text of at most {_MAX_LINE_LENGTH} characters")
    return text


# MERGED listed: Listed: the two kinds of lists in a request, arrays in memory; JSON in a short record, bytes beside the ledger.
# MERGED listed:
# MERGED listed: A million slots and hashes are 43 MB of JSON and many objects of Python, but 24 MB of two arrays.


NUMBER_LIMIT = 2**63  # numbers are below
_HASH_PATTERN = re.compile("[0-9a-f]{32}")


class ListCodec(Protocol):
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


class _NumberListCodec:
    """Whole numbers: slots, or requests."""

    width = 8

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        numbers: list[int] = array.tolist()
        return numbers

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        right = all(type(one) is int and 0 <= one < NUMBER_LIMIT for one in value)
        return np.array(value, dtype=np.int64) if right else None

    def to_bytes(self, array: NDArray[Any]) -> Data:
        return array.astype("<i8").data

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        array = np.frombuffer(data, dtype="<i8").astype(np.int64)
        return None if (array < 0).any() else array


class _HashListCodec:
    """Keyed hashes of ids, (n, 2)."""

    width = 16

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        return list(hashes_to_hex(array))

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        right = all(type(one) is str and _HASH_PATTERN.fullmatch(one) for one in value)
        return hashes_from_hex(value) if right else None

    def to_bytes(self, array: NDArray[Any]) -> Data:
        return array.astype("<u8").reshape(-1).view(np.uint8).data

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)


NumberList: TypeAlias = Annotated[NDArray[np.int64], _NumberListCodec()]  # (n,)
HashList: TypeAlias = Annotated[NDArray[np.uint64], _HashListCodec()]  # (n, 2)


# MERGED lost: What an old copy of the folder has lost: the requests that the ledger knows and the copy does not, added up.


@dataclass
class MissedChanges:
    """The sum of requests that a folder has not seen, in their order; each adds itself with `Request.replay`.

    Erased rows are erased again. A corrected row is erased, too: the right values are gone, and the wrong ones must not
    come back. Added rows are missing, and their slots are never given out again. All rows that the copy has of people
    who were erased or corrected go, also those that the requests could not name: another copy had lost them.
    """

    live: Bits  # which slots have a row in the old copy
    erase: Bits = field(init=False)  # which of them go
    people: set[bytes] = field(default_factory=set)  # keyed hashes of the ids that were erased or corrected
    bury: dict[bytes, int] = field(default_factory=dict)  # hash of an id -> the request whose certificate says so
    drop: set[bytes] = field(default_factory=set)  # their rows go, and they may come again
    free: set[bytes] = field(default_factory=set)  # readmitted
    bounds: dict[str, tuple[str, str]] = field(default_factory=dict)  # column -> low and high, as text
    drawn: int = 0
    missing: int = 0

    def __post_init__(self) -> None:
        self.erase = Bits.zeros(len(self.live))

    def add_erased(self, slots: Slots) -> int:
        """Take rows that were erased; return how many of them the copy never had: they were added and erased since."""
        gone = unique(slots)
        here = gone[gone < len(self.live)]
        here = here[self.live[here]]
        self.erase[here] = True
        return len(gone) - len(here)

    def add_buried(self, hashes: Hashes, requests: Iterable[int]) -> None:
        """Take people who were erased, and by which requests."""
        who = hashes_to_bytes(hashes)
        self.bury.update(zip(who, requests, strict=True))
        self.drop.difference_update(who)

    def add_dropped(self, hashes: Hashes) -> None:
        """Take people whose rows go and who may come again."""
        self.drop.update(one for one in hashes_to_bytes(hashes) if one not in self.bury)

    def add_readmitted(self, hashes: Hashes) -> None:
        """Take people who were readmitted."""
        for one in hashes_to_bytes(hashes):
            self.bury.pop(one, None)
            self.drop.add(one)
            self.free.add(one)


Texts: TypeAlias = tuple[str, ...]

MAX_INLINE_ENTRIES = 1000  # entries of all lists together: with more, they are kept beside the ledger
_SHA256_PATTERN = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Request:
    """A request to a vault: how many rows it erases, corrects or adds, of how many people."""

    rows: int
    people: int

    kind: ClassVar[str]
    same_length_fields: ClassVar[tuple[str, ...]] = ()  # fields that belong together: all have as many entries

    def body(self) -> dict[str, Any]:
        """What its record in the ledger says, with all lists in it."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return said | {name: kind.to_json(said[name]) for name, kind in _list_fields(type(self)).items()}

    def serialise(self) -> tuple[dict[str, Any], list[Data]]:
        """What its record says, and what is kept beside the ledger: nothing if its lists are short."""
        kinds = _list_fields(type(self))
        counts = {name: len(getattr(self, name)) for name in kinds}
        if sum(counts.values()) <= MAX_INLINE_ENTRIES:
            return self.body(), []
        parts = [kind.to_bytes(getattr(self, name)) for name, kind in kinds.items()]
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return said | counts | {LIST: sha256_hex(*parts)}, parts

    @classmethod
    def read(cls, body: Mapping[str, Any], read_list: Callable[[str, int], bytes]) -> Self:
        """The request that a record tells of; ``listed`` reads a file of lists by its SHA-256 and its length."""
        kinds = _list_fields(cls)
        found = {f.name: _read_field(cls.kind, f.name, f.type, body) for f in fields(cls) if f.name not in kinds}
        found |= cls._read_list_file(body, read_list) if LIST in body else cls._read_inline_lists(body)
        if len({len(found[name]) for name in cls.same_length_fields}) > 1:
            raise _damaged_record_error(cls.kind, cls.same_length_fields[0])
        return cls(**found)

    @classmethod
    def _read_inline_lists(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        """The lists that a record itself has."""
        found = dict[str, Any]()
        for name, kind in _list_fields(cls).items():
            value = body.get(name)
            found[name] = kind.from_json(value) if type(value) is list else None
            if found[name] is None:
                raise _damaged_record_error(cls.kind, name)
        return found

    @classmethod
    def _read_list_file(cls, body: Mapping[str, Any], read_list: Callable[[str, int], bytes]) -> dict[str, Any]:
        """The lists in the file that a record names."""
        kinds, sum_ = _list_fields(cls), body[LIST]
        if not (type(sum_) is str and _SHA256_PATTERN.fullmatch(sum_)):
            raise _damaged_record_error(cls.kind, LIST)
        sizes = {name: _read_field(cls.kind, name, int, body) * kind.width for name, kind in kinds.items()}
        data, start = memoryview(read_list(sum_, sum(sizes.values()))), 0
        found = dict[str, Any]()
        for name, kind in kinds.items():
            found[name], start = kind.from_bytes(data[start : start + sizes[name]]), start + sizes[name]
            if found[name] is None:
                raise _damaged_record_error(cls.kind, name)
        return found

    @property
    def touched_entries(self) -> tuple[Slots, Hashes]:
        """The slots, and the keyed hashes of people, whose entries it overwrites in place."""
        return np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.uint64)

    def overwrite(self, vault: Snapshot, number: int) -> None:
        """Overwrite rows, bits and owners in place (step 4), as request ``number``. Doing it again changes nothing."""

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        """Add it, as request ``number``, to what an old copy of the folder has lost."""
        raise NotImplementedError

    def note(self) -> str | None:
        """What a person should know once it is carried out."""
        return None


def _find_list_fields(cls: type[Request]) -> dict[str, ListCodec]:
    """The fields of a request that are lists, and of which kind."""
    return {field.name: get_args(field.type)[1] for field in fields(cls) if get_origin(field.type) is Annotated}


_list_fields: Callable[[Any], dict[str, ListCodec]] = cache(_find_list_fields)


def _read_field(kind: str, name: str, annotation: Any, body: Mapping[str, Any]) -> Any:
    """A field of a body, as its class declares it: a whole number, a text, or a tuple of texts."""
    value = body.get(name)
    if annotation is int and type(value) is int and 0 <= value < NUMBER_LIMIT:
        return value
    if annotation is str and type(value) is str:
        return value
    if annotation == Texts and type(value) is list and all(type(one) is str for one in value):
        return tuple(value)
    raise _damaged_record_error(kind, name)


def _damaged_record_error(kind: str, name: str) -> InvalidFile:
    return InvalidFile(f"the ledger is damaged: a record of kind {kind!r} has no valid {name!r}")
