"""Request: what every request can do, whichever it is.

A request is a small frozen class. Its fields are the body of its record in the ledger, so that whoever reads the record
after a crash can carry the request out again. `plan` is a class method of each: from the vault as it is to a `Plan`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeAlias, get_args

from ...errors import InvalidFile
from ..disk.snapshot import Snapshot
from .lost import Lost

Numbers: TypeAlias = tuple[int, ...]
Texts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """A request to a vault: how many rows it erases, corrects or adds, of how many people."""

    rows: int
    people: int

    kind: ClassVar[str]

    def body(self) -> dict[str, Any]:
        """What its record in the ledger says."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """The request that a record tells of."""
        return cls(**{field.name: _checked(cls.kind, field.name, field.type, body) for field in fields(cls)})

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
    value = body.get(name)
    if annotation in (int, str):
        if type(value) is annotation:
            return value
    elif type(value) is list and all(type(one) is get_args(annotation)[0] for one in value):
        return tuple(value)
    raise InvalidFile(f"the ledger is damaged: a record of kind {kind!r} has no valid {name!r}")
