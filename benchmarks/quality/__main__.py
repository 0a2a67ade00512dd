"""Run the comparison: ``python -m benchmarks.quality [TABLE ...]``; with no table, all that are not held out."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from . import report
from .ablation import ablate, tabulate
from .datasets import DEVELOPMENT, HELD_OUT
from .methods import NAMES, ours, references
from .scores import Cache, goals, run
from .speed import speed
from .splits import SPLITS
from .tables import Table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables' scores and the goals; after a run of everything, write the page."""
    parser = _parser()
    given = parser.parse_args(arguments)
    known: tuple[Table, ...] = DEVELOPMENT + (HELD_OUT if given.held_out else ())
    if held := set(given.tables) - {table.name for table in known}:
        parser.error(f"held out, nothing may be tuned on them: {', '.join(sorted(held))}; give --held-out at the end")
    tables = [table for table in known if not given.tables or table.name in given.tables]
    if given.ablation:
        if given.held_out:
            parser.error("--ablation is for development, and never looks at held-out tables")
        errors = {}
        for table in tables:
            errors[table.name] = ablate(table)
            print(table.name, errors[table.name], flush=True)
        print("\n".join(tabulate(errors)))
        return
    wanted = [
        method for method in [*references(), *ours()] if not given.methods or set(given.methods) & set(method.names)
    ]
    scores = []
    for score in run(tables, wanted, Cache(given.cache), splits=given.splits, jobs=given.jobs):
        print("\n".join(report.lines(score)), flush=True)
        scores.append(score)
    if given.methods:
        return
    judged = goals([score for score in scores if not score.table.held_out])
    aside = goals([score for score in scores if score.table.held_out])
    whole = not given.tables and given.splits == SPLITS
    if whole:
        judged += speed()
    print("\n".join(["", *map(str, judged), *(f"held out: {goal}" for goal in aside)]))
    if whole:
        (given.docs / "figures").mkdir(parents=True, exist_ok=True)
        report.draw_ratios(scores, given.docs / "figures" / "quality.png")
        (given.docs / "quality.md").write_text(report.page(scores, judged, aside), encoding="utf-8")
        print(f"{given.docs / 'quality.md'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    names = [table.name for table in DEVELOPMENT + HELD_OUT]
    parser.add_argument("tables", nargs="*", choices=[*names, []], help="which tables; held-out ones need --held-out")
    parser.add_argument("--held-out", action="store_true", help="also the tables that nothing was tuned on")
    parser.add_argument("--methods", nargs="+", choices=NAMES, help="only these; no goals are judged")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"only the first so many; default: {SPLITS}")
    parser.add_argument("--ablation", action="store_true", help="only plans without one part each, as ratios")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tables at a time; default: all cores")
    parser.add_argument("--cache", type=Path, default=Path("build/quality"), help="where results are kept")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where quality.md and its figure go")
    return parser


if __name__ == "__main__":
    main()
