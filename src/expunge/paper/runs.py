"""Runs: experiments distributed over processes; finished results survive an interruption and are not computed again.

The numbers of a run depend only on its experiment and its run number, not on the processes; only its times do.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed

from ..errors import InvalidFile, InvalidSetting, MissingData
from . import runners
from .experiments import EXPERIMENTS, Experiment, Influence, TradeOff

DEFAULT_FOLDER, QUICK_FOLDER = Path("paper-results"), Path("paper-results-quick")
QUICK_WARNING = "These are quick results, of one run on a part of the rows: a first look, not a verdict."
RESULTS_VERSION = 1  # raise it when a runner computes other numbers: finished runs are then computed again


@dataclass(frozen=True)
class RunScope:
    """How much to run: the mode, and the ``runs`` of each experiment (None: as described)."""

    mode: str = "default"  # "quick", "default" or "full"
    runs: int | None = None

    @property
    def folder(self) -> Path:
        """The default folder of the results."""
        return QUICK_FOLDER if self.mode == "quick" else DEFAULT_FOLDER

    def resolve_experiment(self, name: str) -> tuple[Experiment, float]:
        """Return the experiment as it will be run, and the share of its rows."""
        experiment = EXPERIMENTS[name]
        share = 1.0
        if self.mode == "quick":
            experiment = replace(experiment, runs=1)
            share = 0.1 if name == "large-scale" else 0.2 if "mlp" in name else 0.5
        return (replace(experiment, runs=self.runs) if self.runs else experiment), share

    def default_names(self) -> list[str]:
        """Return the names of the experiments that this mode runs by default."""
        return [
            name
            for name, experiment in EXPERIMENTS.items()
            if not (self.mode == "default" and isinstance(experiment, TradeOff) and experiment.full_only)
        ]


def check_experiment_names(names: list[str]) -> list[str]:
    """Return names of experiments; refuse unknown ones."""
    if unknown := sorted(set(names) - set(EXPERIMENTS)):
        raise InvalidSetting(f"unknown experiments: {', '.join(unknown)}; expunge paper list shows them")
    return names


@dataclass(frozen=True)
class ExperimentRun:
    """One run of one experiment, and the file of its results."""

    name: str
    number: int
    experiment: Experiment
    share: float
    path: Path

    @property
    def done(self) -> bool:
        """Whether its file exists and is not empty: a machine that crashed can leave an empty one."""
        return self.path.exists() and self.path.stat().st_size > 0

    def run_and_save(self) -> "ExperimentRun":
        """Run, write the table atomically, and delete the files of single points."""
        table = pd.DataFrame(self.run())
        table.insert(0, "run", self.number)
        table.insert(1, "share", self.share)
        _write_whole(self.path, table.to_csv(index=False))
        for kept in self.path.parent.glob(f"{self.path.stem}.*.json"):
            kept.unlink()
        return self

    def run(self) -> list[dict[str, object]]:
        """Return the rows of the run."""
        if isinstance(self.experiment, TradeOff):
            return runners.run_trade_off(self.experiment, self.number, share=self.share, cached=self.measure_once)
        if isinstance(self.experiment, Influence):
            return runners.run_influence(self.experiment, self.number, share=self.share)
        return runners.run_warm_start(self.experiment, self.number, share=self.share)

    def measure_once(self, k: int, measure: Callable[[], list[runners.ResultRow]]) -> list[runners.ResultRow]:
        """Return the rows of the k-th point, from its file if there is one: a single point can take minutes."""
        path = self.path.with_suffix(f".{k}.json")
        if not path.exists() or not path.stat().st_size:
            _write_whole(path, json.dumps(measure()))
        rows: list[runners.ResultRow] = json.loads(path.read_text(encoding="utf-8"))
        return rows


def plan_runs(names: list[str], scope: RunScope, out: Path) -> list[ExperimentRun]:
    """Return all runs of these experiments; a run's file is named after everything that its numbers depend on."""
    runs = []
    for name in dict.fromkeys(names):
        experiment, share = scope.resolve_experiment(name)
        description = repr((RESULTS_VERSION, replace(experiment, runs=0), share))
        digest = hashlib.sha256(description.encode()).hexdigest()[:12]
        path = out / "runs" / f"{name}-{digest}"
        runs += [
            ExperimentRun(name, k, experiment, share, path.with_name(f"{path.name}-{k}.csv"))
            for k in range(experiment.runs)
        ]
    return runs


def run_pending(runs: list[ExperimentRun], *, processes: int) -> Iterator[ExperimentRun]:
    """Execute the runs that are not done yet, in several processes, and yield each as it finishes."""
    for folder in {run.path.parent for run in runs}:
        folder.mkdir(parents=True, exist_ok=True)
    pending = [delayed(run.run_and_save)() for run in runs if not run.done]
    yield from Parallel(n_jobs=processes, return_as="generator_unordered")(pending)


def write_tables(runs: list[ExperimentRun], out: Path) -> dict[str, pd.DataFrame]:
    """Combine the runs of each experiment into one table; write it to NAME.csv and a summary to NAME-summary.csv."""
    tables = {}
    for name in dict.fromkeys(run.name for run in runs):
        parts = [_read_table(run.path) for run in runs if run.name == name and run.done]
        if parts:
            tables[name] = pd.concat(parts, ignore_index=True)
            tables[name].to_csv(out / f"{name}.csv", index=False)
            summarise(tables[name]).to_csv(out / f"{name}-summary.csv", index=False)
    return tables


def load_tables(out: Path, names: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Return the tables that exist, by experiment."""
    return {name: _read_table(out / f"{name}.csv") for name in names or EXPERIMENTS if (out / f"{name}.csv").exists()}


def find_results(out: Path | None = None) -> tuple[Path, dict[str, pd.DataFrame]]:
    """Return a folder and its tables; by default the usual one, or that of quick results if it has none."""
    for folder in (DEFAULT_FOLDER, QUICK_FOLDER) if out is None else (out,):
        if tables := load_tables(folder):
            return folder, tables
    folder, option = (DEFAULT_FOLDER, "") if out is None else (out, f" --out {out}")
    raise MissingData(f"no results in {folder}; make some with: expunge paper run{option}")


def is_quick(tables: dict[str, pd.DataFrame]) -> bool:
    """Return whether results were computed on a part of the rows."""
    return any("share" in table and table["share"].min() < 1 for table in tables.values())


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _read_table(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except ValueError as error:
        raise InvalidFile(f"{path} is not a table of results: delete it and run again") from error
    if table.empty or "run" not in table or not ({"test_mse", "error"} & set(table)):
        raise InvalidFile(f"{path} is not a table of results: delete it and run again")
    return table


SETTING_COLUMNS = ["features", "intercept", "rate", "shards", "alpha", "removed", "left", "start", "tolerance"]


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting: means and quartiles of errors, medians of counts and times."""
    keys = [key for key in SETTING_COLUMNS if key in table]
    groups = table.groupby(keys, sort=False)
    errors = [column for column in ("test_mse", "train_mse", "error", "old_error") if column in table]
    others = [c for c in table.columns if c not in (*keys, *errors, "run", "share")]
    parts = [groups[errors].mean()]
    parts += [groups[errors].quantile(q).add_suffix(f"_q{round(100 * q)}") for q in (0.25, 0.75)]
    if others:
        parts.append(groups[others].median())
    return pd.concat(parts, axis=1).reset_index()
