"""Request: what every request can do, whichever it is.

A request is a small frozen class. Its fields are the body of its record in the ledger, so that whoever reads the record
after a crash can carry the request out again. `plan` is a class method of each: from the vault as it is to a `Plan`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args, get_origin

from ...errors import InvalidFile
from ..disk.snapshot import Snapshot
from .lost import Lost

Numbers: TypeAlias = tuple[int, ...]
Texts: TypeAlias = tuple[str, ...]
People: TypeAlias = Annotated[Texts, re.compile("[0-9a-f]{32}")]  # keyed hashes of ids, as `as_text` gives them

_MOST = 2**63  # numbers are below


@dataclass(frozen=True)
class Request:
    """A request to a vault: how many rows it erases, corrects or adds, of how many people."""

    rows: int
    people: int

    kind: ClassVar[str]
    alike: ClassVar[tuple[str, ...]] = ()  # fields that belong together: all have as many entries

    def body(self) -> dict[str, Any]:
        """What its record in the ledger says."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """The request that a record tells of."""
        found = {field.name: _checked(cls.kind, field.name, field.type, body) for field in fields(cls)}
        if len({len(found[name]) for name in cls.alike}) > 1:
            raise _damaged(cls.kind, cls.alike[0])
        return cls(**found)

    def overwrite(self, vault: Snapshot, number: int) -> None:
        """Overwrite rows, bits and owners in place (step 4), as request ``number``. Doing it again changes nothing."""

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        """Add it, as request ``number``, to what an old copy of the folder has lost."""
        raise NotImplementedError

    def note(self) -> str | None:
        """What a person should know once it is carried out."""
        return None


def _checked(kind: str, name: str, annotation: Any, body: Mapping[str, Any]) -> Any:
    """A field of a body, as its class declares it: a whole number, a text, or a tuple of them."""
    value, pattern = body.get(name), None
    if get_origin(annotation) is Annotated:
        annotation, pattern = get_args(annotation)
    if annotation in (int, str):
        if _fits(value, annotation):
            return value
    elif type(value) is list and all(_fits(one, get_args(annotation)[0], pattern) for one in value):
        return tuple(value)
    raise _damaged(kind, name)


def _fits(value: Any, kind: type, pattern: re.Pattern[str] | None = None) -> bool:
    """Whether a value is a text of this pattern, or a number that a request can have."""
    right: bool = type(value) is kind
    if right and kind is int:
        right = 0 <= value < _MOST
    return right and (pattern is None or pattern.fullmatch(value) is not None)


def _damaged(kind: str, name: str) -> InvalidFile:
    return InvalidFile(f"the ledger is damaged: a record of kind {kind!r} has no valid {name!r}")
