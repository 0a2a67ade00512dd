"""``expunge train``, ``unlearn`` and the other commands that change a vault; each answers with a receipt."""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    add_attest_unknown,
    add_caller,
    add_cluster,
    add_command,
    add_data,
    add_id_column,
    add_ids,
    add_key,
    add_public_key,
    add_receipts,
    add_skip_erased,
    add_targets,
    add_vault,
    caller_options,
    check_cluster,
    open_cluster,
    open_vault,
    parse_share,
    read_id_column,
    read_ids,
    signing_options,
)
from .planning import add_model, choose_settings
from .receipts import ReceiptFolder, guard_answer, print_receipt, split_known_ids
from .terminal import pluralize

if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Receipt, Vault
    from ..vault.requests.request import CallerArgs
    from .arguments import Commands

_SKIPPED_ERASED = ("erased id was", "erased ids were")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    last = (add_key, add_caller, add_vault)
    table = (add_data, add_targets, add_id_column)
    add_command(commands, train, *table, _add_training, add_skip_erased, add_cluster, add_public_key, *last)
    add_command(
        commands,
        unlearn,
        add_ids,
        _add_skip_unknown,
        add_attest_unknown,
        _add_despite_hold,
        add_receipts,
        add_cluster,
        *last,
    )
    add_command(commands, rectify, add_data, add_receipts, *last)
    add_command(commands, add, add_data, add_skip_erased, _add_clip, add_receipts, add_cluster, *last)
    add_command(commands, readmit, add_ids, _add_skip_unknown, add_receipts, *last)
    add_command(commands, rebound, _add_bounds, *last)


def _add_despite_hold(parser: Parser) -> None:
    text = "Erase people although they may be on legal hold, and why; for the ledger."
    parser.add_argument("--despite-hold", metavar="REASON", default="", help=text)


def _add_skip_unknown(parser: Parser) -> None:
    text = "Leave out ids that are not in the vault (readmit: not erased) instead of refusing."
    parser.add_argument("--skip-unknown", action="store_true", help=text)


def _add_clip(parser: Parser) -> None:
    parser.add_argument("--clip", action="store_true", help="Clip values outside declared bounds instead of refusing.")


def _add_bounds(parser: Parser) -> None:
    parser.add_argument(
        "--bounds",
        nargs=3,
        action="append",
        default=[],
        metavar=("COLUMN", "LOW", "HIGH"),
        help="Declare bounds of a column, numbers or dates; may be repeated.",
    )
    parser.add_argument(
        "--observe",
        action="append",
        default=[],
        metavar="COLUMN",
        help="Observe the bounds of a column in the rows; may be repeated.",
    )


def _add_training(parser: Parser) -> None:
    parser.add_argument("--schema", metavar="FILE", type=Path, help="What each column is (TOML); see expunge schema.")
    parser.add_argument("--fold-case", action="store_true", help="Take ids that differ only in case for the same.")
    add_model(parser)
    _add_clip(parser)
    parser.add_argument("--replace", action="store_true", help="Train an existing vault anew, on this table alone.")
    _add_replace_options(parser)
    parser.add_argument("--group", action="store_true", help="Let the group of the new folder read the vault.")


def _add_replace_options(parser: Parser) -> None:
    text = "With --replace: let columns, their kinds, the target or the column of the ids be others than before."
    parser.add_argument("--new-schema", action="store_true", help=text)
    text = "With --replace: let the table have less than half of the rows that the vault has."
    parser.add_argument("--fewer-rows", action="store_true", help=text)
    text = "With --replace: by which share the RMSE of a target may grow, such as 0.05 or 5%% (default: 5%%)."
    parser.add_argument("--tolerance", metavar="SHARE", type=parse_share, help=text)
    text = "With --replace: judge both models by this table instead of the vault's rows of people who are held out."
    parser.add_argument("--evaluate-on", metavar="TABLE", help=text)
    text = "With --replace: let errors be larger, or not comparable; the ledger has the numbers."
    parser.add_argument("--accept-worse", action="store_true", help=text)


def _read_replace_options(args: Namespace) -> dict[str, Any]:
    """What --replace may change."""
    names = ("new_schema", "fewer_rows", "accept_worse", "tolerance", "evaluate_on")
    given = {name: value for name in names if (value := getattr(args, name)) is not None and value is not False}
    if given and not args.replace:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')} goes with --replace")
    return given


def train(args: Namespace) -> None:
    """Train a model on a table, in a new vault.

    Without --shards, --rate, --features, --alpha and --plan a small plan is made first: it tries settings on up to
    6,000 rows and says what it chose. With any of the first four and no plan, the others have the defaults below.
    """
    column = read_id_column(args)
    from ..vault import Vault
    from ..vault.creation import check_new_vault_path

    check_cluster(args)
    replacing = _read_replace_options(args)
    check_new_vault_path(args.vault, replace=args.replace)
    model, planned = choose_settings(args)
    with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as told:
        made = Vault.create(
            args.vault,
            args.data,
            target=args.target,
            id=column,
            model=model,
            planned=planned,
            schema=args.schema,
            fold_case=args.fold_case,
            **signing_options(args),
            public_key=args.public_key,
            replace=args.replace,
            **replacing,
            skip_erased=args.skip_erased,
            group=args.group,
            wait=args.wait,
            progress=told,
            client=client,
            **caller_options(args),
        )
    assert made.receipt is not None
    print_receipt(made.receipt, "learned {rows} of {people}; {learners}", args, skipped=_SKIPPED_ERASED)


def unlearn(args: Namespace) -> None:
    """Erase all rows of these ids: from the model, from the disk, for good."""
    from dataclasses import replace

    if args.attest_unknown and args.receipts is None:
        raise UsageError("--attest-unknown writes statements: name the folder with --receipts")
    spoken, wanted, unknown, vault = caller_options(args), read_ids(args), list[str](), open_vault(args)
    handed = ReceiptFolder(args)
    if args.attest_unknown:
        wanted, unknown, handed.similar = split_known_ids(vault, wanted)
    if not wanted:
        return _attest_unknown(vault, unknown, spoken, handed, args)
    with open_cluster(args) as client:
        receipt = vault.unlearn(
            wanted,
            skip_unknown=args.skip_unknown,
            receipts=args.receipts is not None,
            despite_hold=args.despite_hold,
            client=client,
            **spoken,
        )
    handed.write(lambda: _collect_receipts(vault, wanted, receipt))
    if unknown:
        receipt = replace(receipt, skipped=receipt.skipped + len(unknown))
        handed.write(lambda: vault.attest_unknown(unknown))
    done = "erased {rows} of {people}; {learners} learned anew" if receipt.seconds else "erased earlier, by {request}"
    skipped = ("id is not known here and was", "ids are not known here and were")
    return print_receipt(receipt, done, args, skipped=skipped, folder=handed)


def _collect_receipts(vault: "Vault", ids: Sequence[str], receipt: "Receipt") -> "dict[str, PersonalReceipt]":
    """Return the receipts that came with an erasure; if one is missing, the vault is asked, which says why."""
    made = {person: outcome.receipt for person, outcome in zip(ids, receipt.outcomes, strict=True)}
    known = [person for person, outcome in zip(ids, receipt.outcomes, strict=True) if outcome.state != "unknown"]
    if any(made[person] is None for person in known):
        return vault.personal_receipts(known)
    return {person: found for person, found in made.items() if found is not None}


def _attest_unknown(
    vault: "Vault", unknown: Sequence[str], caller_fields: "CallerArgs", folder: ReceiptFolder, args: Namespace
) -> None:
    """Answer a request about nobody whom the vault knows: with statements, and without a record."""
    from ..vault.requests.request import Caller

    caller = Caller(**caller_fields)
    folder.write(lambda: vault.attest_unknown(unknown), defer_errors=False)
    folder.print_summary(args, "nothing was erased", skipped=len(unknown), similar=folder.similar)
    for text in caller.note_unsaved():
        terminal.note(text)


def rectify(args: Namespace) -> None:
    """Replace all rows of the ids in a table by right ones."""
    vault, handed = open_vault(args), ReceiptFolder(args)
    receipt = vault.rectify(args.data, **caller_options(args))
    number = receipt.request
    handed.write(lambda: vault.personal_receipts(vault.ids_in(args.data), request=number), request=number)
    print_receipt(receipt, "corrected {rows} of {people}; {learners} learned anew", args, folder=handed)


def add(args: Namespace) -> None:
    """Learn more rows; a table that holds erased ids is refused."""
    vault, handed = open_vault(args), ReceiptFolder(args)
    options = {"skip_erased": args.skip_erased, "clip": args.clip, **caller_options(args)}
    with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as told:
        receipt = vault.add(args.data, progress=told, client=client, **options)
    left_out = {"request": receipt.request, "skip_unknown": args.skip_erased}
    handed.write(lambda: vault.personal_receipts(vault.ids_in(args.data), **left_out), request=receipt.request)
    print_receipt(
        receipt, "added {rows} of {people}; {learners} learned anew", args, skipped=_SKIPPED_ERASED, folder=handed
    )


def readmit(args: Namespace) -> None:
    """Let erased ids come again: the people consented."""
    wanted, vault, handed = read_ids(args), open_vault(args), ReceiptFolder(args)
    receipt = vault.readmit(wanted, skip_unknown=args.skip_unknown, **caller_options(args))
    handed.write(
        lambda: vault.personal_receipts(wanted, request=receipt.request, skip_unknown=args.skip_unknown),
        request=receipt.request,
    )
    skipped = ("id that is not erased was", "ids that are not erased were")
    print_receipt(receipt, "{people} may be added again", args, skipped=skipped, folder=handed)


def rebound(args: Namespace) -> None:
    """Change the bounds of columns: declare others, or observe them in the rows."""
    bounds = {column: (low, high) for column, low, high in args.bounds} | dict.fromkeys(args.observe)
    if not bounds:
        raise UsageError("name at least one column, with --bounds COLUMN LOW HIGH or --observe COLUMN")
    if len(bounds) < len(args.bounds) + len(args.observe):
        raise UsageError("a column is named twice: give its bounds once")
    vault = open_vault(args)
    with terminal.show_progress(quiet=args.json) as told:
        receipt = vault.rebound(bounds, progress=told, **caller_options(args))
    columns = pluralize(len(bounds), "column has new bounds", "columns have new bounds")
    print_receipt(receipt, columns + "; {learners} learned anew", args)


if TYPE_CHECKING:
    from ..vault import Vault
    from ..vault.backup import Backup
    from .arguments import Commands


def register_backup(commands: "Commands") -> None:
    """Add the commands of this module."""
    add_command(commands, backup, _add_backup, add_vault)
    add_command(commands, restore, _add_restore, add_key, add_caller, add_vault)
    add_command(commands, clone, _add_clone, add_key, add_caller, add_vault)


def _add_backup(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="A new folder for the backup.")
    text = "Include the private key; whoever has it can sign in the vault's name."
    parser.add_argument("--with-key", action="store_true", help=text)


def _add_restore(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="The folder that expunge backup made.")
    text = "A file with the ids erased since the backup, one per line; needed if the ledger is lost. - reads stdin."
    parser.add_argument("--erased", metavar="FILE", type=Path, help=text)
    text = "Say that nobody was erased since the backup, if the ledger is lost."
    parser.add_argument("--nothing-erased-since", action="store_true", help=text)


def _add_clone(parser: Parser) -> None:
    parser.add_argument("clone", metavar="CLONE", type=Path, help="The new vault, a folder whose name ends in .vault.")
    text = "Give the clone a name and a signing key of its own; a copy of the same vault is a backup."
    parser.add_argument("--new-identity", action="store_true", required=True, help=text)


def backup(args: Namespace) -> None:
    """Copy a vault into a new folder, consistent and checked; requests are answered meanwhile."""
    vault = open_vault(args)
    made = vault.backup(args.folder, with_key=args.with_key)
    _record_backup(vault, made)
    with guard_answer(f"the backup was made in {args.folder}"):
        if args.json:
            facts = {"path": made.path, "vault": made.vault, "request": made.request, "time": made.time}
            terminal.say_json(facts | {"files": len(made.files), "bytes": made.size, "with_key": made.with_key})
        else:
            what = f"{pluralize(len(made.files), 'file', 'files')}, {pluralize(made.size, 'byte', 'bytes')}"
            terminal.say(f"backed up in {terminal.escape(str(made.path))}, as of request {made.request}: {what}")


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

    erased = None if args.erased is None else _read_erased_ids(args.erased)
    done = Vault.restore(
        args.folder,
        args.vault,
        erased=erased,
        nothing_erased_since=args.nothing_erased_since,
        **signing_options(args),
        wait=args.wait,
        **caller_options(args),
    )
    with guard_answer(f"{args.vault} was restored"):
        if args.json:
            facts = {"vault": done.backup.vault, "backup_request": done.backup.request, "request": done.request}
            counts = {"rows": done.rows, "people": done.people, "unseen": done.unseen}
            terminal.say_json(facts | counts | {"ledger_kept": done.ledger_kept, "notes": done.notes})
        else:
            where = terminal.escape(str(args.vault))
            terminal.say(f"restored {where} from a backup of request {done.backup.request}; now at {done.request}")
            if args.erased is not None:
                rows, people = pluralize(done.rows, "row", "rows"), pluralize(done.people, "person", "people")
                terminal.say(
                    f"erased {rows} of {people} who were erased since; {done.unseen:,} were never in the backup"
                )
    for text in done.notes:
        terminal.note(text)


def clone(args: Namespace) -> None:
    """Make another vault with the same rows, for staging: under another name, with another key, in both ledgers."""
    vault = open_vault(args)
    made = vault.clone(args.clone, **caller_options(args))
    status = made.status()
    with guard_answer(f"the clone was made in {args.clone}"):
        if args.json:
            facts = {"path": args.clone, "vault": status.vault, "clone_of": status.clone_of, "request": vault.newest}
            terminal.say_json(facts | {"rows": status.rows, "people": status.people, "keys": made.public_keys()})
        else:
            where, people = terminal.escape(str(args.clone)), pluralize(status.people, "person", "people")
            terminal.say(
                f"cloned {pluralize(status.rows, 'row', 'rows')} of {people} into {where}, vault {status.vault}"
            )
            terminal.say(f"recorded as request {vault.newest}; the clone signs with the key {made.public_keys()[0]}")
    terminal.note("the clone is a vault of its own: erase there as well, or remove it when you are done")


def _read_erased_ids(path: Path) -> list[str]:
    if str(path) != "-" and not path.stat().st_size:
        raise UsageError(f"--erased {path} is empty: if nobody was erased since, say --nothing-erased-since")
    return read_ids(Namespace(id=[], ids_from=path))
