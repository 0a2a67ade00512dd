"""Request: what every request can do, whichever it is.

A request is a small frozen class. Its fields are the body of its record in the ledger, so that whoever reads the record
after a crash can carry the request out again. If it has long lists, they lie in a file beside the ledger and the record
has their lengths and the file's SHA-256. `plan` is a class method of each: from the vault as it is to a `Plan`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args, get_origin

import numpy as np

from ...errors import InvalidFile
from ...exact.arrays import Slots
from ...saving.files import Data
from ..disk.folder import sha256_of
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot
from ..ledger.records import LIST
from .listed import MOST, Kind
from .lost import Lost

Texts: TypeAlias = tuple[str, ...]

LONG = 1000  # entries of all lists together: with more, they are kept beside the ledger
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Request:
    """A request to a vault: how many rows it erases, corrects or adds, of how many people."""

    rows: int
    people: int

    kind: ClassVar[str]
    alike: ClassVar[tuple[str, ...]] = ()  # fields that belong together: all have as many entries

    def body(self) -> dict[str, Any]:
        """What its record in the ledger says, with all lists in it."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return said | {name: kind.to_json(said[name]) for name, kind in _lists(type(self)).items()}

    def written(self) -> tuple[dict[str, Any], list[Data]]:
        """What its record says, and what is kept beside the ledger: nothing if its lists are short."""
        kinds = _lists(type(self))
        counts = {name: len(getattr(self, name)) for name in kinds}
        if sum(counts.values()) <= LONG:
            return self.body(), []
        parts = [kind.to_bytes(getattr(self, name)) for name, kind in kinds.items()]
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return said | counts | {LIST: sha256_of(*parts)}, parts

    @classmethod
    def read(cls, body: Mapping[str, Any], listed: Callable[[str, int], bytes]) -> Self:
        """The request that a record tells of; ``listed`` reads a file of lists by its SHA-256 and its length."""
        kinds = _lists(cls)
        found = {f.name: _checked(cls.kind, f.name, f.type, body) for f in fields(cls) if f.name not in kinds}
        found |= cls._beside(body, listed) if LIST in body else cls._within(body)
        if len({len(found[name]) for name in cls.alike}) > 1:
            raise _damaged(cls.kind, cls.alike[0])
        return cls(**found)

    @classmethod
    def _within(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        """The lists that a record itself has."""
        found = dict[str, Any]()
        for name, kind in _lists(cls).items():
            value = body.get(name)
            found[name] = kind.from_json(value) if type(value) is list else None
            if found[name] is None:
                raise _damaged(cls.kind, name)
        return found

    @classmethod
    def _beside(cls, body: Mapping[str, Any], listed: Callable[[str, int], bytes]) -> dict[str, Any]:
        """The lists in the file that a record names."""
        kinds, sum_ = _lists(cls), body[LIST]
        if not (type(sum_) is str and _SHA256.fullmatch(sum_)):
            raise _damaged(cls.kind, LIST)
        sizes = {name: _checked(cls.kind, name, int, body) * kind.width for name, kind in kinds.items()}
        data, start = memoryview(listed(sum_, sum(sizes.values()))), 0
        found = dict[str, Any]()
        for name, kind in kinds.items():
            found[name], start = kind.from_bytes(data[start : start + sizes[name]]), start + sizes[name]
            if found[name] is None:
                raise _damaged(cls.kind, name)
        return found

    @property
    def touches(self) -> tuple[Slots, Hashes]:
        """The slots, and the keyed hashes of people, whose entries it overwrites in place."""
        return np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.uint64)

    def overwrite(self, vault: Snapshot, number: int) -> None:
        """Overwrite rows, bits and owners in place (step 4), as request ``number``. Doing it again changes nothing."""

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        """Add it, as request ``number``, to what an old copy of the folder has lost."""
        raise NotImplementedError

    def note(self) -> str | None:
        """What a person should know once it is carried out."""
        return None


def _declared(cls: type[Request]) -> dict[str, Kind]:
    """The fields of a request that are lists, and of which kind."""
    return {field.name: get_args(field.type)[1] for field in fields(cls) if get_origin(field.type) is Annotated}


_lists: Callable[[Any], dict[str, Kind]] = cache(_declared)


def _checked(kind: str, name: str, annotation: Any, body: Mapping[str, Any]) -> Any:
    """A field of a body, as its class declares it: a whole number, a text, or a tuple of texts."""
    value = body.get(name)
    if annotation is int and type(value) is int and 0 <= value < MOST:
        return value
    if annotation is str and type(value) is str:
        return value
    if annotation == Texts and type(value) is list and all(type(one) is str for one in value):
        return tuple(value)
    raise _damaged(kind, name)


def _damaged(kind: str, name: str) -> InvalidFile:
    return InvalidFile(f"the ledger is damaged: a record of kind {kind!r} has no valid {name!r}")
