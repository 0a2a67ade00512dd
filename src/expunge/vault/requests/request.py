"""Request: what all requests have in common, and the callers that ask for them.

A request is a small frozen class. Its fields are the body of its record in the ledger, so that the request can be
carried out again from the record after a crash. Long lists lie in a file beside the ledger; the record then has their
lengths and the file's SHA-256. Each class has a class method `plan`, from the vault as it is to a `RequestPlan`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, TypeAlias, TypedDict, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from ...encoding.placement import RowNumbers
from ...errors import InvalidFile, InvalidSetting
from ...saving.files import Data
from ..disk.folder import sha256_hex
from ..disk.people import Hashes, hashes_from_hex, hashes_to_hex
from ..disk.snapshot import Snapshot
from ..ledger.records import LIST

if TYPE_CHECKING:
    from .restore import MissedChanges

_MAX_LINE_LENGTH = 200  # characters
_CALLER_TEXTS = ("job", "reference", "actor", "despite_hold")


@dataclass(frozen=True)
class Caller:
    """The caller of a request, in the caller's own words. They go into the ledger, and on demand into the certificate.

    Attributes
    ----------
    reference : str
        The caller's name for the request: the number of a ticket.
    actor : str
        The person who asked, or on whose behalf.
    job : str
        The id of the request in the system that passes it on, which finds the request in the ledger by it.
    in_certificate : bool
        Whether the certificate contains the reference and the actor as well.
    despite_hold : str
        Why people may be erased even if they are on legal hold; empty if they may not.
    """

    reference: str = ""
    actor: str = ""
    job: str = ""
    in_certificate: bool = False
    despite_hold: str = ""

    def __post_init__(self) -> None:
        for name in _CALLER_TEXTS:
            check_one_line(name, getattr(self, name))
        if self.in_certificate is not True and self.in_certificate is not False:
            raise InvalidSetting("in_certificate must be True or False")

    def note_unsaved(self) -> tuple[str, ...]:
        """Return a note that the reference was not saved, if there is a reference."""
        return ("the reference was not saved, because no new request was needed",) if self.reference else ()


@dataclass(frozen=True)
class Erasure:
    """One caller's erasure, to be carried out together with those of others (`Vault.unlearn_group`).

    Parameters
    ----------
    ids : int, str or a sequence of them
        The people whose rows are erased.
    reference, actor, job : str
        As in `Caller`.
    """

    ids: Any
    reference: str = ""
    actor: str = ""
    job: str = ""

    @property
    def caller(self) -> Caller:
        """The caller that asks for it."""
        return Caller(self.reference, self.actor, self.job)


class CallerArgs(TypedDict, total=False):
    """The fields of a `Caller`, as arguments of a request."""

    reference: str
    actor: str
    job: str
    in_certificate: bool


def caller_fields(callers: Sequence[Caller]) -> dict[str, Any]:
    """Return the fields of a request's record about its callers; callers without any text are left out."""
    texts = [{name: getattr(caller, name) for name in _CALLER_TEXTS} for caller in callers]
    return {
        "callers": [caller for caller in texts if any(caller.values())],
        "in_certificate": any(caller.in_certificate for caller in callers),
    }


def check_one_line(name: str, text: object) -> str:
    """Return a caller's text, or refuse it if it is not one line."""
    if not isinstance(text, str) or len(text) > _MAX_LINE_LENGTH or not text.isprintable():
        raise InvalidSetting(f"{name} must be one line of text of at most {_MAX_LINE_LENGTH} characters")
    return text


NUMBER_LIMIT = 2**63  # numbers are below
_HASH_PATTERN = re.compile("[0-9a-f]{32}")


class ListCodec(Protocol):
    """A kind of list in a request: an array in memory, JSON in a short record, bytes beside the ledger.

    A million slots and hashes are 43 MB of JSON and many Python objects, but 24 MB as two arrays.
    """

    width: ClassVar[int]  # bytes per entry

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        """Return the list for a short record."""

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        """Invert `to_json`; return None for a list that no vault writes."""

    def to_bytes(self, array: NDArray[Any]) -> Data:
        """Return the list for the file beside the ledger."""

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        """Invert `to_bytes`; return None for bytes that no vault writes."""


class _NumberListCodec:
    """Whole numbers: of rows, or of requests."""

    width = 8

    def to_json(self, array: NDArray[Any]) -> list[Any]:
        numbers: list[int] = array.tolist()
        return numbers

    def from_json(self, value: list[Any]) -> NDArray[Any] | None:
        valid = all(type(number) is int and 0 <= number < NUMBER_LIMIT for number in value)
        return np.array(value, dtype=np.int64) if valid else None

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
        valid = all(type(text) is str and _HASH_PATTERN.fullmatch(text) for text in value)
        return hashes_from_hex(value) if valid else None

    def to_bytes(self, array: NDArray[Any]) -> Data:
        return array.astype("<u8").reshape(-1).view(np.uint8).data

    def from_bytes(self, data: Data) -> NDArray[Any] | None:
        return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)


NumberList: TypeAlias = Annotated[NDArray[np.int64], _NumberListCodec()]  # (n,)
HashList: TypeAlias = Annotated[NDArray[np.uint64], _HashListCodec()]  # (n, 2)
Texts: TypeAlias = tuple[str, ...]

MAX_INLINE_ENTRIES = 1000  # entries of all lists together: with more, they lie beside the ledger
_SHA256_PATTERN = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Request:
    """A request to a vault: how many rows it erases, corrects or adds, of how many people."""

    rows: int
    people: int

    kind: ClassVar[str]
    same_length_fields: ClassVar[tuple[str, ...]] = ()  # fields that all have the same number of entries

    def serialise(self) -> tuple[dict[str, Any], list[Data]]:
        """Return the body of the request's record, and the bytes for beside the ledger: none if its lists are short."""
        codecs = _list_fields(type(self))
        body = {field.name: getattr(self, field.name) for field in fields(self)}
        counts = {name: len(body[name]) for name in codecs}
        if sum(counts.values()) <= MAX_INLINE_ENTRIES:
            return body | {name: codec.to_json(body[name]) for name, codec in codecs.items()}, []
        parts = [codec.to_bytes(body[name]) for name, codec in codecs.items()]
        return body | counts | {LIST: sha256_hex(*parts)}, parts

    @classmethod
    def read(cls, body: Mapping[str, Any], read_list: Callable[[str, int], bytes]) -> Self:
        """Return the request of a record; ``read_list`` reads a file of lists by its SHA-256 and its length."""
        codecs = _list_fields(cls)
        values = {f.name: _read_field(cls.kind, f.name, f.type, body) for f in fields(cls) if f.name not in codecs}
        values |= cls._read_list_file(body, read_list) if LIST in body else cls._read_inline_lists(body)
        if len({len(values[name]) for name in cls.same_length_fields}) > 1:
            raise _damaged_record_error(cls.kind, cls.same_length_fields[0])
        return cls(**values)

    @classmethod
    def _read_inline_lists(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the lists that a record itself contains."""
        lists = dict[str, Any]()
        for name, codec in _list_fields(cls).items():
            value = body.get(name)
            lists[name] = codec.from_json(value) if type(value) is list else None
            if lists[name] is None:
                raise _damaged_record_error(cls.kind, name)
        return lists

    @classmethod
    def _read_list_file(cls, body: Mapping[str, Any], read_list: Callable[[str, int], bytes]) -> dict[str, Any]:
        """Return the lists in the file that a record names."""
        codecs, sha256 = _list_fields(cls), body[LIST]
        if not (type(sha256) is str and _SHA256_PATTERN.fullmatch(sha256)):
            raise _damaged_record_error(cls.kind, LIST)
        sizes = {name: _read_field(cls.kind, name, int, body) * codec.width for name, codec in codecs.items()}
        data, start = memoryview(read_list(sha256, sum(sizes.values()))), 0
        lists = dict[str, Any]()
        for name, codec in codecs.items():
            lists[name], start = codec.from_bytes(data[start : start + sizes[name]]), start + sizes[name]
            if lists[name] is None:
                raise _damaged_record_error(cls.kind, name)
        return lists

    @property
    def open_count(self) -> int:
        """How many of its people had a part in choosing the settings, which stay until the next plan."""
        return 0

    @property
    def touched_entries(self) -> tuple[RowNumbers, Hashes]:
        """The numbers of rows, and the keyed hashes of people, whose entries it overwrites in place."""
        return np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.uint64)

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        """Overwrite rows, bits and owners in place (step 4), as request ``number``. Repeating it changes nothing."""

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        """Add this request, as number ``number``, to the changes that an old copy of the folder has missed."""
        raise NotImplementedError

    def note(self) -> str | None:
        """Return a message for users about the request, once it is carried out."""
        return None


def _find_list_fields(cls: type[Request]) -> dict[str, ListCodec]:
    """Return the fields of a request class that are lists, and their codecs."""
    return {field.name: get_args(field.type)[1] for field in fields(cls) if get_origin(field.type) is Annotated}


_list_fields: Callable[[Any], dict[str, ListCodec]] = cache(_find_list_fields)


def _read_field(kind: str, name: str, annotation: Any, body: Mapping[str, Any]) -> Any:
    """Return a field of a body, of the type that its class declares: a whole number, a text, or a tuple of texts."""
    value = body.get(name)
    if annotation is int and type(value) is int and 0 <= value < NUMBER_LIMIT:
        return value
    if annotation is str and type(value) is str:
        return value
    if annotation == Texts and type(value) is list and all(type(text) is str for text in value):
        return tuple(value)
    raise _damaged_record_error(kind, name)


def _damaged_record_error(kind: str, name: str) -> InvalidFile:
    return InvalidFile(f"the ledger is damaged: a record of kind {kind!r} has no valid {name!r}")
