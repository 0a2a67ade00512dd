"""Plain schemas: for a table of numbers that comes without one."""

import shlex
from collections.abc import Sequence

import pyarrow as pa

from ....errors import InvalidInput
from ..cells.arrow import Arrow, unpacked_type
from ..cells.by_kind import takes
from ..kinds import Boolean, Kind, Number
from ..messages import check_there, listed
from ..reading import column_types
from ..schema import Schema, is_row_label
from ..sources import Source


def plain_schema(source: Source, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return a schema in which every column but id and target is a number, and all bounds are observed."""
    return plain_schema_of(column_types(source), target, id)


def plain_schema_of(types: Arrow, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return the same from names and types of the columns, as a schema of pyarrow."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    check_there(types.names, targets if id is None else [*targets, id])
    cells = {field.name: unpacked_type(field.type) for field in types if not is_row_label(field.name)}
    if all(map(pa.types.is_null, cells.values())):
        raise InvalidInput("the table has no rows, or only empty cells")
    cells.pop(id, None)
    flags = [name for name in targets if pa.types.is_boolean(cells.get(name, pa.null()))]
    kinds: dict[str, Kind] = {name: Boolean() if name in flags else Number() for name in cells}
    if others := [name for name, kind in kinds.items() if not takes(kind, cells[name])]:
        whose = "" if id is None else f" --id-column {_word(id)}"
        way_out = f"`expunge schema FILE --target {_word(targets[0])}{whose}` writes a schema to edit"
        raise InvalidInput(f"columns that are not numbers: {listed(others)}; {way_out}")
    return Schema(id, targets, tuple(kinds.items()))


def _word(name: str) -> str:
    """Return a name as a word of a command, or escaped where it could not be typed."""
    return shlex.quote(name) if name.isprintable() else repr(name)
