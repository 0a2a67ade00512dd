"""Runs: experiments spread over processes; what an interrupted run had finished is kept and not done again.

A run's numbers depend on its experiment and its number alone, not on the process that computes it or on how many there
are; only its seconds do.
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
from . import influence, tradeoff, warmstart
from .experiments import EXPERIMENTS, Experiment, Influence, TradeOff

FULL, QUICK = Path("paper-results"), Path("paper-results-quick")
NO_VERDICT = "These are quick results, of one run on a part of the rows: a first look, not a verdict."
FORMAT = 1  # raise it when a runner computes other numbers: finished runs are then done again


@dataclass(frozen=True)
class Scope:
    """How much to do: ``share`` of the rows, ``runs`` of each experiment (None: as described)."""

    mode: str = "default"  # "quick", "default" or "full"
    runs: int | None = None

    @property
    def folder(self) -> Path:
        """Where the results go unless another folder is named."""
        return QUICK if self.mode == "quick" else FULL

    def described(self, name: str) -> tuple[Experiment, float]:
        """The experiment as it is to be run, and the share of its rows."""
        experiment = EXPERIMENTS[name]
        share = 1.0
        if self.mode == "quick":
            experiment = replace(experiment, runs=1)
            share = 0.1 if name == "large-scale" else 0.2 if "mlp" in name else 0.5
        return (replace(experiment, runs=self.runs) if self.runs else experiment), share

    def names(self) -> list[str]:
        """The experiments that this mode runs unless others are named."""
        skipped = [
            n for n, e in EXPERIMENTS.items() if self.mode == "default" and isinstance(e, TradeOff) and e.full_only
        ]
        return [name for name in EXPERIMENTS if name not in skipped]


def known(names: list[str]) -> list[str]:
    """Return names of experiments; one that is none is refused."""
    if unknown := sorted(set(names) - set(EXPERIMENTS)):
        raise InvalidSetting(f"unknown experiments: {', '.join(unknown)}; expunge paper list shows them")
    return names


@dataclass(frozen=True)
class Job:
    """One run of one experiment, and the file that it leaves."""

    name: str
    number: int
    experiment: Experiment
    share: float
    path: Path

    @property
    def done(self) -> bool:
        """Whether its file is there; an empty one, of a machine that died, is not."""
        return self.path.exists() and self.path.stat().st_size > 0

    def work(self) -> "Job":
        """Run, and write the table in one step."""
        table = pd.DataFrame(self.run())
        table.insert(0, "run", self.number)
        table.insert(1, "share", self.share)
        _write(self.path, table.to_csv(index=False))
        for kept in self.path.parent.glob(f"{self.path.stem}.*.json"):
            kept.unlink()
        return self

    def run(self) -> list[dict[str, object]]:
        """One run of any experiment."""
        if isinstance(self.experiment, TradeOff):
            return tradeoff.run(self.experiment, self.number, share=self.share, measured=self.measured)
        if isinstance(self.experiment, Influence):
            return influence.run(self.experiment, self.number, share=self.share)
        return warmstart.run(self.experiment, self.number, share=self.share)

    def measured(self, k: int, measure: Callable[[], list[tradeoff.Row]]) -> list[tradeoff.Row]:
        """Return the rows of the k-th cell, which has a file of its own until the run is done: one can take minutes."""
        path = self.path.with_suffix(f".{k}.json")
        if not path.exists() or not path.stat().st_size:
            _write(path, json.dumps(measure()))
        rows: list[tradeoff.Row] = json.loads(path.read_text(encoding="utf-8"))
        return rows


def jobs(names: list[str], settings: Scope, out: Path) -> list[Job]:
    """All runs of these experiments; a job's file is named after everything that its numbers depend on."""
    found = []
    for name in dict.fromkeys(names):
        experiment, share = settings.described(name)
        described = repr((FORMAT, replace(experiment, runs=0), share))
        mark = hashlib.sha256(described.encode()).hexdigest()[:12]
        folder = out / "runs"
        found += [Job(name, k, experiment, share, folder / f"{name}-{mark}-{k}.csv") for k in range(experiment.runs)]
    return found


def execute(todo: list[Job], *, processes: int) -> Iterator[Job]:
    """Do the jobs that are not done yet, in as many processes, and yield each as it ends."""
    for folder in {job.path.parent for job in todo}:
        folder.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in todo if not job.done]
    yield from Parallel(n_jobs=processes, return_as="generator_unordered")(delayed(job.work)() for job in waiting)


def collect(todo: list[Job], out: Path) -> dict[str, pd.DataFrame]:
    """Put the runs of each experiment into one tidy table, written as NAME.csv, and its summary, NAME-summary.csv."""
    tables = {}
    for name in dict.fromkeys(job.name for job in todo):
        parts = [_read(job.path) for job in todo if job.name == name and job.done]
        if parts:
            tables[name] = pd.concat(parts, ignore_index=True)
            tables[name].to_csv(out / f"{name}.csv", index=False)
            summary(tables[name]).to_csv(out / f"{name}-summary.csv", index=False)
    return tables


def load(out: Path, names: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """The tables that are there."""
    return {name: _read(out / f"{name}.csv") for name in names or EXPERIMENTS if (out / f"{name}.csv").exists()}


def results(out: Path | None = None) -> tuple[Path, dict[str, pd.DataFrame]]:
    """Return a folder and its tables; unless one is named, that of quick results if there are no others."""
    for folder in (FULL, QUICK) if out is None else (out,):
        if tables := load(folder):
            return folder, tables
    folder, option = (FULL, "") if out is None else (out, f" --out {out}")
    raise MissingData(f"no results in {folder}; make some with: expunge paper run{option}")


def quick(tables: dict[str, pd.DataFrame]) -> bool:
    """Whether results were computed on a part of the rows."""
    return any("share" in table and table["share"].min() < 1 for table in tables.values())


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except ValueError as error:
        raise InvalidFile(f"{path} is not a table of results: delete it and run again") from error
    if table.empty or "run" not in table or not ({"test_mse", "error"} & set(table)):
        raise InvalidFile(f"{path} is not a table of results: delete it and run again")
    return table


KEYS = ["features", "intercept", "rate", "shards", "alpha", "removed", "left", "start", "tolerance"]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means of errors with their quartiles, medians of everything that is counted or timed, one line per setting."""
    keys = [key for key in KEYS if key in table]
    groups = table.groupby(keys, sort=False)
    errors = [column for column in ("test_mse", "train_mse", "error", "old_error") if column in table]
    others = [c for c in table.columns if c not in (*keys, *errors, "run", "share")]
    parts = [groups[errors].mean()]
    parts += [groups[errors].quantile(q).add_suffix(f"_q{round(100 * q)}") for q in (0.25, 0.75)]
    if others:
        parts.append(groups[others].median())
    return pd.concat(parts, axis=1).reset_index()
