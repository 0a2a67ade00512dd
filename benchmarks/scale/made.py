"""Tables of made-up rows, as Parquet files of about a million rows each; made once, and kept."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_AT_ONCE = 2**20  # rows of a file
_GROUP = 2**18  # rows of a row group


@dataclass(frozen=True)
class Made:
    """A table of so many rows, each of somebody else, and of so many inputs in [0, 1]."""

    rows: int
    inputs: int
    folder: Path

    def written(self) -> Path:
        """Write the files, unless they are there; where they are."""
        path = self.folder / f"{self.rows}x{self.inputs}"
        for k, first in enumerate(range(0, self.rows, _AT_ONCE)):
            file = path / f"part-{k:05}.parquet"
            if not file.exists():
                path.mkdir(parents=True, exist_ok=True)
                self._write(file, k, range(first, min(first + _AT_ONCE, self.rows)))
        return path

    def _write(self, file: Path, part: int, rows: range) -> None:
        rng = np.random.default_rng([self.inputs, part])
        X = rng.random((len(rows), self.inputs))
        columns = {f"x{j}": X[:, j] for j in range(self.inputs)}
        table = pa.table({"who": np.arange(rows.start, rows.stop), **columns, "y": self.target(X, rng)})
        draft = file.with_suffix(".new")
        pq.write_table(table, draft, row_group_size=_GROUP, compression="none", use_dictionary=False)
        draft.rename(file)

    def target(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A smooth function of the inputs, with noise, in [-1, 1]."""
        weights = np.random.default_rng(self.inputs).normal(size=(self.inputs, 3)) / np.sqrt(self.inputs)
        noisy: np.ndarray = np.tanh(2 * np.sin(3 * X @ weights).mean(axis=1) + rng.normal(0, 0.05, len(X)))
        return noisy
