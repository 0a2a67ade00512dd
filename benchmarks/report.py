"""The report: one table on the terminal, one page in the docs."""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from .drift import Drift
from .measure import Result
from .tradeoff import Point

HEAD = f"{'what':66} {'against':28} {'ours':>10} {'theirs':>10} {'ratio':>12} {'quartiles':>17} {'goal':>9}"

_INTRODUCTION = (
    "Written by `make bench` on {machine}, BLAS threads: {threads}. Every number is a ratio to something measured in "
    "turns with it in the same run; quartiles are over rounds. *x faster* is their time over ours, *x of* is our time "
    "over theirs. Milliseconds are this machine's and noisy; ratios less so."
)


def line(result: Result) -> str:
    """A line of the table on the terminal."""
    scale, unit = (1e-6, "MB") if "memory" in result.what else (1e3, "ms")
    ours, theirs = (f"{value * scale:,.2f}{unit}" for value in (result.ours, result.theirs))
    text = f"{result.what:66} {result.against:28} {ours:>10} {theirs:>10} {ratio(result):>12} {spread(result):>17}"
    return f"{text} {goal(result):>9}{'  MISSED' if result.met is False else ''}"


def ratio(result: Result) -> str:
    """The ratio in words."""
    number = f"{result.ratio:,.0f}" if result.ratio >= 100 else f"{result.ratio:.2f}"
    return f"{number}x faster" if result.kind == "faster" else f"{number}x of"


def spread(result: Result) -> str:
    """The quartiles of the ratio over rounds."""
    low, high = result.spread
    return f"{low:,.2f} to {high:,.2f}" if high else ""


def goal(result: Result) -> str:
    """What was hoped for."""
    if result.goal is None:
        return ""
    return f"> {result.goal:g}x" if result.kind == "faster" else f"< {result.goal:.3g}x"


def page(results: Sequence[Result], points: Sequence[Point], drifts: Sequence[Drift], threads: int) -> str:
    """The page for the docs."""
    met = [r for r in results if r.met]
    missed = [r for r in results if r.met is False]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            _INTRODUCTION.format(machine=_machine(), threads=threads),
            "",
            f"{len(met)} of {len(met) + len(missed)} goals are met.",
            "",
            "![Error against time to forget](figures/tradeoff-bench.png)",
            "",
            *_missed(missed),
            *(text for section in dict.fromkeys(r.section for r in results) for text in _section(section, results)),
            *_drift(drifts),
            *_points(points),
        ]
    )


def _missed(missed: Sequence[Result]) -> list[str]:
    if not missed:
        return []
    reasons = Path(__file__).with_name("missed.md")
    lines = [f"- {r.what}, against {r.against}: {ratio(r)}, goal {goal(r)}" for r in missed]
    return ["## Missed", "", *lines, "", reasons.read_text(encoding="utf-8").strip(), ""]


def _section(name: str, results: Iterable[Result]) -> list[str]:
    rows = [r for r in results if r.section == name]
    lines = [
        f"## {name.capitalize()}",
        "",
        "| what | against | ratio | quartiles | goal | |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        verdict = {True: "met", False: "**missed**", None: ""}[r.met]
        note = f"{r.what} ({r.note})" if r.note else r.what
        lines.append(f"| {note} | {r.against} | {ratio(r)} | {spread(r)} | {goal(r)} | {verdict} |")
    return [*lines, ""]


def _drift(drifts: Sequence[Drift]) -> list[str]:
    if not drifts:
        return []
    steps = list(dict.fromkeys(d.steps for d in drifts))
    lines = ["## Drift", "", "Relative error of the weights against a retrain, after so many deletions and insertions."]
    lines += ["", "![Drift](figures/drift-bench.png)", ""]
    lines += [f"| method | {' | '.join(f'{s:,}' for s in steps)} |", "|---" * (len(steps) + 1) + "|"]
    for method in dict.fromkeys(d.method for d in drifts):
        errors = [f"{d.error:.1e}" if d.error else "0" for d in drifts if d.method == method]
        lines.append(f"| {method} | {' | '.join(errors)} |")
    return [*lines, ""]


def _points(points: Sequence[Point]) -> list[str]:
    lines = [
        "## Error beside cost",
        "",
        "| data | method | shape | forget 1 row | test error |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {p.data} | {p.method} | {p.shape} | {p.seconds * 1e3:,.2f} ms | {p.error:.5f} |" for p in points]
    return [*lines, ""]


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
