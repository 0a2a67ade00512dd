"""Lazy imports: a package's public names are loaded on first use, so that no command waits for more than it needs."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_attributes(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` (PEP 562) of a package whose names are in these submodules."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{modules[name]}", package), name)
        setattr(sys.modules[package], name, value)  # so that Python finds it without calling this again
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules})
