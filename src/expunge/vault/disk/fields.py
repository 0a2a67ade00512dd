"""Fields: whether what a file held has the types that a class declares. A file may hold anything."""

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

Word = NewType("Word", int)  # of 64 bits


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of this type: a dataclass, tuple, union or plain type; whole numbers are not negative.

    A float may be written as a whole number, and is finite.
    """
    inside = get_args(kind)
    if get_origin(kind) is tuple:
        return type(value) is tuple and all(fits(one, inside[0]) for one in value)
    if isinstance(kind, UnionType):
        return any(fits(value, one) for one in inside)
    if kind is float:
        return isinstance(value, int | float) and type(value) is not bool and abs(value) <= sys.float_info.max
    if kind is int or kind is Word:
        return type(value) is int and 0 <= value < 2 ** (63 if kind is int else 64)
    if type(value) is not kind:
        return False
    return all(fits(getattr(value, name), one) for name, one in _hints(kind).items())


def _declared(kind: Any) -> dict[str, Any]:
    """The fields of a class and their types; a plain type has none."""
    return get_type_hints(kind) if is_dataclass(kind) else {}


_hints: Callable[[Any], dict[str, Any]] = cache(_declared)
