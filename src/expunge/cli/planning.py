"""``expunge plan``, and the model options of ``expunge train``, which makes a small plan if none is given."""

import math
import os
from argparse import ArgumentTypeError, Namespace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    add_command,
    add_data,
    add_id_column,
    add_json,
    add_targets,
    read_id_column,
    whole_number,
)

if TYPE_CHECKING:
    from ..encoding.features import FeatureMap
    from ..planning.plan_file import PlanFile
    from ..planning.planner import Plan
    from ..tables import Schema
    from .arguments import Commands

_MODEL_OPTIONS = ("shards", "rate", "features", "alpha")  # without any of these, the model is planned
_FOURIER_SYNTAX = "kernel=NAME, scale=NUMBER, linear and order=NUMBER"


def register(commands: "Commands") -> None:
    """Add the command of this module."""
    add_command(commands, plan, add_data, add_targets, add_id_column, _add_plan_options, add_json)


def _add_plan_options(parser: Parser) -> None:
    parser.add_argument("--schema", metavar="FILE", type=Path, help="The schema (TOML); see expunge schema.")
    parser.add_argument("--on", metavar="FILE", help="Plan on this table instead, for example synthetic rows.")
    parser.add_argument(
        "--forget-ms", metavar="MS", type=_parse_milliseconds, help="The longest time to forget one row."
    )
    parser.add_argument(
        "--max-features",
        metavar="D",
        type=whole_number(1),
        default=2000,
        help="The largest number of cosines to try (default: 2000).",
    )
    parser.add_argument("--seed", metavar="NUMBER", type=whole_number(0), default=0, help="The seed (default: 0).")
    parser.add_argument("--out", metavar="FILE", type=Path, help="Write the plan here, for expunge train --plan.")
    parser.add_argument("--html", metavar="FILE", type=Path, help="Write a report with a chart and all candidates.")


def plan(args: Namespace) -> None:
    """Choose a model for a table: try settings on a sample, and show the cost of each."""
    from ..planning.sample import MAX_SAMPLE_ROWS

    _check_output_files(args)
    if args.html is not None:
        import_module("matplotlib")  # fail before planning if it is missing
    schema = _read_schema(args)
    chosen = _make_plan(
        args.on or args.data,
        schema,
        rows=MAX_SAMPLE_ROWS,
        quiet=args.json,
        forget_ms=args.forget_ms,
        max_features=args.max_features,
        random_state=args.seed,
    )
    document = _build_document(chosen, schema, own_rows=args.on is None)
    if args.out is not None:
        args.out.write_text(document.to_toml(), encoding="utf-8")
    if args.html is not None:
        chosen.report(args.html)
    if args.json:
        from dataclasses import asdict

        table = [asdict(candidate) for candidate in chosen.table]
        references = [asdict(score) for score in chosen.references]
        facts = {"choice": asdict(chosen.choice), "bits": chosen.bits, "table": table, "references": references}
        terminal.say_json(facts | {"advice": chosen.advice})
    else:
        terminal.say(str(chosen))
        if args.out is not None:
            terminal.say(f"plan: {terminal.escape(str(args.out))}")


def _check_output_files(args: Namespace) -> None:
    """Reject, before planning, output files that cannot be written, are inputs, or are the same file."""
    for name, path in (("--out", args.out), ("--html", args.html)):
        if path is None:
            continue
        if not path.parent.is_dir():
            raise UsageError(f"{name}: the folder {path.parent} does not exist")
        if path.is_dir():
            raise UsageError(f"{name}: {path} is a folder")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{name}: {path} cannot be written")
        if path.exists() and _is_input(path, args):
            raise UsageError(f"{name} would overwrite an input, {path}")
    if args.out is not None and args.html is not None and args.out.resolve() == args.html.resolve():
        raise UsageError(f"--out and --html are the same file, {args.out}")


def _is_input(path: Path, args: Namespace) -> bool:
    """Return whether an existing file is one of the tables, or the schema."""
    from .. import tables

    schema = args.schema is not None and args.schema.exists() and path.samefile(args.schema)
    return schema or any(tables.overwrites(path, table) for table in (args.data, args.on) if table is not None)


def read_plan(args: Namespace) -> "tuple[PlanFile, bool]":
    """Read a plan file for the table to train on; return it, and whether its score applies."""
    from ..errors import InvalidSetting
    from ..planning.plan_file import PlanFile
    from ..tables import quote_names

    path: Path = args.plan
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidSetting(f"{path} cannot be read as a plan: {reason}") from None
    document = PlanFile.parse(text, name=str(path))
    schema = _read_schema(args)
    bounds = _declared_bounds(schema)
    document.check(schema.inputs, schema.targets, _all_declared_scales(schema), bounds)
    if new := document.newly_bounded(bounds):
        terminal.note(f"the plan was made without the bounds of {quote_names(new)}: its score does not apply")
    return document, not new


def _build_document(plan: "Plan", schema: "Schema", *, own_rows: bool) -> "PlanFile":
    from ..planning.plan_file import PlanFile

    inputs = schema.scales_to_plan()
    scales = inputs is None or None in inputs  # the plan chose some
    about: dict[str, Any] = {
        "targets": schema.targets,
        "declared": _all_declared_scales(schema),
        "bounds": _declared_bounds(schema),
        "own_rows": own_rows,
    }
    return PlanFile.from_plan(plan, schema.inputs, scales=scales, **about)


def _declared_bounds(schema: "Schema") -> list[Any]:
    """Return (low, high) of the inputs and then of the targets, None where they are observed."""
    pairs = [pair for bounds in (schema.bounds(), schema.target_bounds()) for pair in zip(*bounds, strict=True)]
    return [None if math.isnan(low) else (float(low), float(high)) for low, high in pairs]


def _all_declared_scales(schema: "Schema") -> list[Any] | None:
    """Return the declared scales of the inputs and then of the targets; None if there are none."""
    declared = [*(schema.scales_to_plan() or [None] * len(schema.inputs)), *schema.target_scales()]
    return None if declared.count(None) == len(declared) else declared


def _read_schema(args: Namespace) -> "Schema":
    from ..vault.creation import resolve_schema

    return resolve_schema(args.data, args.schema, args.target, read_id_column(args), getattr(args, "fold_case", False))


def _make_plan(source: str | list[str], schema: "Schema", *, rows: int, quiet: bool, **options: Any) -> "Plan":
    from ..planning.planner import plan_people
    from ..tables.ids import planning_key
    from ..tables.reader import sample_rows

    line = terminal.ProgressLine(quiet=quiet)

    def show_progress(share: float) -> None:
        line.show(f"planning: {'#' * round(30 * share):30} {share:.0%}")

    try:
        show_progress(0.0)  # reading a large table takes a while
        sample = sample_rows(source, schema, rows, planning_key(options["random_state"]))
        return plan_people(
            sample.X,
            sample.y,
            sample.people,
            **schema.plan_options(),
            clip=True,  # training reports rows outside the bounds, and this may be another table
            rows=sample.total,
            progress=show_progress,
            **options,
        )
    finally:
        line.clear()


def _parse_milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a number of milliseconds above 0, got {text!r}")
    return number


class FeaturesOption(NamedTuple):
    """A feature map as given on the command line."""

    name: str
    size: int
    options: dict[str, Any]

    def build_map(self) -> "FeatureMap | None":
        """Return the feature map, or None for identity."""
        from ..encoding.features import PowersMap
        from ..encoding.fourier import RandomFourierMap

        if self.name == "fourier":
            return RandomFourierMap(self.size, **self.options)
        return PowersMap(self.size) if self.name == "powers" else None


def add_model(parser: Parser) -> None:
    """Add the options that shape a model."""
    parser.add_argument(
        "--shards", metavar="S", type=whole_number(1), help="Lanes, s: the rows per stripe (default: 5)."
    )
    parser.add_argument(
        "--rate",
        metavar="TAU",
        type=float,
        help="Rows per coded row, tau; there are shards / rate learners (default: 5).",
    )
    parser.add_argument(
        "--features",
        metavar="MAP",
        type=parse_features,
        help=f"fourier:D, powers:D or identity (default: identity). After fourier:D, with commas: {_FOURIER_SYNTAX}.",
    )
    parser.add_argument("--alpha", metavar="ALPHA", type=float, help="The ridge penalty (default: 1e-3).")
    parser.add_argument(
        "--plan", metavar="FILE", type=Path, help="A plan from expunge plan; the options above override it."
    )
    parser.add_argument(
        "--outside",
        choices=("clamp", "extrapolate"),
        help="Predictions for rows outside the bounds: those of the nearest point inside (clamp), or the value of the "
        "formula there (default: as in the plan, else clamp).",
    )
    parser.add_argument(
        "--seed",
        metavar="NUMBER",
        type=whole_number(0),
        help="The seed of the code, the features and the slots (default: 0 with a plan, else random).",
    )


def choose_model(args: Namespace) -> "dict[str, Any]":
    """Return the model for `Vault.create`: its settings, or how a plan shall choose them, and the score of a plan.

    Options override the plan (``--plan``) or, without one, the defaults of `CodedRegressor`. Without any of these
    options the vault makes a small plan.
    """
    from dataclasses import replace

    from ..learning.settings import Settings
    from ..vault.disk.manifest import Planning, UInt64
    from ..vault.requests.choice import format_declared

    given = {name: getattr(args, name) for name in _MODEL_OPTIONS if getattr(args, name) is not None}
    if "features" in given:
        given["features"] = given["features"].build_map()
    others: dict[str, Any] = {} if args.outside is None else {"outside": args.outside}
    others |= {"clip": True} if args.clip else {}
    seed = {} if args.seed is None else {"random_state": args.seed}
    if args.plan is None and not given:
        return {"planning": Planning(seed=args.seed or 0, declared=format_declared(**others))}
    if args.plan is None:
        missing = [f"--{name}" for name in _MODEL_OPTIONS if name not in given]
        if len(given) == 1:
            terminal.note(
                f"nothing is planned, because --{next(iter(given))} was given; by default: {', '.join(missing)}"
            )
        return {"model": replace(Settings(), **given, **seed, **others)}
    document, same = read_plan(args)
    settings, search = replace(document.settings, **given, **seed, **others), document.search
    score = document.describe_score(settings) if same else ""
    if not search.people:  # nobody in the vault had a part in it
        return {"model": settings, "planned": score}
    seed_of_plan: Any = document.settings.random_state  # a plan file has a whole number; the vault checks it
    planning = Planning(
        seed=seed_of_plan,
        quick=search.quick,
        forget_ms=search.forget_ms,
        max_features=search.max_features,
        declared=format_declared(**given, **seed, **others),
        largest_hash=UInt64(search.largest_hash),
        people=search.people,
        error=document.score.error,
    )
    return {"model": settings, "planning": planning, "planned": score}


def parse_features(text: str) -> FeaturesOption:
    """Parse ``identity``, ``powers:3`` or ``fourier:300,kernel=laplacian,scale=2,linear,order=3``."""
    first, *rest = text.split(",")
    name, _, size = first.partition(":")
    if first == "identity" and not rest:
        return FeaturesOption("identity", 0, {})
    if name not in ("fourier", "powers") or not (size.isdecimal() and size.isascii() and int(size)):
        raise ArgumentTypeError(f"must be fourier:D, powers:D or identity, D at least 1, got {text!r}")
    if rest and name == "powers":
        raise ArgumentTypeError(f"powers:D has no options, got {text!r}")
    options = dict[str, Any]()
    for part in rest:
        key, value = _parse_option(part)
        if key in options:
            raise ArgumentTypeError(f"{key} is given twice")
        options[key] = value
    return FeaturesOption(name, int(size), options)


def _parse_option(text: str) -> tuple[str, Any]:
    """Parse an option of ``fourier``."""
    key, equals, value = text.partition("=")
    if key == "linear" and not equals:
        return key, True
    if key == "kernel" and value:
        return key, value
    if key == "scale":
        return key, _parse_scale(value)
    if key == "order" and equals:
        return key, _parse_order(value)
    raise ArgumentTypeError(f"the options of fourier:D are {_FOURIER_SYNTAX}, got {text!r}")


def _parse_scale(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        advice = "use a plan or Python for one per input, or a matrix"
        raise ArgumentTypeError(f"scale must be a number above 0, got {text!r}; {advice}")
    return number


def _parse_order(text: str) -> int:
    try:
        return whole_number(1)(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"order {error}") from None
