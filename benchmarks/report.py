"""The report: lines on the terminal, the page docs/benchmarks.md, and the ratios before native kernels."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from threadpoolctl import threadpool_info

from expunge.exact.native import kernel_status

from .accuracy import SPLITS, Drift, Point
from .measure import Result

REFIT, FACTOR = "the same, bare BLAS", "one Cholesky"
OWN, BOTH = "own products", "own products and Cholesky"
FLOATS = "np.cos and a product, unchecked"

BEFORE = {
    ("forget 1 row, computer-activity D=25, s=20, rate 5", REFIT): 5.32,
    ("forget 1 row, computer-activity D=25, s=20, uncoded", REFIT): 4.50,
    ("forget 1 row, power-plant D=20, s=20, rate 5", REFIT): 5.66,
    ("forget 1 row, power-plant D=20, s=20, uncoded", REFIT): 4.67,
    ("forget 1 row, protein D=300, s=1", FACTOR): 2.66,
    ("forget 1 row, protein D=300, s=20, rate 5", FACTOR): 3.46,
    ("forget 1 row, protein D=300, s=20, uncoded", FACTOR): 2.93,
    ("forget 1 row, synthetic 20,000 x 10, D=300, s=5, rate 5", FACTOR): 3.20,
    ("forget 1 row, synthetic 20,000 x 10, D=1,000, s=5, rate 5", FACTOR): 1.43,
    ("forget 1 row, synthetic 20,000 x 10, D=2,000, s=5, rate 5", FACTOR): 1.26,
    ("forget 1,000 rows at once, protein D=300, s=5, rate 5", BOTH): 2.35,
    ("train, protein, D=300, s=20, rate 5", OWN): 3.57,
    ("train, synthetic 20,000 x 10, D=1,000, s=20, rate 5", OWN): 1.75,
    ("train, synthetic 20,000 x 10, D=2,000, s=20, rate 5", OWN): 1.96,
    ("train, protein D=300, s=1", "one Ridge"): 1.36,
    ("predict 1 row, protein D=300", FLOATS): 15.33,
    ("predict 100,000 rows, protein D=300", FLOATS): 1 / 2.36,
}


HEAD = f"{'what':72} {'against':32} {'ours':>11} {'theirs':>11} {'ratio':>16} {'quartiles':>16} {'goal':>9}"

_INTRODUCTION = (
    "Written by `make bench` on {date} ({machine}; threads of BLAS and OpenMP: {threads}). Every ratio is to something "
    "measured in turns with it in the same run, its quartiles are over rounds. *Faster* and *slower* compare methods; "
    "*x the cost* compares with a limit of the machine or with floats that do not forget exactly. Milliseconds are "
    "this machine's and noisy; ratios less so."
)

_METHODS = """\
All methods but ours keep the features of all rows in memory and compute none when they forget. *The paper's protocol*
subtracts rows from their coded rows in floats and refits the learners that saw them with scikit-learn's Ridge, once a
request; *the same, bare BLAS* does so without scikit-learn's overhead, which at D = 25 is most of the time. *SISA*
refits uncoded shards, *full retrain* one Ridge on everything. The *float downdate* subtracts the row's products from
float moments and solves by Cholesky, *Sherman-Morrison* updates the inverse: both drift. *Boosted trees*
(HistGradientBoostingRegressor, as it comes) are retrained: they have the smallest error and forget the slowest."""

_DRIFT = """\
Relative error of the weights against a retrain of the same method on the rows that are left. The same rows leave in the
same order everywhere, on one learner; ours are asked for in batches of up to 1,000, which by the invariant does not
show. What Sherman-Morrison has at 0 is the rounding of its inverse. *Float retrain, reordered* is a retrain in floats
that adds up the same rows in another order: how far apart floats are that never saw the rows that left."""

_ERRORS = (
    "Test error is the mean over {splits} splits, with its standard deviation; times are of the first, all methods in "
    "turns."
)


def line(result: Result) -> str:
    """A line of the table on the terminal."""
    ours, theirs = cost(result.ours, result), cost(result.theirs, result)
    text = f"{result.what:72} {result.against:32} {ours:>11} {theirs:>11} {ratio(result):>16} {spread(result):>16}"
    return f"{text} {goal(result):>9}  {verdict(result)}".rstrip()


def cost(value: float, result: Result) -> str:
    """Seconds or bytes, for people."""
    return f"{value / 1e6:,.0f} MB" if result.unit == "B" else f"{value * 1e3:,.2f} ms"


def ratio(result: Result) -> str:
    """The ratio in words."""
    if result.kind == "of":
        return f"{_number(result.ratio)}x the cost"
    return f"{_number(result.ratio)}x faster" if result.ratio >= 1 else f"{_number(1 / result.ratio)}x slower"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def spread(result: Result) -> str:
    """The quartiles of the ratio over rounds."""
    if result.spread is None:
        return "once"
    low, high = result.spread
    if result.kind == "faster" and result.ratio < 1:  # as the ratio is given: so many times slower
        low, high = 1 / high, 1 / low
    return f"{_number(low)} to {_number(high)}"


def goal(result: Result) -> str:
    """What was hoped for."""
    if result.goal is None:
        return ""
    return f"> {result.goal:g}x" if result.kind == "faster" else f"< {result.goal:.3g}x"


def verdict(result: Result) -> str:
    """Whether the goal was met, and whether the next run may say otherwise."""
    if result.met is None:
        return ""
    return ("met" if result.met else "MISSED") + (", within noise" if result.close else "")


def page(
    results: Sequence[Result], points: Sequence[Point], drifts: Sequence[Drift], threads: int, *, quick: bool = False
) -> str:
    """The page for the docs."""
    introduction = _INTRODUCTION.format(date=datetime.now(UTC).date(), machine=machine(), threads=threads)
    return "\n".join(
        [
            "# Benchmarks",
            "",
            introduction + (" **A quick run: fewer rounds, smaller sizes.**" if quick else ""),
            "",
            *(f"- {text}" for text in _score(results)),
            "",
            "![Error against time to forget](figures/tradeoff-bench.png)",
            "",
            _METHODS,
            "",
            *_missed([r for r in results if r.met is False]),
            *_before(results),
            *(text for section in dict.fromkeys(r.section for r in results) for text in _section(section, results)),
            *_drift(drifts),
            *_points(points),
        ]
    )


def _score(results: Sequence[Result]) -> list[str]:
    """Goals that only ask to be faster than a refit are one thing, goals against limits another."""
    texts = []
    for kind, name in (
        ("faster", "faster than a method that refits"),
        ("of", "within so many times a limit or floats"),
    ):
        judged = [r for r in results if r.kind == kind and r.met is not None]
        close = sum(r.close for r in judged)
        text = f"Goals to be {name}: {sum(r.met is True for r in judged)} of {len(judged)} are met"
        texts.append(text + (f"; {close} are within noise." if close else "."))
    return texts


def _missed(missed: Sequence[Result]) -> list[str]:
    if not missed:
        return []
    lines = ["## Missed", ""]
    for why in dict.fromkeys(r.why for r in missed):
        lines += [f"- {r.what}, against {r.against}: {ratio(r)}, goal {goal(r)}" for r in missed if r.why == why]
        lines += ["", f"  Why: {why}.", ""]
    return lines


def _before(results: Sequence[Result]) -> list[str]:
    """What the native kernels changed."""
    known = [(r, BEFORE[r.what, r.against]) for r in results if (r.what, r.against) in BEFORE]
    if not known:
        return []
    lines = [
        "## Before and with native kernels",
        "",
        "Our time over the other's. *Before* is of 2026-11-16, on this machine, when every pass was NumPy's.",
        "",
        "| what | against | before | now |",
        "|---|---|---|---|",
    ]
    for r, before in known:
        now = r.ratio if r.kind == "of" else 1 / r.ratio
        lines.append(f"| {r.what} | {r.against} | {_number(before)}x | {_number(now)}x |")
    return [*lines, ""]


def _section(name: str, results: Iterable[Result]) -> list[str]:
    rows = [r for r in results if r.section == name]
    lines = [
        f"## {name.capitalize()}",
        "",
        "| what | against | ours | theirs | ratio | quartiles | goal | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = (r.what, r.against, cost(r.ours, r), cost(r.theirs, r), ratio(r), spread(r), goal(r), _bold(verdict(r)))
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _bold(text: str) -> str:
    return text.replace("MISSED", "**missed**")


def _drift(drifts: Sequence[Drift]) -> list[str]:
    if not drifts:
        return []
    lines = ["## Drift", "", _DRIFT, "", "![Drift](figures/drift-bench.png)", ""]
    titles = {
        "churn": "deletions and insertions, rows leave and come back",
        "leaving": "deletions, rows leave for good",
    }
    for experiment, title in titles.items():
        mine = [d for d in drifts if d.experiment == experiment]
        steps = list(dict.fromkeys(d.steps for d in mine))
        lines += [f"| {title} | {' | '.join(f'{s:,}' for s in steps)} |", "|---" * (len(steps) + 1) + "|"]
        for method in dict.fromkeys(d.method for d in mine):
            errors = [f"{d.error:.1e}" if d.error else "0" for d in mine if d.method == method]
            lines.append(f"| {method} | {' | '.join(errors)} |")
        lines.append("")
    return lines


def _points(points: Sequence[Point]) -> list[str]:
    lines = [
        "## Error beside cost",
        "",
        _ERRORS.format(splits=SPLITS),
        "",
        "| data | method | shape | forget 1 row | test error |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {p.data} | {p.method} | {p.shape} | {p.seconds * 1e3:,.2f} ms | {p.error:.5f} ± {p.spread:.5f} |"
        for p in points
    ]
    return [*lines, ""]


def machine() -> str:
    """Name the machine and the libraries that matter, for people."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    libraries += f", native kernels {kernel_status()}"
    blas = {f"OpenBLAS {info['version']}" for info in threadpool_info() if info.get("internal_api") == "openblas"}
    parts = [platform.system(), platform.machine(), _processor(), f"{os.cpu_count()} cores"]
    return ", ".join([*filter(None, parts), f"Python {platform.python_version()}", libraries, *sorted(blas)])


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [text.partition(":")[2].strip() for text in lines if text.startswith("model name")]
    return names[0] if names else platform.processor()
