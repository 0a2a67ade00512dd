"""Evaluating: a vault's predictions on a table that has the targets, beside simple ones from the same rows.

The simple ones are what a vault must beat to be worth having: the mean of the target, and a linear model of the inputs,
both of the vault's own rows. They are made for the occasion and kept nowhere.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
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
from .evaluation.evaluation import LINEAR, MEAN, VAULT, Evaluation, evaluate_predictions
from .reader import Reader
from .requests.intake import ProgressCallback
from .results import describe_outside_rows
from .writer import Writer

_LINEAR_ALPHA = 1e-3  # so that inputs which say the same do no harm


def evaluate_table(
    reader: Reader,
    lock_for_reading: Callable[[], AbstractContextManager[Writer]],
    data: Any,
    progress: ProgressCallback,
    *,
    resamples: int,
    seed: int,
) -> Evaluation:
    """Evaluate a vault by one model, which is fresh when the answer is given; ``looking`` reads the vault's rows."""
    data = tables.load_stream(data)
    while True:
        model = reader.get_model()
        with lock_for_reading() as writer:
            if writer.snapshot.manifest != model.manifest:
                continue
            simple = Baselines.learn(writer.snapshot, progress)
        seen = EvaluatedTable()
        seen.predict_table(model, simple, data)
        with lock_for_reading() as writer:
            known = _count_known_people(writer, list(seen.people)) if writer.snapshot.manifest == model.manifest else 0
        if reader.get_model() is model:
            return seen.summarise(model, known, resamples=resamples, seed=seed)


@dataclass(frozen=True, eq=False)
class Baselines:
    """Simple predictions, from a vault's rows."""

    mean: Floats  # (t,)
    linear: Ensemble

    @classmethod
    def learn(cls, snapshot: Snapshot, progress: ProgressCallback) -> "Baselines":
        """Learn them from the rows of a vault: one learner on everything, each input once, on a linear scale."""
        d, rows = len(snapshot.schema.inputs), snapshot.manifest.rows
        blueprint = replace(
            snapshot.blueprint,
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
        return cls(total / max(rows, 1), linear)


@dataclass(eq=False)
class EvaluatedTable:
    """What was seen of a table: its targets, what is predicted, and whose the rows are."""

    y: list[Floats] = field(default_factory=list)  # (n, t) each
    predicted: dict[str, list[Floats]] = field(default_factory=lambda: {VAULT: [], LINEAR: [], MEAN: []})
    row_owners: list[int] = field(default_factory=list)
    people: dict[bytes, int] = field(default_factory=dict)
    outside: int = 0

    def predict_table(self, model: VaultModel, baselines: Baselines, data: Any) -> None:
        """Read and predict a table, which must have the targets."""
        schema, ensemble = model.schema, model.state.ensemble
        for block in tables.read_blocks(data, schema, targets=True, ids=tables.has_ids(data, schema), allow_extra=True):
            assert block.y is not None
            self.y.append(block.y)
            self.predicted[VAULT].append(ensemble.predict(block.X))
            self.predicted[LINEAR].append(baselines.linear.predict(block.X))
            self.predicted[MEAN].append(np.broadcast_to(baselines.mean, block.y.shape))
            self.outside += int(ensemble.encoder.inputs.outside_rows(block.X).sum())
            self.row_owners += [self.people.setdefault(one, len(self.people)) for one in block.ids or ()]

    def summarise(self, model: VaultModel, known: int, *, resamples: int, seed: int) -> Evaluation:
        """Return what it comes to."""
        y, people = np.concatenate(self.y), len(self.people) or None
        notes = describe_outside_rows(len(y), self.outside, model.state.blueprint.outside == "extrapolate")
        if known:
            notes += (
                f"the vault has rows of {known:,} of the {people:,} people: rows that it knows it predicts too well",
            )
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
        )


def _count_known_people(writer: Writer, ids: list[bytes]) -> int:
    """How many of these ids have rows in the vault."""
    return len(np.unique(writer.snapshot.people.find(hash_ids(writer.identity.key, ids)).live.owner))
