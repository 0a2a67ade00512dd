"""``expunge backup``, ``restore`` and ``clone``: copies of a vault, and back."""

from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import Parser, UsageError, add_caller, add_key, add_vault, command, ids, opened, said, signing
from .receipts import answering
from .terminal import counted

if TYPE_CHECKING:
    from ..vault import Vault
    from ..vault.backup import Backup
    from .arguments import Commands


def register(commands: "Commands") -> None:
    """Add the commands of this module."""
    command(commands, backup, _add_backup, add_vault)
    command(commands, restore, _add_restore, add_key, add_caller, add_vault)
    command(commands, clone, _add_clone, add_key, add_caller, add_vault)


def _add_backup(added: Parser) -> None:
    added.add_argument("folder", metavar="DIR", type=Path, help="A new folder for the backup.")
    text = "Include the private key; whoever has it can sign in the vault's name."
    added.add_argument("--with-key", action="store_true", help=text)


def _add_restore(added: Parser) -> None:
    added.add_argument("folder", metavar="DIR", type=Path, help="The folder that expunge backup made.")
    text = "A file with the ids erased since the backup, one per line; needed if the ledger is lost. - reads stdin."
    added.add_argument("--erased", metavar="FILE", type=Path, help=text)
    text = "Say that nobody was erased since the backup, if the ledger is lost."
    added.add_argument("--nothing-erased-since", action="store_true", help=text)


def _add_clone(added: Parser) -> None:
    added.add_argument("clone", metavar="CLONE", type=Path, help="The new vault, a folder whose name ends in .vault.")
    text = "Give the clone a name and a signing key of its own; a copy of the same vault is a backup."
    added.add_argument("--new-identity", action="store_true", required=True, help=text)


def backup(args: Namespace) -> None:
    """Copy a vault into a new folder, consistent and checked; requests are answered meanwhile."""
    vault = opened(args)
    made = vault.backup(args.folder, with_key=args.with_key)
    _record_backup(vault, made)
    with answering(f"the backup was made in {args.folder}"):
        if args.json:
            facts = {"path": made.path, "vault": made.vault, "request": made.request, "time": made.time}
            terminal.say_json(facts | {"files": len(made.files), "bytes": made.size, "with_key": made.with_key})
        else:
            what = f"{counted(len(made.files), 'file', 'files')}, {counted(made.size, 'byte', 'bytes')}"
            terminal.say(f"backed up in {terminal.escaped(str(made.path))}, as of request {made.request}: {what}")


def _record_backup(vault: "Vault", made: "Backup") -> None:
    """Tell the audit trail of the service, if there is one: a backup is a copy of everybody's data."""
    import sqlite3

    from ..errors import ExpungeError
    from ..server.audit import COMMAND_LINE, AuditTrail
    from ..server.database import Database, queue_path

    path = queue_path(vault.places.vault)
    if not path.exists():
        return
    try:
        with closing(Database(path)) as database:
            details = {"with_key": made.with_key}
            AuditTrail(database).record("backup.made", actor=COMMAND_LINE, subject=str(made.request), **details)
    except (sqlite3.Error, OSError, ExpungeError):
        terminal.note("the audit trail of the service could not be written: it does not know this backup")


def restore(args: Namespace) -> None:
    """Put a backup into the place of a vault that is lost; who was erased since the backup stays erased."""
    from ..vault import Vault

    erased = None if args.erased is None else _erased(args.erased)
    done = Vault.restore(
        args.folder,
        args.vault,
        erased=erased,
        nothing_erased_since=args.nothing_erased_since,
        **signing(args),
        wait=args.wait,
        **said(args),
    )
    with answering(f"{args.vault} was restored"):
        if args.json:
            facts = {"vault": done.backup.vault, "backup_request": done.backup.request, "request": done.request}
            counts = {"rows": done.rows, "people": done.people, "unseen": done.unseen}
            terminal.say_json(facts | counts | {"ledger_kept": done.ledger_kept, "notes": done.notes})
        else:
            where = terminal.escaped(str(args.vault))
            terminal.say(f"restored {where} from a backup of request {done.backup.request}; now at {done.request}")
            if args.erased is not None:
                rows, people = counted(done.rows, "row", "rows"), counted(done.people, "person", "people")
                terminal.say(
                    f"erased {rows} of {people} who were erased since; {done.unseen:,} were never in the backup"
                )
    for text in done.notes:
        terminal.note(text)


def clone(args: Namespace) -> None:
    """Make another vault with the same rows, for staging: under another name, with another key, in both ledgers."""
    vault = opened(args)
    made = vault.clone(args.clone, **said(args))
    status = made.status()
    with answering(f"the clone was made in {args.clone}"):
        if args.json:
            facts = {"path": args.clone, "vault": status.vault, "clone_of": status.clone_of, "request": vault.newest}
            terminal.say_json(facts | {"rows": status.rows, "people": status.people, "keys": made.public_keys()})
        else:
            where, people = terminal.escaped(str(args.clone)), counted(status.people, "person", "people")
            terminal.say(f"cloned {counted(status.rows, 'row', 'rows')} of {people} into {where}, vault {status.vault}")
            terminal.say(f"recorded as request {vault.newest}; the clone signs with the key {made.public_keys()[0]}")
    terminal.note("the clone is a vault of its own: erase there as well, or remove it when you are done")


def _erased(path: Path) -> list[str]:
    if str(path) != "-" and not path.stat().st_size:
        raise UsageError(f"--erased {path} is empty: if nobody was erased since, say --nothing-erased-since")
    return ids(Namespace(id=[], ids_from=path))
