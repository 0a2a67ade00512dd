"""``expunge predict``, ``status`` and the other read-only commands."""

import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    actor,
    add_actor,
    add_cluster,
    add_command,
    add_data,
    add_id_column,
    add_ids,
    add_json,
    add_key,
    add_read_only,
    add_targets,
    add_vault,
    open_cluster,
    open_queue,
    open_vault,
    read_id_column,
    read_ids,
    whole_number,
)
from .terminal import pluralize

if TYPE_CHECKING:
    from datetime import datetime

    from ..errors import InvalidFile
    from ..vault import Anchor, Evaluation, Holding, LoggedRequest, Verdict
    from .arguments import Commands

_STATE_LABELS = {"present": "present", "erased": "erased", "unknown": "not known here"}


def register(commands: "Commands") -> None:
    """Add the commands of this module."""
    add_command(commands, predict, add_data, _add_out, add_read_only, add_vault)
    add_command(commands, evaluate, add_data, _add_html, add_read_only, add_vault)
    add_command(commands, find, add_ids, add_read_only, add_vault)
    add_command(commands, status, add_read_only, add_vault)
    add_command(commands, log, add_read_only, add_vault)
    add_command(commands, audit, add_read_only, add_vault)
    add_command(commands, verify, _add_head, _add_plan, _add_report, add_key, add_read_only, add_cluster, add_vault)
    add_command(commands, schema, add_data, add_targets, add_id_column, _add_people, add_json)


def _add_out(parser: Parser) -> None:
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="A CSV or Parquet file (default: CSV on standard output)."
    )
    parser.add_argument(
        "--guard-formulas", action="store_true", help="In CSV, prefix ids that look like formulas with a quote."
    )


def _add_html(parser: Parser) -> None:
    text = "Write a self-contained report with the scores and charts of the errors."
    parser.add_argument("--html", metavar="FILE", type=Path, help=text)


def _add_people(parser: Parser) -> None:
    parser.add_argument(
        "--people",
        metavar="NUMBER",
        type=whole_number(1),
        default=10,
        help="List only categories shared by at least this many people (default: 10).",
    )


def _add_head(parser: Parser) -> None:
    parser.add_argument("--head", metavar="FILE", type=Path, help="A saved head: check that the ledger continues it.")
    parser.add_argument("--head-timestamp", metavar="FILE", type=Path, help="The timestamp of the head.")
    text = "The root certificates (PEM) of the timestamp authority."
    parser.add_argument("--tsa-roots", metavar="FILE", type=Path, help=text)


def _add_plan(parser: Parser) -> None:
    text = "Plan again on the surviving rows as well, and compare the settings; it takes as long as a plan."
    parser.add_argument("--plan", action="store_true", help=text)


def _add_report(parser: Parser) -> None:
    text = "Sign the result, even if a check fails, and write it to a new file."
    parser.add_argument("--report", metavar="FILE", type=Path, help=text)
    add_actor(parser, "The person who verifies; stored in the report and the service's history")


def _read_anchor(args: Namespace) -> "Anchor | None":
    """Return the head to compare with, and its timestamp."""
    if (args.head_timestamp is None) != (args.tsa_roots is None) or (args.tsa_roots and args.head is None):
        raise UsageError("--head-timestamp and --tsa-roots need each other and --head")
    if args.head is None:
        return None
    from ..vault.certificates import jws, statements

    head = jws.read_statement(args.head)
    if args.head_timestamp is None:
        return statements.Anchor(head)
    from ..vault.certificates import timestamps

    return statements.Anchor(head, timestamps.read_timestamp(args.head_timestamp), args.tsa_roots)


def predict(args: Namespace) -> None:
    """Predict the target of every row of a table."""
    vault = open_vault(args)
    if args.json and args.out is None:
        predictions = vault.predictions(args.data)
        values, outside = predictions.values.tolist(), int(predictions.outside.sum())
        return terminal.say_json({"ids": predictions.ids, "predictions": values, "outside": outside})
    out = args.out or terminal.binary_output()
    written = vault.predict_to(args.data, out, guard_formulas=args.guard_formulas)
    if args.json:
        return terminal.say_json({"rows": written.rows, "out": args.out, "outside": written.outside})
    if args.out is not None:
        terminal.say(f"{pluralize(written.rows, 'prediction', 'predictions')} in {terminal.escape(str(args.out))}")
    for text in written.notes:
        terminal.note(text)
    return None


def evaluate(args: Namespace) -> None:
    """Compare predictions with the targets in a table, and with a linear model, boosted trees and the mean."""
    from .. import tables

    if args.html is not None and tables.overwrites(args.html, args.data):
        raise UsageError(f"--html would overwrite the table, {args.html}")
    vault = open_vault(args)
    with terminal.show_progress(quiet=args.json) as progress:
        evaluation = vault.evaluate(args.data, progress=progress)
    if args.html is not None:
        evaluation.report(args.html, title=f"{args.vault.name} on {tables.table_title(args.data)}")
    if args.json:
        return terminal.say_json(evaluation.to_dict() | {"html": args.html})
    terminal.say("\n".join(_format_scores(evaluation)))
    for text in evaluation.notes:
        terminal.note(text)
    return None


def _format_scores(evaluation: "Evaluation") -> Iterator[str]:
    """Format an evaluation as text."""
    from ..vault.evaluation.scores import format_score

    people = "" if evaluation.people is None else f" of {pluralize(evaluation.people, 'person', 'people')}"
    yield f"{pluralize(evaluation.rows, 'row', 'rows')}{people}"
    for target in evaluation.targets:
        lines = [(target.target, "R2", "RMSE", "MAE")]
        models = {"this vault": target.vault, "a linear model": target.linear, "boosted trees": target.trees}
        for label, scores in (models | {"the mean": target.mean}).items():
            if scores is None:
                continue
            errors = format_score(scores.rmse), format_score(scores.mae)
            lines.append((label, format_score(scores.r2, decimals=3), *errors))
        yield from ("", terminal.format_table(lines), target.advice)


def find(args: Namespace) -> int:
    """Show whether each id is in the vault, erased or unknown; the exit code is 4 unless all are in it."""
    from dataclasses import asdict

    from ..errors import UnknownId

    ids = list(dict.fromkeys(read_ids(args)))
    holdings = dict(zip(ids, open_vault(args).find(ids), strict=True))
    if args.json:
        terminal.say_json([{"id": id_} | asdict(holding) for id_, holding in holdings.items()])
    else:
        lines = [(id_, _STATE_LABELS[holding.state], _describe_holding(holding)) for id_, holding in holdings.items()]
        terminal.say(terminal.format_table(lines))
    return 0 if all(holding.state == "present" for holding in holdings.values()) else UnknownId.exit_code


def _describe_holding(holding: "Holding") -> str:
    """Return the number of rows, the request that erased them, or a hint at a similar id."""
    if holding.similar:
        return "a similar id is in the vault"
    if holding.state == "erased":
        return f"by request {holding.request}"
    return pluralize(holding.rows, "row", "rows") if holding.rows else ""


def status(args: Namespace) -> None:
    """Show the content and settings of a vault."""
    from dataclasses import asdict

    from ..vault.status import try_read_status

    fields = asdict(try_read_status(args.vault) or open_vault(args).status())
    if args.json:
        return terminal.say_json(fields)
    fields["inputs"] = tuple(_group_inputs(fields.pop("columns"), fields["inputs"]))
    fields["features"] += _describe_kernels(fields["features"])
    if not fields["clone_of"]:
        del fields["clone_of"]
    lines = [(name.replace("_", " "), _format_value(value)) for name, value in fields.items()]
    return terminal.say(terminal.format_table(lines))


def _group_inputs(columns: Sequence[str], inputs: Sequence[str]) -> Iterator[str]:
    """Yield the columns behind the inputs; a category has one input per value."""
    for column in columns:
        values = 0 if column in inputs else sum(name.startswith(f"{column}=") for name in inputs)
        yield f"{column} ({pluralize(values, 'value', 'values')})" if values else column


def _describe_kernels(features: str) -> str:
    """Return an explanation of features with several kernels, or nothing."""
    from ..encoding.wording import describe_kernels

    match = re.search(r"kernel='([a-z0-9]+(?:\+[a-z0-9]+)+)'", features)
    return f": {describe_kernels(match[1])}" if match else ""


def _format_value(value: object) -> str:
    """Format a value of the status."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def log(args: Namespace) -> None:
    """List the requests with their state and certificate, and which request completed an erasure or correction."""
    from dataclasses import asdict

    vault = open_vault(args)
    completions = _find_completions(vault.requests)
    if args.json:
        named = [(each, {"reference": each.reference, "actor": each.actor}, by) for each, by in completions]
        return terminal.say_json([{**asdict(each), **callers, "completed_by": by} for each, callers, by in named])
    lines = [("request", "time (UTC)", "kind", "rows", "people", "state", "complete", "certificate", "reference")]
    for request, completed_by in completions:
        path, time = vault.certificate_path(request.number), request.time[:19].replace("T", " ")
        counts = (f"{request.rows:,}", f"{request.people:,}")
        complete = "" if completed_by == request.number else f"by {completed_by}" if completed_by else "not yet"
        file = path.name if vault.certificate_file(request) else "CHANGED" if path.exists() else ""
        states = (request.state, complete, file, request.reference)
        lines.append((str(request.number), time, request.kind, *counts, *states))
    terminal.say(terminal.format_table(lines))
    return terminal.say(f"certificates: {terminal.escape(str(vault.places.certificates))}")


def _find_completions(requests: "Sequence[LoggedRequest]") -> "list[tuple[LoggedRequest, int | None]]":
    """Return each request with the number of the request that completed it: its own, a later plan, or None."""
    found, settled = [], None
    for request in reversed(requests):
        found.append((request, settled if request.open else request.number))
        if request.settles:
            settled = request.number
    return found[::-1]


def audit(args: Namespace) -> None:
    """Print the audit trail of the vault and its service, with actors, as CSV (or --json)."""
    from ..server.audit import format_csv, format_json, read_trail
    from ..server.database import queue_path

    vault = open_vault(args)
    has_queue = queue_path(vault.places.vault).exists()
    with open_queue(vault) if has_queue else nullcontext() as database:
        for text in (format_json if args.json else format_csv)(read_trail(vault, database)):
            terminal.say(text, end="")


def verify(args: Namespace) -> None:
    """Retrain from the remaining rows and compare; check every ledger record and certificate."""
    from dataclasses import asdict
    from datetime import UTC, datetime

    from ..errors import InvalidFile, VerificationFailed
    from ..vault.certificates import statements

    anchor = _read_anchor(args)
    if args.report is not None:
        if args.read_only:
            raise UsageError("--report signs the result and --read-only signs nothing: give only one of them")
        statements.check_report_path(args.report)
    name, started = actor(args), datetime.now(UTC)
    try:
        with open_cluster(args) as client, terminal.show_progress(quiet=args.json) as progress:
            options = {"head": anchor, "plan": args.plan, "report": args.report is not None, "actor": name}
            verdict = open_vault(args).verify(progress=progress, client=client, **options)
    except InvalidFile as error:  # a vault that cannot be read has failed as well
        _record_verification(args, name, started, error)
        raise
    _record_verification(args, name, started, verdict)
    if verdict.report is not None:
        statements.write_report(args.report, verdict.report)
    if args.json:
        terminal.say_json({"ok": verdict.ok, **asdict(verdict)})
    else:
        lines = [("ok" if check.ok else "WRONG", check.name, check.detail) for check in verdict.checks]
        terminal.say(terminal.format_table(lines))
    if not verdict.ok:
        wrong = ", ".join(check.name for check in verdict.checks if not check.ok)
        raise VerificationFailed(f"failed checks: {wrong}")


def _record_verification(args: Namespace, name: str, started: "datetime", result: "Verdict | InvalidFile") -> None:
    """Write the result of a verification to the history of the vault's service, if it has one."""
    queue = args.vault.with_suffix(".queue")  # by its name: the vault itself may be unreadable
    if args.read_only or not queue.is_dir():
        return
    import sqlite3
    from datetime import UTC, datetime

    from ..errors import ExpungeError
    from ..server.database import Database
    from ..server.verifications import Verification, store_verification

    verification = Verification("command line", name, started)
    if isinstance(result, Exception):
        verification.record_abort("failed", str(result), datetime.now(UTC))
    else:
        verification.record_verdict(result, datetime.now(UTC))
    try:
        with closing(Database(queue)) as database:
            store_verification(database, verification)
    except (ExpungeError, OSError, sqlite3.Error) as error:
        terminal.note(f"the result could not be written to the history of the service: {error}")


def schema(args: Namespace) -> None:
    """Propose a schema for a table; edit it before use, because it is inferred from the data."""
    if not args.target:
        raise UsageError("give the column to predict, with --target")
    column = read_id_column(args)
    from ..tables.proposal import draft_schema

    draft = draft_schema(args.data, target=args.target, id=column, people=args.people)
    if args.json:
        terminal.say_json({"schema": draft.text, "notes": draft.notes})
        return
    for note in draft.notes:
        terminal.note(note)
    terminal.say(draft.text, end="")
