"""The house as the code has it: the layers of the import contract, the rooms, their files, and who imports whom."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PACKAGE = "expunge"

Layers: TypeAlias = tuple[tuple["Room", ...], ...]  # the highest first


@dataclass(frozen=True)
class Room:
    """A folder of the package, or a file that stands alone."""

    name: str  # as it is imported
    promise: str  # the first sentence of its docstring
    files: tuple[str, ...]  # in the order of reading: each imports only from those before it
    needs: tuple[str, ...]  # packages beyond Python and NumPy
    inner: Layers = ()

    @property
    def label(self) -> str:
        """Its name as a folder or file."""
        last = self.name.rpartition(".")[2]
        return f"{last}/" if self.files else f"{last}.py"


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its name."""
    return {_name(path): path for path in sorted((SRC / PACKAGE).rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def sentences(text: str | None) -> list[str]:
    """Return the sentences of a docstring's first paragraph; names are in single backquotes."""
    plain = " ".join((text or "").split("\n\n")[0].split()).replace("``", "`").replace("*", "")
    return re.split(r"(?<=\.)\s", plain)


@cache
def imports(module: str) -> frozenset[str]:
    """Return what a module imports, at its top or later, but for type checkers only."""
    package = module.split(".") if modules()[module].name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in _statements(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else base for name in names}
    return frozenset(found)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _statements(child)


def _parts(name: str) -> dict[str, set[str]]:
    """The files and folders of a room, and which of the others each imports."""
    found: dict[str, set[str]] = {}
    for module in modules():
        if module.startswith(f"{name}."):
            part = _part(module, name)
            known = {_part(other, name) for other in imports(module) if other.startswith(f"{name}.")}
            found.setdefault(part, set()).update(known - {part})
    return found


def _part(module: str, room: str) -> str:
    return module.removeprefix(f"{room}.").split(".")[0]


def _in_order(parts: dict[str, set[str]]) -> list[str]:
    """Return parts so that each comes after those that it imports."""
    sorter, found = TopologicalSorter(parts), list[str]()
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def _needs(name: str) -> tuple[str, ...]:
    """Packages beyond Python and NumPy that a room imports; where it is one file of many, which."""
    where: dict[str, set[str]] = {}
    for module in modules():
        if module == name or module.startswith(f"{name}."):
            for package in {found.split(".")[0] for found in imports(module)}:
                if package not in {*sys.stdlib_module_names, PACKAGE, "numpy"}:
                    where.setdefault(package, set()).add(_part(module, name))
    alone = modules()[name].name != "__init__.py"
    one = {package: f" ({min(parts)})" for package, parts in where.items() if len(parts) == 1 and not alone}
    return tuple(package + one.get(package, "") for package in sorted(where))


def room(name: str) -> Room:
    """Read one room; if a contract says how its parts are layered, with what is inside of it."""
    files = tuple(f"{part}/" if _parts(f"{name}.{part}") else part for part in _in_order(_parts(name)))
    promise = sentences(ast.get_docstring(_tree(name)))[0]
    inner = [layers(contract) for contract in contracts("layers") if contract.get("containers") == [name]]
    return Room(name, promise, files, _needs(name), inner[0] if inner else ())


def contracts(kind: str) -> list[dict[str, Any]]:
    """Return the contracts of a kind in pyproject.toml: what `lint-imports` enforces."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return [contract for contract in found if contract["type"] == kind]


def house() -> Layers:
    """Return the rooms of the whole package."""
    (contract,) = (contract for contract in contracts("layers") if "containers" not in contract)
    return layers(contract)


def layers(contract: dict[str, Any]) -> Layers:
    """Return the rooms of a contract, the highest first."""
    inside = "".join(f"{name}." for name in contract.get("containers", ()))
    return tuple(tuple(room(inside + name.strip()) for name in layer.split("|")) for layer in contract["layers"])
