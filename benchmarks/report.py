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
    "Written by `make bench` on {date} ({machine}; threads of BLAS and OpenMP: {threads}). Both sides of a ratio "
    "were measured alternately in the same run; quartiles are over rounds. *Faster* and *slower* compare methods; "
    "*x the cost* compares with a limit of the machine or with floating-point methods that do not forget exactly. "
    "Milliseconds depend on this machine and are noisy; ratios are less so."
)

_METHODS = """\
All methods except expunge keep the features of all rows in memory and compute none when they forget. *The paper's
protocol* subtracts rows from their coded rows in floats and refits the affected learners with scikit-learn's Ridge,
once per request; *the same, bare BLAS* omits scikit-learn's overhead, which is most of the time at D = 25. *SISA*
refits uncoded shards, *full retrain* refits one Ridge on all rows. The *float downdate* subtracts the row's
products from float moments and solves by Cholesky, *Sherman-Morrison* updates the inverse: both drift. *Boosted
trees* (HistGradientBoostingRegressor with its defaults) are retrained: they have the smallest error and take the
longest."""

_DRIFT = """\
Relative error of the weights, compared with retraining the same method on the remaining rows. All methods delete
the same rows in the same order, with one learner; expunge deletes them in batches of up to 1,000, which does not
change the result (the invariant). The error of Sherman-Morrison at 0 is the rounding of its inverse. *Float
retrain, reordered* retrains in floats with the same rows in another order: it shows the rounding noise between two
models that never saw the deleted rows."""

_ERRORS = (
    "Test error is the mean over {splits} splits, with its standard deviation; times are from the first split, all "
    "methods measured alternately."
)


def line(result: Result) -> str:
    """Return a result's line for the terminal."""
    ours, theirs = cost(result.ours, result), cost(result.theirs, result)
    text = f"{result.what:72} {result.against:32} {ours:>11} {theirs:>11} {ratio(result):>16} {spread(result):>16}"
    return f"{text} {goal(result):>9}  {verdict(result)}".rstrip()


def cost(value: float, result: Result) -> str:
    """Format seconds or bytes."""
    return f"{value / 1e6:,.0f} MB" if result.unit == "B" else f"{value * 1e3:,.2f} ms"


def ratio(result: Result) -> str:
    """Format the ratio."""
    if result.kind == "of":
        return f"{_number(result.ratio)}x the cost"
    return f"{_number(result.ratio)}x faster" if result.ratio >= 1 else f"{_number(1 / result.ratio)}x slower"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def spread(result: Result) -> str:
    """Format the quartiles of the ratio over rounds."""
    if result.spread is None:
        return "once"
    low, high = result.spread
    if result.kind == "faster" and result.ratio < 1:  # invert, as `ratio` does: "x slower"
        low, high = 1 / high, 1 / low
    return f"{_number(low)} to {_number(high)}"


def goal(result: Result) -> str:
    """Format the goal."""
    if result.goal is None:
        return ""
    return f"> {result.goal:g}x" if result.kind == "faster" else f"< {result.goal:.3g}x"


def verdict(result: Result) -> str:
    """Say whether the goal was met, and whether that is within noise."""
    if result.met is None:
        return ""
    return ("met" if result.met else "MISSED") + (", within noise" if result.close else "")


def page(
    results: Sequence[Result], points: Sequence[Point], drifts: Sequence[Drift], threads: int, *, quick: bool = False
) -> str:
    """Return the page for the docs."""
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
    """Count met goals, separately for goals against refits and goals against limits."""
    texts = []
    for kind, name in (
        ("faster", "be faster than a method that refits"),
        ("of", "stay within a multiple of a limit or of floats"),
    ):
        judged = [r for r in results if r.kind == kind and r.met is not None]
        close = sum(r.close for r in judged)
        text = f"Goals to {name}: {sum(r.met is True for r in judged)} of {len(judged)} are met"
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
    """Compare ratios before and with the native kernels."""
    known = [(r, BEFORE[r.what, r.against]) for r in results if (r.what, r.against) in BEFORE]
    if not known:
        return []
    lines = [
        "## Before and with native kernels",
        "",
        "Our time divided by the other time. *Before* was measured on 2026-11-16 on this machine, with NumPy only.",
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
        "## Error and cost",
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
    """Describe the machine and the libraries that affect speed."""
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
