"""``expunge train``, ``unlearn`` and the other commands that change a vault; each answers with a receipt."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    add_attest,
    add_caller,
    add_data,
    add_id_column,
    add_ids,
    add_key,
    add_public_key,
    add_receipts,
    add_skip_erased,
    add_targets,
    add_vault,
    command,
    id_column,
    ids,
    opened,
    said,
    share,
    signing,
)
from .clusters import add_cluster, check_cluster, cluster
from .handing import Handed, told_apart
from .models import add_model, settings
from .receipts import show_receipt
from .terminal import counted

if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Receipt, Vault
    from ..vault.requests.caller import Said
    from .arguments import Commands

_ERASED = ("erased id was", "erased ids were")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    last = (add_key, add_caller, add_vault)
    table = (add_data, add_targets, add_id_column)
    command(commands, train, *table, _add_training, add_skip_erased, add_cluster, add_public_key, *last)
    command(
        commands, unlearn, add_ids, _add_skip_unknown, add_attest, _add_despite_hold, add_receipts, add_cluster, *last
    )
    command(commands, rectify, add_data, add_receipts, *last)
    command(commands, add, add_data, add_skip_erased, _add_clip, add_receipts, add_cluster, *last)
    command(commands, readmit, add_ids, _add_skip_unknown, add_receipts, *last)
    command(commands, rebound, _add_bounds, *last)


def _add_despite_hold(added: Parser) -> None:
    text = "Erase people although they may be on legal hold, and why; for the ledger."
    added.add_argument("--despite-hold", metavar="REASON", default="", help=text)


def _add_skip_unknown(added: Parser) -> None:
    text = "Leave out ids that are not in the vault (readmit: not erased) instead of refusing."
    added.add_argument("--skip-unknown", action="store_true", help=text)


def _add_clip(added: Parser) -> None:
    added.add_argument("--clip", action="store_true", help="Clip values outside declared bounds instead of refusing.")


def _add_bounds(added: Parser) -> None:
    added.add_argument(
        "--bounds",
        nargs=3,
        action="append",
        default=[],
        metavar=("COLUMN", "LOW", "HIGH"),
        help="Declare bounds of a column, numbers or dates; may be repeated.",
    )
    added.add_argument(
        "--observe",
        action="append",
        default=[],
        metavar="COLUMN",
        help="Observe the bounds of a column in the rows; may be repeated.",
    )


def _add_training(added: Parser) -> None:
    added.add_argument("--schema", metavar="FILE", type=Path, help="What each column is (TOML); see expunge schema.")
    added.add_argument("--fold-case", action="store_true", help="Take ids that differ only in case for the same.")
    add_model(added)
    _add_clip(added)
    added.add_argument("--replace", action="store_true", help="Train an existing vault anew, on this table alone.")
    _add_replacing(added)
    added.add_argument("--group", action="store_true", help="Let the group of the new folder read the vault.")


def _add_replacing(added: Parser) -> None:
    text = "With --replace: let columns, their kinds, the target or the column of the ids be others than before."
    added.add_argument("--new-schema", action="store_true", help=text)
    text = "With --replace: let the table have less than half of the rows that the vault has."
    added.add_argument("--fewer-rows", action="store_true", help=text)
    text = "With --replace: by which share the RMSE of a target may grow, such as 0.05 or 5%% (default: 5%%)."
    added.add_argument("--tolerance", metavar="SHARE", type=share, help=text)
    text = "With --replace: judge both models by this table instead of the vault's rows of people who are held out."
    added.add_argument("--evaluate-on", metavar="TABLE", help=text)
    text = "With --replace: let errors be larger, or not comparable; the ledger has the numbers."
    added.add_argument("--accept-worse", action="store_true", help=text)


def _replacing(args: Namespace) -> dict[str, Any]:
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
    column = id_column(args)
    from ..vault import Vault
    from ..vault.founding import check_place

    check_cluster(args)
    replacing = _replacing(args)
    check_place(args.vault, replace=args.replace)
    model, planned = settings(args)
    with cluster(args) as client, terminal.progress(quiet=args.json) as told:
        made = Vault.create(
            args.vault,
            args.data,
            target=args.target,
            id=column,
            model=model,
            planned=planned,
            schema=args.schema,
            fold_case=args.fold_case,
            **signing(args),
            public_key=args.public_key,
            replace=args.replace,
            **replacing,
            skip_erased=args.skip_erased,
            group=args.group,
            wait=args.wait,
            progress=told,
            client=client,
            **said(args),
        )
    assert made.receipt is not None
    show_receipt(made.receipt, "learned {rows} of {people}; {learners}", args, skipped=_ERASED)


def unlearn(args: Namespace) -> None:
    """Erase all rows of these ids: from the model, from the disk, for good."""
    from dataclasses import replace

    if args.attest_unknown and args.receipts is None:
        raise UsageError("--attest-unknown writes statements: name the folder with --receipts")
    spoken, wanted, unknown, vault = said(args), ids(args), list[str](), opened(args)
    handed = Handed(args)
    if args.attest_unknown:
        wanted, unknown, handed.similar = told_apart(vault, wanted)
    if not wanted:
        return _stated(vault, unknown, spoken, handed, args)
    with cluster(args) as client:
        receipt = vault.unlearn(
            wanted,
            skip_unknown=args.skip_unknown,
            receipts=args.receipts is not None,
            despite_hold=args.despite_hold,
            client=client,
            **spoken,
        )
    handed.hand(lambda: _receipts_of(vault, wanted, receipt))
    if unknown:
        receipt = replace(receipt, skipped=receipt.skipped + len(unknown))
        handed.hand(lambda: vault.attest_unknown(unknown))
    done = "erased {rows} of {people}; {learners} learned anew" if receipt.seconds else "erased earlier, by {request}"
    skipped = ("id is not known here and was", "ids are not known here and were")
    return show_receipt(receipt, done, args, skipped=skipped, handed=handed)


def _receipts_of(vault: "Vault", wanted: Sequence[str], receipt: "Receipt") -> "dict[str, PersonalReceipt]":
    """Return the receipts that came with an erasure; if one is missing, the vault is asked, which says why."""
    made = {person: outcome.receipt for person, outcome in zip(wanted, receipt.outcomes, strict=True)}
    known = [person for person, outcome in zip(wanted, receipt.outcomes, strict=True) if outcome.state != "unknown"]
    if any(made[person] is None for person in known):
        return vault.personal_receipts(known)
    return {person: found for person, found in made.items() if found is not None}


def _stated(vault: "Vault", unknown: Sequence[str], spoken: "Said", handed: Handed, args: Namespace) -> None:
    """Answer a request about nobody whom the vault knows: with statements, and without a record."""
    from ..vault.requests.caller import Caller

    caller = Caller(**spoken)
    handed.hand(lambda: vault.attest_unknown(unknown), lost=False)
    handed.show(args, "nothing was erased", skipped=len(unknown), similar=handed.similar)
    for text in caller.note_unsaved():
        terminal.note(text)


def rectify(args: Namespace) -> None:
    """Replace all rows of the ids in a table by right ones."""
    vault, handed = opened(args), Handed(args)
    receipt = vault.rectify(args.data, **said(args))
    number = receipt.request
    handed.hand(lambda: vault.personal_receipts(vault.ids_in(args.data), request=number), request=number)
    show_receipt(receipt, "corrected {rows} of {people}; {learners} learned anew", args, handed=handed)


def add(args: Namespace) -> None:
    """Learn more rows; a table that holds erased ids is refused."""
    vault, handed = opened(args), Handed(args)
    options = {"skip_erased": args.skip_erased, "clip": args.clip, **said(args)}
    with cluster(args) as client, terminal.progress(quiet=args.json) as told:
        receipt = vault.add(args.data, progress=told, client=client, **options)
    left_out = {"request": receipt.request, "skip_unknown": args.skip_erased}
    handed.hand(lambda: vault.personal_receipts(vault.ids_in(args.data), **left_out), request=receipt.request)
    show_receipt(receipt, "added {rows} of {people}; {learners} learned anew", args, skipped=_ERASED, handed=handed)


def readmit(args: Namespace) -> None:
    """Let erased ids come again: the people consented."""
    wanted, vault, handed = ids(args), opened(args), Handed(args)
    receipt = vault.readmit(wanted, skip_unknown=args.skip_unknown, **said(args))
    handed.hand(
        lambda: vault.personal_receipts(wanted, request=receipt.request, skip_unknown=args.skip_unknown),
        request=receipt.request,
    )
    skipped = ("id that is not erased was", "ids that are not erased were")
    show_receipt(receipt, "{people} may be added again", args, skipped=skipped, handed=handed)


def rebound(args: Namespace) -> None:
    """Change the bounds of columns: declare others, or observe them in the rows."""
    bounds = {column: (low, high) for column, low, high in args.bounds} | dict.fromkeys(args.observe)
    if not bounds:
        raise UsageError("name at least one column, with --bounds COLUMN LOW HIGH or --observe COLUMN")
    if len(bounds) < len(args.bounds) + len(args.observe):
        raise UsageError("a column is named twice: give its bounds once")
    vault = opened(args)
    with terminal.progress(quiet=args.json) as told:
        receipt = vault.rebound(bounds, progress=told, **said(args))
    columns = counted(len(bounds), "column has new bounds", "columns have new bounds")
    show_receipt(receipt, columns + "; {learners} learned anew", args)
