"""``expunge plan``, and the small plan that ``expunge train`` makes if nothing is said about the model."""

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import Parser, UsageError, add_data, add_id_column, add_json, add_targets, command, id_column, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planning.document import Document
    from ..planning.planner import Plan
    from ..vault.tables import Schema
    from .arguments import Commands

_SMALL = {"max_features": 600, "forget_ms": 5.0, "references": False, "quick": True}  # a plan that nobody asked for


def register(commands: "Commands") -> None:
    """Add the command of this room."""
    command(commands, plan, add_data, add_targets, add_id_column, _add_planning, add_json)


def _add_planning(added: Parser) -> None:
    added.add_argument("--schema", metavar="FILE", type=Path, help="What each column is (TOML); see expunge schema.")
    added.add_argument("--on", metavar="FILE", help="Look at the rows of this table instead, which are nobody's.")
    added.add_argument(
        "--forget-ms", metavar="MS", type=_milliseconds, help="The time that forgetting one row may take."
    )
    added.add_argument(
        "--max-features", metavar="D", type=whole(1), default=2000, help="The most cosines to try (default: 2000)."
    )
    added.add_argument("--seed", metavar="NUMBER", type=whole(0), default=0, help="The seed (default: 0).")
    added.add_argument("--out", metavar="FILE", type=Path, help="Write the plan here, for expunge train --plan.")
    added.add_argument("--html", metavar="FILE", type=Path, help="Write a page with a picture and all candidates.")


def plan(args: Namespace) -> None:
    """Choose a model for a table: try settings on a sample, and say what each costs."""
    from ..planning.sample import MOST_ROWS

    _check_places(args)
    if args.html is not None:
        import_module("matplotlib")  # after all the planning is too late to miss it
    schema = _schema(args)
    made = _made(
        args.on or args.data,
        schema,
        rows=MOST_ROWS,
        quiet=args.json,
        forget_ms=args.forget_ms,
        max_features=args.max_features,
        random_state=args.seed,
    )
    document = _document(made, schema)
    if args.out is not None:
        args.out.write_text(document.to_toml(), encoding="utf-8")
    if args.html is not None:
        made.report(args.html)
    if args.json:
        from dataclasses import asdict

        lines = {"table": [asdict(one) for one in made.table], "references": [asdict(one) for one in made.references]}
        terminal.say_json({"choice": asdict(made.choice), "bits": made.bits, **lines, "advice": made.advice})
    else:
        terminal.say(str(made))
        if args.out is not None:
            terminal.say(f"plan: {terminal.escaped(str(args.out))}")


def _check_places(args: Namespace) -> None:
    """Refuse files that could not be written, or are read, or are one: after all the planning is too late."""
    for name, path in (("--out", args.out), ("--html", args.html)):
        if path is None:
            continue
        if not path.parent.is_dir():
            raise UsageError(f"{name}: there is no folder {path.parent}")
        if path.is_dir():
            raise UsageError(f"{name}: {path} is a folder")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{name}: {path} cannot be written")
        if path.exists() and _is_read(path, args):
            raise UsageError(f"{name} would overwrite a file that is read, {path}")
    if args.out is not None and args.html is not None and args.out.resolve() == args.html.resolve():
        raise UsageError(f"--out and --html are the same file, {args.out}")


def _is_read(path: Path, args: Namespace) -> bool:
    """Whether a file that is there is one of the tables, or the schema."""
    from ..vault import tables

    schema = args.schema is not None and args.schema.exists() and path.samefile(args.schema)
    return schema or any(tables.overwrites(path, table) for table in (args.data, args.on) if table is not None)


def small_plan(args: Namespace) -> "Document | None":
    """A small plan for a table to train on, and what it chose, in a note; None if the table is too small for one."""
    from ..planning.sample import QUICK_ROWS, TooFewRows

    schema = _schema(args)
    try:
        made = _made(args.data, schema, rows=QUICK_ROWS, quiet=args.json, random_state=args.seed or 0, **_SMALL)
    except TooFewRows as error:
        terminal.note(f"{error}; training one linear learner")
        return None
    document = _document(made, schema)
    choice, log = made.choice, ", target on a log scale" if "log" in made.choice.target_scales else ""
    terminal.note(f"planned: {choice.code}, {choice.in_words}, alpha={choice.alpha:g}{log}: {document.score}")
    return document


def read_plan(args: Namespace) -> "tuple[Document, bool]":
    """Read a plan file, which must be for the table to train on; and whether its score is of such a model."""
    from ..errors import InvalidSetting
    from ..planning.document import Document, named

    path: Path = args.plan
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidSetting(f"{path} cannot be read as a plan: {reason}") from None
    document = Document.parse(text, name=str(path))
    schema = _schema(args)
    bounds = _bounds(schema)
    document.check(schema.inputs, schema.targets, _all_declared(schema), bounds)
    if new := document.unbounded(bounds):
        terminal.note(f"the plan was made without the bounds of {named(new)}: its score is not promised")
    return document, not new


def _document(made: "Plan", schema: "Schema") -> "Document":
    from ..planning.document import Document

    inputs = _declared(schema)
    scales = inputs is None or None in inputs  # the plan chose some
    about: dict[str, Any] = {"targets": schema.targets, "declared": _all_declared(schema), "bounds": _bounds(schema)}
    return Document.of(made, schema.inputs, scales=scales, **about)


def _bounds(schema: "Schema") -> list[Any]:
    """Low and high of the inputs and then of the targets, None where they are observed."""
    ends = (zip(*pair, strict=True) for pair in (schema.bounds(), schema.target_bounds()))
    return [None if low != low else (float(low), float(high)) for some in ends for low, high in some]  # NaN


def _declared(schema: "Schema") -> list[Any] | None:
    """The scales that the schema declares, None for inputs that it leaves to the plan; None if it leaves all.

    A schema that says "log" or knots of any column has thought of all of them: what it does not mention is linear.
    """
    said = schema.said_scales()
    if any(scale not in (None, "linear") for scale in said):
        return schema.scales()
    return said if "linear" in said else None


def _all_declared(schema: "Schema") -> list[Any] | None:
    """The same of inputs and then targets."""
    declared = [*(_declared(schema) or [None] * len(schema.inputs)), *schema.target_scales()]
    return None if declared.count(None) == len(declared) else declared


def _schema(args: Namespace) -> "Schema":
    from ..vault.founding import wanted_schema

    return wanted_schema(args.data, args.schema, args.target, id_column(args), getattr(args, "fold_case", False))


def _made(source: str | list[str], schema: "Schema", *, rows: int, quiet: bool, **options: Any) -> "Plan":
    from ..planning.planner import plan as make
    from ..vault.tables.sampled import sampled_rows

    with _progress(quiet=quiet) as told:
        seen = sampled_rows(source, schema, rows)
        return make(
            seen.X,
            seen.y,
            seen.people.view("i8"),
            bounds=schema.bounds(),
            target_bounds=schema.target_bounds(),
            scales=_declared(schema),
            target_scales=schema.target_scales(),
            clip=True,  # training says which rows are outside, and this may be another table
            rows=seen.total,
            progress=told,
            **options,
        )


@contextmanager
def _progress(*, quiet: bool) -> "Iterator[Callable[[float], None]]":
    """Yield what a plan calls with how far it is; a person sees it."""
    line = terminal.Line(quiet=quiet)
    try:
        yield lambda share: line.show(f"planning: {'#' * round(30 * share):30} {share:.0%}")
    finally:
        line.clear()


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a number of milliseconds above 0, got {text!r}")
    return number
