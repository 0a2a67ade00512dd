"""``expunge paper``: the experiments of the paper.

Each command imports what it needs, so that an erasure does not wait for a plotting library.
"""

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import Parser, UsageError, add_command, add_command_group, whole_number
from .terminal import pluralize

if TYPE_CHECKING:
    from ..paper.runs import ExperimentRun
    from .arguments import Commands


def register(commands: "Commands") -> None:
    """Add the commands of this module."""
    add_command_group(commands, "paper", "Reproduce the paper Coded Machine Unlearning.", _register_paper_commands)


def _register_paper_commands(commands: "Commands") -> None:
    add_command(commands, list_experiments, name="list")
    add_command(commands, run, _add_run)
    add_command(commands, check, _add_claims, _add_results)
    add_command(commands, report, _add_results)


def _add_claims(parser: Parser) -> None:
    parser.add_argument("names", metavar="CLAIM", nargs="*", help="Claims to judge (default: all).")


def _add_run(parser: Parser) -> None:
    parser.add_argument("names", metavar="EXPERIMENT", nargs="*", help="Experiments (default: all of the mode).")
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        help="Folder for results (default: paper-results; with --quick, paper-results-quick).",
    )
    parser.add_argument("--runs", metavar="NUMBER", type=whole_number(1), help="Number of runs of each experiment.")
    parser.add_argument("--quick", action="store_true", help="Run each once, on part of the rows.")
    parser.add_argument("--full", action="store_true", help="Include the large-scale experiment at its full size.")
    parser.add_argument(
        "--processes",
        metavar="NUMBER",
        type=whole_number(1),
        default=os.cpu_count() or 1,
        help="Runs in parallel (default: one per processor).",
    )


def _add_results(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        help="Folder with results (default: paper-results, or paper-results-quick if only that exists).",
    )


def list_experiments(args: Namespace) -> None:
    """List the experiments."""
    from ..paper.experiments import EXPERIMENTS, TradeOff

    lines = [("name", "what", "kind", "runs")]
    for name, experiment in EXPERIMENTS.items():
        mode = " (--full)" if isinstance(experiment, TradeOff) and experiment.full_only else ""
        lines.append((name, experiment.title, type(experiment).__name__, f"{experiment.runs}{mode}"))
    terminal.say(terminal.format_table(lines))


def run(args: Namespace) -> None:
    """Run experiments; an interrupted run continues where it stopped."""
    from ..paper import runs

    if args.quick and args.full:
        raise UsageError("give only one of --quick and --full")
    settings = runs.RunScope("quick" if args.quick else "full" if args.full else "default", args.runs)
    out = args.out or settings.folder
    todo = runs.plan_runs(runs.check_experiment_names(args.names) or settings.default_names(), settings, out)
    line, done = terminal.ProgressLine(), sum(job.done for job in todo)
    try:
        for job in runs.run_pending(todo, processes=args.processes):
            done += 1
            line.show(f"{done} of {len(todo)} runs, the last was {job.name} {job.number}")
    finally:  # also after Ctrl-C
        line.clear()
        _collect(todo, out)


def _collect(todo: "list[ExperimentRun]", out: Path) -> None:
    """Write tables and figures of the finished runs, and print their paths."""
    from ..paper import figures, runs
    from ..paper.experiments import EXPERIMENTS

    for name, table in runs.write_tables(todo, out).items():
        drawn = figures.draw_figure(name, EXPERIMENTS[name], table, out)
        files = terminal.escape(", ".join(map(str, (out / f"{name}.csv", *drawn))))
        terminal.say(f"{name}: {pluralize(len(table), 'measurement', 'measurements')}, {files}")
    if not all(job.done for job in todo):
        terminal.say("some runs are not finished: run the same command again to continue")


def check(args: Namespace) -> None:
    """Check the paper's claims against the results, with the numbers behind each."""
    import textwrap

    from ..paper import claims, runs

    names = claims.check_claim_names(args.names) or list(claims.CLAIMS)
    out, tables = runs.find_results(args.out)
    terminal.say(f"results: {terminal.escape(str(out))}")
    if runs.is_quick(tables):
        terminal.say(f"{runs.QUICK_WARNING}\n")
    verdicts = claims.judge_claims(tables, names)
    for name, verdict in verdicts.items():
        terminal.say(f"{'holds        ' if verdict.holds else 'does not hold'}  [{name}]")
        terminal.say(f"               {claims.CLAIMS[name].sentence}")
        terminal.say(textwrap.fill(verdict.numbers, 110, initial_indent=" " * 15, subsequent_indent=" " * 15))
    missing = [name for name in names if name not in verdicts]
    terminal.say(f"\n{sum(v.holds for v in verdicts.values())} of {len(verdicts)} claims hold")
    if missing:
        terminal.say(f"not judged, because their results are missing: {', '.join(missing)}")


def report(args: Namespace) -> None:
    """Write an HTML report with all figures, claims and settings."""
    from ..paper import claims, runs
    from ..paper.report import render_page

    out, tables = runs.find_results(args.out)
    path = out / "report.html"
    path.write_text(render_page(tables, claims.judge_claims(tables), out), encoding="utf-8")
    terminal.say(terminal.escape(str(path)))
