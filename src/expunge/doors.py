"""Doors: rooms whose names are loaded when they are first used, so that nobody waits for what they do not need."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(room: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` (PEP 562) of a room: each name is loaded from its home, a module below."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(import_module(f"{room}.{homes[name]}"), name)
        setattr(sys.modules[room], name, value)  # found at once the next time
        return value

    return load, lambda: sorted({*vars(sys.modules[room]), *homes})
