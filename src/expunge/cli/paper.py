"""``expunge paper``: the experiments of the paper.

What reads and draws tables is loaded by the command that needs it: an erasure does not wait for a plotting library.
"""

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..errors import InvalidSetting, MissingData

if TYPE_CHECKING:
    from ..paper.claims import Tables

paper = typer.Typer(no_args_is_help=True, help="Reproduce the paper Coded Machine Unlearning.")

OUT, QUICK = Path("paper-results"), Path("paper-results-quick")
Out = Annotated[Path, typer.Option("--out", help="Folder for tables and figures.")]


@paper.command("list")
def list_() -> None:
    """Show the experiments."""
    from ..paper.experiments import EXPERIMENTS, TradeOff

    table = Table("name", "what", "kind", "runs")
    table.columns[0].no_wrap = True
    for name, experiment in EXPERIMENTS.items():
        only = " (--full)" if isinstance(experiment, TradeOff) and experiment.full_only else ""
        table.add_row(name, experiment.title, type(experiment).__name__, f"{experiment.runs}{only}")
    Console().print(table)


@paper.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; all of the mode's by default.")] = None,
    out: Annotated[Path | None, typer.Option(help=f"Folder for results; {OUT}, or {QUICK} with --quick.")] = None,
    runs_: Annotated[int | None, typer.Option("--runs", min=1, help="Runs of each experiment.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One run of each on a part of the rows.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The large-scale experiment too, at its full size.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="Runs at once.")] = os.cpu_count() or 1,
) -> None:
    """Run experiments; what an interrupted run had finished is not done again."""
    from ..paper import figures, runs
    from ..paper.experiments import EXPERIMENTS

    if quick and full:
        raise InvalidSetting("choose one of --quick and --full")
    out = out or (QUICK if quick else OUT)
    settings = runs.Settings("quick" if quick else "full" if full else "default", runs_)
    todo = runs.jobs(_known(names) or settings.names(), settings, out)
    done = sum(job.done for job in todo)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("running", total=len(todo), completed=done)
        try:
            for job in runs.execute(todo, processes=processes):
                progress.update(bar, advance=1, description=f"{job.name} {job.number}")
        finally:  # what is finished can be looked at, also after Ctrl-C
            for name, table in runs.collect(todo, out).items():
                drawn = figures.draw(name, EXPERIMENTS[name], table, out)
                typer.echo(f"{name}: {len(table)} measurements, {out / name}.csv, {', '.join(map(str, drawn))}")
            if not all(job.done for job in todo):
                typer.echo("not all runs are done: the same command goes on where this one stopped")


@paper.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all by default.")] = None, out: Out = OUT
) -> None:
    """Judge the paper's claims on the results, with the numbers behind each."""
    import pandas as pd

    from ..paper import claims

    if unknown := sorted(set(names or ()) - set(claims.CLAIMS)):
        raise InvalidSetting(f"unknown claims: {', '.join(unknown)}; there are {', '.join(claims.CLAIMS)}")
    tables = _results(out)
    if any(table.get("share", pd.Series([1.0])).min() < 1 for table in tables.values()):
        typer.echo("These are quick results, of one run on a part of the rows: a first look, not a verdict.\n")
    verdicts = claims.check(tables, names or None)
    for name, verdict in verdicts.items():
        typer.secho(f"{'holds        ' if verdict.holds else 'does not hold'}  [{name}]", bold=True)
        typer.echo(f"               {claims.CLAIMS[name].sentence}")
        typer.echo(textwrap.fill(verdict.numbers, 110, initial_indent=" " * 15, subsequent_indent=" " * 15))
    missing = [name for name in names or claims.CLAIMS if name not in verdicts]
    typer.echo(f"\n{sum(v.holds for v in verdicts.values())} of {len(verdicts)} claims hold")
    if missing:
        typer.echo(f"not judged, because there are no results to judge: {', '.join(missing)}")


@paper.command("report")
def report_(out: Out = OUT) -> None:
    """Write one HTML page with all figures, claims and settings."""
    from ..paper import claims, report

    tables = _results(out)
    (out / "report.html").write_text(report.page(tables, claims.check(tables), out), encoding="utf-8")
    typer.echo(str(out / "report.html"))


def _known(names: list[str] | None) -> list[str]:
    from ..paper.experiments import EXPERIMENTS

    if unknown := sorted(set(names or ()) - set(EXPERIMENTS)):
        raise InvalidSetting(f"unknown experiments: {', '.join(unknown)}; expunge paper list shows them")
    return list(names or ())


def _results(out: Path) -> "Tables":
    from ..paper import runs

    tables = runs.load(out)
    if not tables:
        raise MissingData(f"no results in {out}; make some with: expunge paper run --out {out}")
    return tables
