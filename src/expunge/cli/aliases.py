"""``expunge aliases``: which e-mail address is whose, for agents that know people by nothing else."""

import csv
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import Parser, add_vault, command, group, opened

if TYPE_CHECKING:
    from .arguments import Commands

_COLUMNS = ("email", "id")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    group(commands, "aliases", "E-mail addresses of people, for the Data Rights Protocol.", _register)


def _register(commands: "Commands") -> None:
    command(commands, add, _add_file, add_vault)


def _add_file(added: Parser) -> None:
    added.add_argument("file", metavar="FILE", type=Path, help="A CSV file with the columns email and id.")


def add(args: Namespace) -> None:
    """Let e-mail addresses lead to ids; they are kept as keyed hashes, and the ids sealed."""
    from ..server.aliases import Aliases
    from ..server.audit import COMMAND_LINE, AuditTrail
    from ..server.database import Database, queue_path

    pairs, vault = _pairs(args.file), opened(args)
    database = Database(queue_path(vault.places.vault))
    aliases = Aliases(vault, database)
    with database.writing():
        added = aliases.add(pairs)
        AuditTrail(database).record("aliases.added", actor=COMMAND_LINE, read=len(pairs), moved=added.moved)
    if args.json:
        counts = {"moved": added.moved, "erased": added.erased, "aliases": aliases.count()}
        terminal.say_json({"read": len(pairs), **counts})
        return
    terminal.say(f"read: {terminal.counted(len(pairs), 'address', 'addresses')}; known: {aliases.count()}")
    if added.moved:
        terminal.note(f"{terminal.counted(added.moved, 'address', 'addresses')} led to another id before")
    if added.erased:
        terminal.note(f"{terminal.counted(added.erased, 'address', 'addresses')} left out: the person is erased")


def _pairs(path: Path) -> list[tuple[str, str]]:
    """The addresses and ids of a file; each address once."""
    from ..errors import InvalidInput
    from ..server.aliases import normalised

    found = dict[str, str]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not set(_COLUMNS) <= set(rows.fieldnames or ()):
                raise InvalidInput(f"{path} must have the columns email and id")
            for row in rows:
                email, id_ = (row[name] or "" for name in _COLUMNS)
                if (text := normalised(email)) is None or not id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: needs an e-mail address and an id")
                if found.setdefault(text, id_) != id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: this address leads to another id above")
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(f"{path} cannot be read as CSV in UTF-8") from None
    if not found:
        raise InvalidInput(f"{path} has no rows")
    return list(found.items())
