"""Evaluation of a vault's predictions on a table with targets, compared with baselines from the same rows.

The baselines are the mean of the target, a linear model of the inputs, and scikit-learn's boosted trees, all learned
from the vault's own rows (the trees from some of them, if there are many). A vault that does not beat the first two is
not worth having. They are learned for each evaluation and not stored.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from .. import tables
from ..encoding.codes import Code
from ..encoding.features import IdentityMap
from ..encoding.scales import Scales
from ..exact.arrays import Floats
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule
from ..learning.state import ModelState
from .disk.people import hash_ids
from .disk.snapshot import Snapshot, VaultModel
from .evaluation.evaluation import LINEAR, MEAN, TREES, VAULT, Evaluation, evaluate_predictions
from .reader import Reader
from .requests.intake import ProgressCallback
from .results import describe_outside_rows
from .writer import Writer

_LINEAR_ALPHA = 1e-3  # so that collinear inputs do no harm
_TREE_ROWS = 100_000  # at most so many rows of the vault are held in memory, to train the trees


def evaluate_table(
    reader: Reader,
    lock_for_reading: Callable[[], AbstractContextManager[Writer]],
    data: Any,
    progress: ProgressCallback,
    *,
    resamples: int,
    seed: int,
) -> Evaluation:
    """Evaluate one model of a vault, which is the newest when the result is returned."""
    data = tables.load_stream(data)
    while True:
        model = reader.get_model()
        with lock_for_reading() as writer:
            if writer.snapshot.manifest != model.manifest:
                continue
            baselines = Baselines.learn(writer.snapshot, progress)
        table = EvaluatedTable()
        table.predict_table(model, baselines, data)
        with lock_for_reading() as writer:
            hashes = hash_ids(writer.identity.key, list(table.people))
            known = len(np.unique(writer.snapshot.people.find(hashes).live.owner))
        if reader.get_model() is model:
            return table.summarise(model, known, resamples=resamples, seed=seed)


@dataclass(frozen=True, eq=False)
class Baselines:
    """Baseline predictions, from a vault's rows."""

    mean: Floats  # (t,)
    linear: Ensemble
    trees: list[Any]  # a regressor per target; none if scikit-learn refuses the rows

    @classmethod
    def learn(cls, snapshot: Snapshot, progress: ProgressCallback) -> "Baselines":
        """Learn the baselines from the rows of a vault: one learner, each input once, on a linear scale."""
        d, rows = len(snapshot.schema.inputs), snapshot.manifest.rows
        blueprint = replace(
            snapshot.state.blueprint,
            code=Code.single(),
            features=IdentityMap().restore(d, {}),
            scales=Scales.parse(None, d),
            target_scales=Scales.parse_targets(None, len(snapshot.schema.targets)),
            intercept=True,
            rule=RidgeRule(_LINEAR_ALPHA),
            aggregate="mean",
        )
        with snapshot.rows.report_reads(
            lambda k: progress("learning a linear model", k, rows * (2 + blueprint.observed))
        ):
            total = sum((y.sum(axis=0) for _, y in snapshot.rows.sweep()), start=np.zeros(len(snapshot.schema.targets)))
            linear = ModelState.learn(blueprint, snapshot.rows, snapshot.state.drawn).ensemble
        return cls(total / max(rows, 1), linear, _grow_trees(snapshot, rows))

    def predict_trees(self, X: Floats) -> Floats:
        """Predict by the trees: (n, d) -> (n, t)."""
        return np.column_stack([tree.predict(X) for tree in self.trees])


def _grow_trees(snapshot: Snapshot, rows: int) -> list[Any]:
    """Learn boosted trees for each target from up to `_TREE_ROWS` rows, evenly spaced; none without rows."""
    if not rows:
        return []
    step, first, parts = -(-rows // _TREE_ROWS), 0, list[tuple[Floats, Floats]]()
    for X, y in snapshot.rows.sweep():
        chosen = slice(-first % step, None, step)
        parts.append((X[chosen].copy(), y[chosen].copy()))
        first += len(X)
    X, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    # By name: a vault works without scikit-learn, which takes long to load.
    regressor = import_module("sklearn.ensemble").HistGradientBoostingRegressor
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return [regressor(random_state=0).fit(X, column) for column in y.T]
        except ValueError:  # values that are too large to be squared, say
            return []


@dataclass(eq=False)
class EvaluatedTable:
    """A table that was read: its targets, the predictions, and the owners of its rows."""

    y: list[Floats] = field(default_factory=list)  # (n, t) each
    predicted: dict[str, list[Floats]] = field(default_factory=dict)
    row_owners: list[int] = field(default_factory=list)
    people: dict[bytes, int] = field(default_factory=dict)
    outside: int = 0

    def predict_table(self, model: VaultModel, baselines: Baselines, data: Any) -> None:
        """Read a table, which must have the targets, and predict its rows."""
        schema, ensemble = model.schema, model.state.ensemble
        for block in tables.read_blocks(data, schema, targets=True, ids=tables.has_ids(data, schema), allow_extra=True):
            assert block.y is not None
            self.y.append(block.y)
            predictions = {VAULT: ensemble.predict(block.X), LINEAR: baselines.linear.predict(block.X)}
            predictions[MEAN] = np.broadcast_to(baselines.mean, block.y.shape)
            predictions |= {TREES: baselines.predict_trees(block.X)} if baselines.trees else {}
            for name, values in predictions.items():
                self.predicted.setdefault(name, []).append(values)
            self.outside += int(ensemble.encoder.inputs.outside_rows(block.X).sum())
            self.row_owners += [self.people.setdefault(person, len(self.people)) for person in block.ids or ()]

    def summarise(self, model: VaultModel, known: int, *, resamples: int, seed: int) -> Evaluation:
        """Return the evaluation."""
        y, people, encoder = np.concatenate(self.y), len(self.people) or None, model.state.ensemble.encoder
        notes = describe_outside_rows(len(y), self.outside, model.state.blueprint.outside == "extrapolate")
        if known:
            counts = f"{known:,} of the {people:,} people"
            notes += (f"the vault has learned rows of {counts}: for these people its errors are too small",)
        return evaluate_predictions(
            model.schema.targets,
            y,
            {name: np.concatenate(parts) for name, parts in self.predicted.items()},
            np.array(self.row_owners, dtype=np.intp) if people else np.arange(len(y)),
            resamples=resamples,
            seed=seed,
            people=people,
            known=known if people else None,
            outside=self.outside,
            notes=notes,
            is_linear=isinstance(encoder.features, IdentityMap) and encoder.plain and not encoder.features.is_custom,
        )
