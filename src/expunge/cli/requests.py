"""``expunge train``, ``unlearn`` and the other commands that change a vault, and ``backup``, ``restore``, ``clone``."""

from argparse import Namespace
from collections.abc import Sequence
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
    current_user,
    open_cluster,
    open_vault,
    parse_share,
    read_id_column,
    read_ids,
    signing_options,
)
from .planning import add_model, choose_model
from .receipts import ReceiptFolder, print_receipt, split_known_ids
from .terminal import pluralize

if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Receipt, Vault
    from ..vault.requests.request import CallerArgs
    from .arguments import Commands

_SKIPPED_ERASED = ("erased id was", "erased ids were")


def register(commands: "Commands") -> None:
    """Add the commands that change a vault."""
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
    add_command(commands, replan, add_cluster, *last)


def _add_despite_hold(parser: Parser) -> None:
    text = "Erase people even if they are on legal hold, for this reason; stored in the ledger."
    parser.add_argument("--despite-hold", metavar="REASON", default="", help=text)


def _add_skip_unknown(parser: Parser) -> None:
    text = "Skip ids that are not in the vault (with readmit: not erased) instead of failing."
    parser.add_argument("--skip-unknown", action="store_true", help=text)


def _add_clip(parser: Parser) -> None:
    parser.add_argument("--clip", action="store_true", help="Clip values outside declared bounds instead of failing.")


def _add_bounds(parser: Parser) -> None:
    parser.add_argument(
        "--bounds",
        nargs=3,
        action="append",
        default=[],
        metavar=("COLUMN", "LOW", "HIGH"),
        help="Declare the bounds of a column, as numbers or dates; may be repeated.",
    )
    parser.add_argument(
        "--observe",
        action="append",
        default=[],
        metavar="COLUMN",
        help="Take the bounds of a column from its rows; may be repeated.",
    )


def _add_training(parser: Parser) -> None:
    parser.add_argument("--schema", metavar="FILE", type=Path, help="The schema (TOML); see expunge schema.")
    parser.add_argument("--fold-case", action="store_true", help="Treat ids that differ only in case as equal.")
    add_model(parser)
    _add_clip(parser)
    parser.add_argument("--replace", action="store_true", help="Retrain an existing vault on this table alone.")
    _add_replace_options(parser)
    parser.add_argument("--group", action="store_true", help="Allow the group of the new folder to read the vault.")


def _add_replace_options(parser: Parser) -> None:
    text = "With --replace: accept columns, kinds, targets or an id column that differ from the vault's."
    parser.add_argument("--new-schema", action="store_true", help=text)
    text = "With --replace: accept a table with less than half of the vault's rows."
    parser.add_argument("--fewer-rows", action="store_true", help=text)
    text = "With --replace: the share by which a target's RMSE may grow, such as 0.05 or 5%% (default: 5%%)."
    parser.add_argument("--tolerance", metavar="SHARE", type=parse_share, help=text)
    text = "With --replace: compare both models on this table instead of held-out people of the vault."
    parser.add_argument("--evaluate-on", metavar="TABLE", help=text)
    text = "With --replace: accept larger or incomparable errors; the numbers are stored in the ledger."
    parser.add_argument("--accept-worse", action="store_true", help=text)


def _read_replace_options(args: Namespace) -> dict[str, Any]:
    """Return the options that need --replace."""
    names = ("new_schema", "fewer_rows", "accept_worse", "tolerance", "evaluate_on")
    given = {name: value for name in names if (value := getattr(args, name)) is not None and value is not False}
    if given and not args.replace:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')} needs --replace")
    return given


def train(args: Namespace) -> None:
    """Train a model on a table, in a new vault.

    Without --shards, --rate, --features, --alpha and --plan, a small plan tries settings on up to 6,000 rows and prints
    its choice; expunge replan chooses again after people left. With any of the first four and no plan, nothing is
    planned, and the others have the defaults below.
    """
    column = read_id_column(args)
    from ..vault import Vault
    from ..vault.creation import check_new_vault_path

    check_cluster(args)
    replacing = _read_replace_options(args)
    check_new_vault_path(args.vault, replace=args.replace)
    model = choose_model(args)
    with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as progress:
        vault = Vault.create(
            args.vault,
            args.data,
            target=args.target,
            id=column,
            **model,
            schema=args.schema,
            fold_case=args.fold_case,
            **signing_options(args),
            public_key=args.public_key,
            replace=args.replace,
            **replacing,
            skip_erased=args.skip_erased,
            group=args.group,
            wait=args.wait,
            progress=progress,
            client=client,
            **caller_options(args),
        )
    assert vault.receipt is not None
    print_receipt(vault.receipt, "learned {rows} of {people}; {learners}", args, skipped=_SKIPPED_ERASED)
    if "model" not in model and vault.status().planning_people:
        terminal.note("this was a small plan: expunge plan searches longer for a better one")


def unlearn(args: Namespace) -> None:
    """Erase all rows of these ids from the model and the disk, permanently."""
    from dataclasses import replace

    if args.attest_unknown and args.receipts is None:
        raise UsageError("--attest-unknown needs --receipts DIR, the folder for the statements")
    caller, ids, unknown = caller_options(args), read_ids(args), list[str]()
    vault, folder = open_vault(args), ReceiptFolder(args)
    if args.attest_unknown:
        ids, unknown, folder.similar = split_known_ids(vault, ids)
    if not ids:
        return _attest_unknown(vault, unknown, caller, folder, args)
    with open_cluster(args) as client:
        receipt = vault.unlearn(
            ids,
            skip_unknown=args.skip_unknown,
            receipts=args.receipts is not None,
            despite_hold=args.despite_hold,
            client=client,
            **caller,
        )
    folder.write(lambda: _collect_receipts(vault, ids, receipt))
    if unknown:
        receipt = replace(receipt, skipped=receipt.skipped + len(unknown))
        folder.write(lambda: vault.attest_unknown(unknown))
    done = "erased {rows} of {people}; {learners} retrained" if receipt.seconds else "already erased by {request}"
    skipped = ("id is not known here and was", "ids are not known here and were")
    return print_receipt(receipt, done, args, skipped=skipped, folder=folder)


def _collect_receipts(vault: "Vault", ids: Sequence[str], receipt: "Receipt") -> "dict[str, PersonalReceipt]":
    """Return the receipts that came with an erasure; if one is missing, the vault raises the reason."""
    outcomes = dict(zip(ids, receipt.outcomes, strict=True))
    known = [id_ for id_, outcome in outcomes.items() if outcome.state != "unknown"]
    if any(outcomes[id_].receipt is None for id_ in known):
        return vault.personal_receipts(known)
    return {id_: outcome.receipt for id_, outcome in outcomes.items() if outcome.receipt is not None}


def _attest_unknown(
    vault: "Vault", unknown: Sequence[str], caller_fields: "CallerArgs", folder: ReceiptFolder, args: Namespace
) -> None:
    """Answer an erasure of unknown ids only, with statements; nothing is recorded in the ledger."""
    from ..vault.requests.request import Caller

    caller = Caller(**caller_fields)
    folder.write(lambda: vault.attest_unknown(unknown), defer_errors=False)
    folder.print_summary(args, "nothing was erased", skipped=len(unknown), similar=folder.similar)
    for text in caller.note_unsaved():
        terminal.note(text)


def rectify(args: Namespace) -> None:
    """Replace all rows of the ids in a table by the rows of the table."""
    vault, folder = open_vault(args), ReceiptFolder(args)
    receipt = vault.rectify(args.data, **caller_options(args))
    number = receipt.request
    folder.write(lambda: vault.personal_receipts(vault.ids_in(args.data), request=number), request=number)
    print_receipt(receipt, "corrected {rows} of {people}; {learners} retrained", args, folder=folder)


def add(args: Namespace) -> None:
    """Add rows to the model; a table with erased ids is rejected."""
    vault, folder = open_vault(args), ReceiptFolder(args)
    options = {"skip_erased": args.skip_erased, "clip": args.clip, **caller_options(args)}
    with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as progress:
        receipt = vault.add(args.data, progress=progress, client=client, **options)
    issue = {"request": receipt.request, "skip_unknown": args.skip_erased}
    folder.write(lambda: vault.personal_receipts(vault.ids_in(args.data), **issue), request=receipt.request)
    done = "added {rows} of {people}; {learners} retrained"
    print_receipt(receipt, done, args, skipped=_SKIPPED_ERASED, folder=folder)


def readmit(args: Namespace) -> None:
    """Allow erased ids to be added again, for people who consented."""
    ids, vault, folder = read_ids(args), open_vault(args), ReceiptFolder(args)
    receipt = vault.readmit(ids, skip_unknown=args.skip_unknown, **caller_options(args))
    folder.write(
        lambda: vault.personal_receipts(ids, request=receipt.request, skip_unknown=args.skip_unknown),
        request=receipt.request,
    )
    skipped = ("id that is not erased was", "ids that are not erased were")
    print_receipt(receipt, "{people} may be added again", args, skipped=skipped, folder=folder)


def rebound(args: Namespace) -> None:
    """Change the bounds of columns: declare new ones, or take them from the rows."""
    bounds = {column: (low, high) for column, low, high in args.bounds} | dict.fromkeys(args.observe)
    if not bounds:
        raise UsageError("give at least one column, with --bounds COLUMN LOW HIGH or --observe COLUMN")
    if len(bounds) < len(args.bounds) + len(args.observe):
        raise UsageError("a column is given twice: give its bounds once")
    vault = open_vault(args)
    with terminal.show_progress(quiet=args.json) as progress:
        receipt = vault.rebound(bounds, progress=progress, **caller_options(args))
    columns = pluralize(len(bounds), "column has new bounds", "columns have new bounds")
    print_receipt(receipt, columns + "; {learners} retrained", args)


def replan(args: Namespace) -> None:
    """Choose the settings again from the rows that remain; this completes all earlier erasures and corrections."""
    vault = open_vault(args)
    with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as progress:
        receipt = vault.replan(progress=progress, client=client, **caller_options(args))
    print_receipt(receipt, "planned again; {learners} trained; all earlier erasures are complete", args)


def register_backup(commands: "Commands") -> None:
    """Add the commands that copy a vault."""
    add_command(commands, backup, _add_backup, add_vault)
    add_command(commands, restore, _add_restore, add_key, add_caller, add_vault)
    add_command(commands, clone, _add_clone, add_key, add_caller, add_vault)


def _add_backup(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="A new folder for the backup.")
    text = "Include the private key; anyone who has it can sign in the vault's name."
    parser.add_argument("--with-key", action="store_true", help=text)


def _add_restore(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="A folder created by expunge backup.")
    text = "The ids erased since the backup, one per line; needed if the ledger is lost. - reads standard input."
    parser.add_argument("--erased", metavar="FILE", type=Path, help=text)
    text = "State that nobody was erased since the backup, if the ledger is lost."
    parser.add_argument("--nothing-erased-since", action="store_true", help=text)


def _add_clone(parser: Parser) -> None:
    parser.add_argument("clone", metavar="CLONE", type=Path, help="The new vault, a folder whose name ends in .vault.")
    text = "Give the clone its own name and signing key; to copy the same vault, use expunge backup."
    parser.add_argument("--new-identity", action="store_true", required=True, help=text)


def backup(args: Namespace) -> None:
    """Copy a vault to a new folder, consistent and verified, while requests continue."""
    copy = open_vault(args).backup(args.folder, with_key=args.with_key, actor=current_user())
    if copy.note:
        terminal.note(copy.note)
    with terminal.guard_answer(f"the backup was written to {args.folder}"):
        if args.json:
            facts = {"path": copy.path, "vault": copy.vault, "request": copy.request, "time": copy.time}
            terminal.say_json(facts | {"files": len(copy.files), "bytes": copy.size, "with_key": copy.with_key})
        else:
            size = f"{pluralize(len(copy.files), 'file', 'files')}, {pluralize(copy.size, 'byte', 'bytes')}"
            terminal.say(f"backed up to {terminal.escape(str(copy.path))}, as of request {copy.request}: {size}")


def restore(args: Namespace) -> None:
    """Restore a lost vault from a backup; people erased since the backup stay erased."""
    from ..vault import Vault

    erased = None if args.erased is None else _read_erased_ids(args.erased)
    restored = Vault.restore(
        args.folder,
        args.vault,
        erased=erased,
        nothing_erased_since=args.nothing_erased_since,
        **signing_options(args),
        wait=args.wait,
        **caller_options(args),
    )
    with terminal.guard_answer(f"{args.vault} was restored"):
        if args.json:
            copy = restored.backup
            facts = {"vault": copy.vault, "backup_request": copy.request, "request": restored.request}
            counts = {"rows": restored.rows, "people": restored.people, "unseen": restored.unseen}
            terminal.say_json(facts | counts | {"ledger_kept": restored.ledger_kept, "notes": restored.notes})
        else:
            where, since = terminal.escape(str(args.vault)), restored.backup.request
            terminal.say(f"restored {where} from a backup of request {since}; now at {restored.request}")
            if args.erased is not None:
                rows, people = pluralize(restored.rows, "row", "rows"), pluralize(restored.people, "person", "people")
                terminal.say(f"erased again: {rows} of {people}; {restored.unseen:,} ids were not in the backup")
    for text in restored.notes:
        terminal.note(text)


def clone(args: Namespace) -> None:
    """Create a second vault with the same rows, for staging, with its own name and key; both ledgers record it."""
    vault = open_vault(args)
    copy = vault.clone(args.clone, **caller_options(args))
    status, keys = copy.status(), copy.public_keys()
    with terminal.guard_answer(f"the clone was created in {args.clone}"):
        if args.json:
            facts = {"path": args.clone, "vault": status.vault, "clone_of": status.clone_of, "request": vault.newest}
            terminal.say_json(facts | {"rows": status.rows, "people": status.people, "keys": keys})
        else:
            where, people = terminal.escape(str(args.clone)), pluralize(status.people, "person", "people")
            rows = pluralize(status.rows, "row", "rows")
            terminal.say(f"cloned {rows} of {people} into {where}, vault {status.vault}")
            terminal.say(f"recorded as request {vault.newest}; the clone signs with the key {keys[0]}")
    terminal.note("the clone is a separate vault: erase people there as well, or delete it when you are done")


def _read_erased_ids(path: Path) -> list[str]:
    if str(path) != "-" and not path.stat().st_size:
        raise UsageError(f"--erased {path} is empty: if nobody was erased since, use --nothing-erased-since")
    return read_ids(Namespace(id=[], ids_from=path))
