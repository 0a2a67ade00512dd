"""Run the benchmark: ``python -m benchmarks [SECTION ...] [--quick] [--docs FOLDER]``; with no section, all."""

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from scipy.linalg import LinAlgWarning
from threadpoolctl import threadpool_limits

from . import accuracy, figures, forgetting, predicting, report, training, vaults
from .measure import Result

SECTIONS: dict[str, list[Callable[..., Iterator[Result]]]] = {
    "forget": [forgetting.one_row],
    "codes": [forgetting.codes],
    "batch": [forgetting.batches],
    "features": [forgetting.features],
    "rows": [forgetting.rows],
    "streams": [forgetting.streams],
    "shapes": [forgetting.shapes],
    "insert": [forgetting.inserting],
    "sustained": [forgetting.sustained],
    "train": [training.against_shards, training.against_dsyrk, training.growth, training.threads],
    "memory": [training.memory],
    "predict": [predicting.measure_predictions],
    "start": [predicting.measure_commands],
    "vault": [vaults.durable, vaults.features, vaults.sustained, vaults.large],
}


def main() -> None:
    """Print the table; after a run of everything, write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="what to measure; everything by default")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, smaller sizes; the page goes to build/bench"
    )
    parser.add_argument("--docs", type=Path, help="where benchmarks.md and its figures go; default: docs")
    given = parser.parse_args()
    docs: Path = given.docs or Path("build/bench" if given.quick else "docs")
    threads = int(os.environ.get("THREADS", "1"))
    print(f"expunge benchmark: medians over rounds, in turns; threads of BLAS and OpenMP: {threads}\n\n{report.HEAD}")
    warnings.filterwarnings("ignore", category=LinAlgWarning)  # of a column of ones that is large on purpose
    results = []
    with threadpool_limits(threads):
        for name in given.sections or SECTIONS:
            for measure in SECTIONS[name]:
                for result in measure(quick=given.quick):
                    print(report.line(result), flush=True)
                    results.append(result)
        if given.sections:
            return
        drifts, points = (
            list(accuracy.measure_drifts(quick=given.quick)),
            list(accuracy.measure_tradeoff(quick=given.quick)),
        )
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    figures.tradeoff(points, docs / "figures" / "tradeoff-bench.png")
    figures.drift(drifts, docs / "figures" / "drift-bench.png")
    page = report.page(results, points, drifts, threads, quick=given.quick)
    (docs / "benchmarks.md").write_text(page, encoding="utf-8")
    missed = sum(result.met is False for result in results)
    print(f"\n{sum(result.met is True for result in results)} goals met, {missed} missed; {docs / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
