"""The main job on real data, as a user would type it: a vault from a file, an erasure, its certificate, the proof.

Run with ``make demo``; what it makes is in ``build/demo``.
"""

import csv
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from expunge.paper.data import read_dataset

HERE = Path("build/demo")
COLUMNS = ["lread", "lwrite", "scall", "sread", "swrite", "fork", "exec"]
COLUMNS += ["rchar", "wchar", "runqsz", "freemem", "freeswap"]
# What an operator would declare: round numbers that the counters of such a machine cannot exceed, not values of rows.
HIGHEST = [2e3, 1e3, 15e3, 6e3, 6e3, 25, 60, 3e6, 2e6, 3e3, 15e3, 2.5e6]


def main() -> None:
    """Make the files, then run the commands."""
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    write_files()
    print(f"Computer Activity (8,192 rows, 12 inputs, target usr) is now in {HERE}: customers.csv to learn from,")
    print("new.csv to predict, schema.toml that says what each column is. The rows are of customers 4711, 4712, ...\n")
    expunge("train customers.csv --schema schema.toml --vault usr.vault --seed 0")
    expunge("evaluate new.csv --vault usr.vault")
    expunge("predict new.csv --vault usr.vault --out predictions.csv")
    expunge("unlearn --vault usr.vault --id 4711 --id 4712 --reference DSR-17")
    expunge("receipts --vault usr.vault --id 4711 --receipts for-4711")
    (receipt,) = (HERE / "for-4711").iterdir()
    expunge(f"certificate check --receipt {receipt.relative_to(HERE)} --id 4711 --public-key usr.pub")
    expunge("verify --vault usr.vault")
    expunge("replan --vault usr.vault")
    expunge("predict new.csv --vault usr.vault --out predictions.csv")
    expunge("add customers.csv --vault usr.vault", fails=True)
    expunge("log --vault usr.vault")


def write_files() -> None:
    """Two tables and a schema."""
    X, y = read_dataset("computer-activity")
    order = np.random.default_rng(0).permutation(len(X))
    table = np.column_stack([X, y])[order]
    for name, rows in (("customers.csv", range(7500)), ("new.csv", range(7500, len(table)))):
        with (HERE / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["customer", *COLUMNS, "usr"])
            writer.writerows([4711 + k, *table[k].tolist()] for k in rows)
    bounds = [*zip(COLUMNS, HIGHEST, strict=True), ("usr", 100.0)]
    lines = ['id = "customer"', 'target = "usr"']
    for column, high in bounds:
        lines += ["", f"[columns.{column}]", 'kind = "number"', "low = 0", f"high = {high:.0f}"]
    (HERE / "schema.toml").write_text("\n".join(lines) + "\n")


def expunge(command: str, *, fails: bool = False) -> None:
    """Show a command, run it, show what it says."""
    print(f"$ expunge {command}", flush=True)
    words = [str(Path(sys.executable).with_name("expunge").absolute()), *shlex.split(command)]
    done = subprocess.run(words, cwd=HERE)  # noqa: S603 - our own command
    if (done.returncode != 0) != fails:
        raise SystemExit(f"expunge {command} ended with exit code {done.returncode}")
    print(f"(exit code {done.returncode})\n" if fails else "", flush=True)


if __name__ == "__main__":
    main()
