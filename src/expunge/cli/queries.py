"""``expunge predict``, ``status`` and the other commands that only look."""

import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    open_vault,
    read_id_column,
    read_ids,
    whole_number,
)
from .terminal import pluralize

if TYPE_CHECKING:
    from ..vault import Anchor, Evaluation, Holding, Verdict
    from .arguments import Commands


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    add_command(commands, predict, add_data, _add_out, add_read_only, add_vault)
    add_command(commands, evaluate, add_data, _add_html, add_read_only, add_vault)
    add_command(commands, find, add_ids, add_read_only, add_vault)
    add_command(commands, status, add_read_only, add_vault)
    add_command(commands, log, add_read_only, add_vault)
    add_command(commands, audit, add_read_only, add_vault)
    add_command(commands, verify, _add_head, _add_report, add_key, add_read_only, add_cluster, add_vault)
    add_command(commands, schema, add_data, add_targets, add_id_column, _add_people, add_json)


def _add_out(parser: Parser) -> None:
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="A CSV or Parquet file; default: CSV on standard output."
    )
    parser.add_argument(
        "--guard-formulas", action="store_true", help="In CSV, put a quote before ids that look like formulas."
    )


def _add_html(parser: Parser) -> None:
    text = "Write a page with the scores and pictures of the errors; it needs no network."
    parser.add_argument("--html", metavar="FILE", type=Path, help=text)


def _add_people(parser: Parser) -> None:
    parser.add_argument(
        "--people",
        metavar="NUMBER",
        type=whole_number(1),
        default=10,
        help="Name only categories that this many people have (default: 10).",
    )


def _add_head(parser: Parser) -> None:
    parser.add_argument("--head", metavar="FILE", type=Path, help="A head that was kept: does the ledger continue it?")
    parser.add_argument("--head-timestamp", metavar="FILE", type=Path, help="The timestamp of the head.")
    text = "The certificates (PEM) below which the timestamp authority must be."
    parser.add_argument("--tsa-roots", metavar="FILE", type=Path, help=text)


def _add_report(parser: Parser) -> None:
    text = "Sign what was found, also if something is wrong, and write it to a new file."
    parser.add_argument("--report", metavar="FILE", type=Path, help=text)
    add_actor(parser, "Who verifies, for the report and the service's history")


def _read_anchor(args: Namespace) -> "Anchor | None":
    """The head to compare with, and its timestamp."""
    if (args.head_timestamp is None) != (args.tsa_roots is None) or (args.tsa_roots and args.head is None):
        raise UsageError("--head-timestamp and --tsa-roots go together, with --head")
    if args.head is None:
        return None
    from ..vault.certificates import jws, statements

    if args.head_timestamp is None:
        return statements.Anchor(jws.read_statement(args.head))
    from ..vault.certificates import timestamps

    return statements.Anchor(
        jws.read_statement(args.head), timestamps.read_timestamp(args.head_timestamp), args.tsa_roots
    )


def predict(args: Namespace) -> None:
    """Predict the target of every row of a table."""
    vault = open_vault(args)
    if args.json and args.out is None:
        found = vault.predictions(args.data)
        outside = int(found.outside.sum())
        return terminal.say_json({"ids": found.ids, "predictions": found.values.tolist(), "outside": outside})
    out = args.out or terminal.binary_output()
    done = vault.predict_to(args.data, out, guard_formulas=args.guard_formulas)
    if args.json:
        return terminal.say_json({"rows": done.rows, "out": args.out, "outside": done.outside})
    if args.out is not None:
        terminal.say(f"{pluralize(done.rows, 'prediction', 'predictions')} in {terminal.escape(str(args.out))}")
    for text in done.notes:
        terminal.note(text)
    return None


def evaluate(args: Namespace) -> None:
    """Predict a table that has the targets, and say how good that is, beside a linear model and the mean."""
    from .. import tables

    if args.html is not None and tables.overwrites(args.html, args.data):
        raise UsageError(f"--html would overwrite the table, {args.html}")
    vault = open_vault(args)
    with terminal.show_progress(quiet=args.json) as told:
        found = vault.evaluate(args.data, progress=told)
    if args.html is not None:
        found.report(args.html, title=f"{args.vault.name} on {tables.table_title(args.data)}")
    if args.json:
        return terminal.say_json(found.to_dict() | {"html": args.html})
    terminal.say("\n".join(_format_scores(found)))
    for text in found.notes:
        terminal.note(text)
    return None


def _format_scores(evaluation: "Evaluation") -> Iterator[str]:
    """What an evaluation says to people."""
    from ..vault.evaluation.scores import format_score

    of = "" if evaluation.people is None else f" of {pluralize(evaluation.people, 'person', 'people')}"
    yield f"{pluralize(evaluation.rows, 'row', 'rows')}{of}"
    for one in evaluation.targets:
        lines = [(one.target, "R2", "RMSE", "MAE")]
        for name, words in (("vault", "this vault"), ("linear", "a linear model"), ("mean", "the mean")):
            scores = getattr(one, name)
            lines.append(
                (words, format_score(scores.r2, decimals=3), format_score(scores.rmse), format_score(scores.mae))
            )
        yield from ("", terminal.format_table(lines), one.advice)


def find(args: Namespace) -> int:
    """Say for each id whether it is in the vault, erased or not known; ends with exit code 4 unless all are there."""
    from dataclasses import asdict

    from ..errors import UnknownId

    wanted = list(dict.fromkeys(read_ids(args)))
    found = open_vault(args).find(wanted)
    if args.json:
        terminal.say_json([{"id": one} | asdict(holding) for one, holding in zip(wanted, found, strict=True)])
    else:
        terminal.say(
            terminal.format_table(
                [(one, _STATE_LABELS[h.state], _describe_holding(h)) for one, h in zip(wanted, found, strict=True)]
            )
        )
    return 0 if all(holding.state == "present" for holding in found) else UnknownId.exit_code


_STATE_LABELS = {"present": "present", "erased": "erased", "unknown": "not known here"}


def _describe_holding(holding: "Holding") -> str:
    """How many rows somebody has, which request erased them, or that a similar id is there."""
    if holding.similar:
        return "a similar id is here"
    if holding.state == "erased":
        return f"by request {holding.request}"
    return pluralize(holding.rows, "row", "rows") if holding.rows else ""


def status(args: Namespace) -> None:
    """Show what is in a vault."""
    from dataclasses import asdict

    from ..vault.status import try_read_status

    found = asdict(try_read_status(args.vault) or open_vault(args).status())
    if args.json:
        return terminal.say_json(found)
    found["inputs"] = tuple(_group_inputs(found.pop("columns"), found["inputs"]))
    found["features"] += _describe_kernels(found["features"])
    if not found["clone_of"]:
        del found["clone_of"]
    return terminal.say(
        terminal.format_table([(name.replace("_", " "), _format_value(value)) for name, value in found.items()])
    )


def _group_inputs(columns: Sequence[str], inputs: Sequence[str]) -> Iterator[str]:
    """The columns that the inputs are made of; a category has one input per value."""
    for column in columns:
        values = 0 if column in inputs else sum(name.startswith(f"{column}=") for name in inputs)
        yield f"{column} ({pluralize(values, 'value', 'values')})" if values else column


def _describe_kernels(features: str) -> str:
    """What to add to features of several kernels, whose names alone are a riddle."""
    from ..encoding.wording import describe_kernels

    found = re.search(r"kernel='([a-z0-9]+(?:\+[a-z0-9]+)+)'", features)
    return f": {describe_kernels(found[1])}" if found else ""


def _format_value(value: object) -> str:
    """A value in plain words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def log(args: Namespace) -> None:
    """Show the requests, their state and certificates."""
    from dataclasses import asdict

    vault = open_vault(args)
    if args.json:
        return terminal.say_json(
            [{**asdict(request), "reference": request.reference, "actor": request.actor} for request in vault.requests]
        )
    lines = [("request", "time (UTC)", "kind", "rows", "people", "state", "certificate", "reference")]
    for request in vault.requests:
        path, time = vault.certificate_path(request.number), request.time[:19].replace("T", " ")
        counts = (f"{request.rows:,}", f"{request.people:,}")
        file = path.name if vault.certificate_file(request) else "CHANGED" if path.exists() else ""
        lines.append((str(request.number), time, request.kind, *counts, request.state, file, request.reference))
    terminal.say(terminal.format_table(lines))
    return terminal.say(f"certificates: {terminal.escape(str(vault.places.certificates))}")


def audit(args: Namespace) -> None:
    """Write everything that happened to the vault and its service, with who did it, as CSV (or --json)."""
    from ..server.audit import format_csv, format_json, read_trail
    from ..server.database import Database, queue_path

    vault = open_vault(args)
    path = queue_path(vault.places.vault)
    trail = read_trail(vault, Database(path) if path.exists() else None)
    for text in (format_json if args.json else format_csv)(trail):
        terminal.say(text, end="")


def verify(args: Namespace) -> None:
    """Train again from the surviving rows and compare; check every record and certificate."""
    from dataclasses import asdict

    from ..errors import VerificationFailed
    from ..vault.certificates import statements

    anchor = _read_anchor(args)
    if args.report is not None:
        if args.read_only:
            raise UsageError("--report signs what was found, and --read-only signs nothing: give one of them")
        statements.check_report_path(args.report)
    with (
        _record_outcome(args) as (who, found),
        open_cluster(args) as client,
        terminal.show_progress(quiet=args.json) as told,
    ):
        verdict = open_vault(args).verify(
            progress=told, head=anchor, client=client, report=args.report is not None, actor=who
        )
        found.append(verdict)
    if verdict.report is not None:
        statements.write_report(args.report, verdict.report)
    if args.json:
        terminal.say_json({"ok": verdict.ok, **asdict(verdict)})
    else:
        lines = [("ok" if check.ok else "WRONG", check.name, check.detail) for check in verdict.checks]
        terminal.say(terminal.format_table(lines))
    if not verdict.ok:
        wrong = ", ".join(check.name for check in verdict.checks if not check.ok)
        raise VerificationFailed(f"this vault does not fit: {wrong}")


@contextmanager
def _record_outcome(args: Namespace) -> "Iterator[tuple[str, list[Verdict]]]":
    """Write the outcome of a verification into the history of the vault's service, if it has one.

    Yields who verifies, and a list for what was found. A vault that cannot even be read has failed, too.
    """
    from datetime import UTC, datetime

    from ..errors import ExpungeError, InvalidFile

    who, started, found, reason = actor(args), datetime.now(UTC), list["Verdict"](), ""
    try:
        yield who, found
    except InvalidFile as error:
        reason = str(error)
        raise
    finally:
        queue = args.vault.with_suffix(".queue")
        if (found or reason) and not args.read_only and queue.is_dir():
            import sqlite3

            from ..server.database import Database
            from ..server.verifications import Verification, store_verification

            outcome = Verification("command line", who, started)
            if found:
                outcome.record_verdict(found[0], datetime.now(UTC))
            else:
                outcome.record_abort("failed", reason, datetime.now(UTC))
            try:
                database = Database(queue)
                store_verification(database, outcome)
                database.close()
            except (ExpungeError, OSError, sqlite3.Error) as error:
                terminal.note(f"the outcome could not be written to the history of the service: {error}")


def schema(args: Namespace) -> None:
    """Propose a schema for a table, to be edited: it was read from the data."""
    if not args.target:
        raise UsageError("name the column to predict, with --target")
    column = read_id_column(args)
    from ..tables.proposal import propose_schema

    text = propose_schema(args.data, target=args.target, id=column, people=args.people)
    if args.json:
        terminal.say_json({"schema": text})
    else:
        terminal.say(text, end="")
