"""``expunge train``, ``unlearn`` and the other commands that change a vault; each answers with a receipt."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    add_data,
    add_id_column,
    add_ids,
    add_key,
    add_skip_erased,
    add_targets,
    add_vault,
    command,
    features,
    id_column,
    ids,
    opened,
    whole,
)
from .receipts import show_receipt
from .terminal import counted

if TYPE_CHECKING:
    from ..learning.settings import Settings
    from .arguments import Commands

_ERASED = ("erased id was", "erased ids were")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, train, add_data, add_targets, add_id_column, _add_training, add_skip_erased, add_key, add_vault)
    command(commands, unlearn, add_ids, _add_skip_unknown, add_key, add_vault)
    command(commands, rectify, add_data, add_key, add_vault)
    command(commands, add, add_data, add_skip_erased, _add_clip, add_key, add_vault)
    command(commands, readmit, add_ids, _add_skip_unknown, add_key, add_vault)
    command(commands, rebound, _add_bounds, add_key, add_vault)


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
    _add_model(added)
    _add_clip(added)
    added.add_argument("--replace", action="store_true", help="Train an existing vault anew, on this table alone.")


def _add_model(added: Parser) -> None:
    added.add_argument(
        "--shards", metavar="S", type=whole(1), default=20, help="Lanes, s: the rows of a coded stripe (default: 20)."
    )
    added.add_argument(
        "--rate",
        metavar="TAU",
        type=float,
        default=5.0,
        help="Rows per coded row, tau; there are shards / rate learners (default: 5).",
    )
    added.add_argument(
        "--features",
        metavar="MAP",
        type=features,
        default="fourier:300",
        help="fourier:D, powers:D or identity (default: fourier:300).",
    )
    added.add_argument("--alpha", metavar="ALPHA", type=float, default=1e-4, help="The ridge penalty (default: 1e-4).")
    added.add_argument(
        "--seed", metavar="NUMBER", type=whole(0), help="The seed of the code, the features and the slots."
    )


def train(args: Namespace) -> None:
    """Train a model on a table, in a new vault."""
    column = id_column(args)
    from ..vault import Vault

    with terminal.progress(quiet=args.json) as told:
        made = Vault.create(
            args.vault,
            args.data,
            target=args.target,
            id=column,
            model=_model(args),
            schema=args.schema,
            fold_case=args.fold_case,
            key=args.key,
            replace=args.replace,
            skip_erased=args.skip_erased,
            wait=args.wait,
            progress=told,
        )
    assert made.receipt is not None
    show_receipt(made.receipt, "learned {rows} of {people}; {learners}", args, skipped=_ERASED)


def _model(args: Namespace) -> "Settings":
    """The settings of the model."""
    from ..encoding.features import PowersMap
    from ..encoding.fourier import RandomFourierMap
    from ..learning.settings import Settings

    name, size = args.features
    return Settings(
        shards=args.shards,
        rate=args.rate,
        features={"fourier": RandomFourierMap, "powers": PowersMap}[name](size) if size else None,
        alpha=args.alpha,
        clip=args.clip,
        random_state=args.seed,
    )


def unlearn(args: Namespace) -> None:
    """Erase all rows of these ids: from the model, from the disk, for good."""
    wanted = ids(args)
    receipt = opened(args).unlearn(wanted, skip_unknown=args.skip_unknown)
    done = "erased {rows} of {people}; {learners} learned anew" if receipt.seconds else "erased before, by {request}"
    show_receipt(receipt, done, args, skipped=("unknown id was", "unknown ids were"))


def rectify(args: Namespace) -> None:
    """Replace all rows of the ids in a table by right ones."""
    receipt = opened(args).rectify(args.data)
    show_receipt(receipt, "corrected {rows} of {people}; {learners} learned anew", args)


def add(args: Namespace) -> None:
    """Learn more rows; a table that holds erased ids is refused."""
    vault = opened(args)
    with terminal.progress(quiet=args.json) as told:
        receipt = vault.add(args.data, skip_erased=args.skip_erased, clip=args.clip, progress=told)
    show_receipt(receipt, "added {rows} of {people}; {learners} learned anew", args, skipped=_ERASED)


def readmit(args: Namespace) -> None:
    """Let erased ids come again: the people consented."""
    wanted = ids(args)
    receipt = opened(args).readmit(wanted, skip_unknown=args.skip_unknown)
    skipped = ("id that is not erased was", "ids that are not erased were")
    show_receipt(receipt, "{people} may be added again", args, skipped=skipped)


def rebound(args: Namespace) -> None:
    """Change the bounds of columns: declare others, or observe them in the rows."""
    bounds = {column: (low, high) for column, low, high in args.bounds} | dict.fromkeys(args.observe)
    if not bounds:
        raise UsageError("name at least one column, with --bounds COLUMN LOW HIGH or --observe COLUMN")
    if len(bounds) < len(args.bounds) + len(args.observe):
        raise UsageError("a column is named twice: give its bounds once")
    vault = opened(args)
    with terminal.progress(quiet=args.json) as told:
        receipt = vault.rebound(bounds, progress=told)
    columns = counted(len(bounds), "column has new bounds", "columns have new bounds")
    show_receipt(receipt, columns + "; {learners} learned anew", args)
