"""Evaluating: a vault's predictions on a table that has the targets, beside simple ones from the same rows.

The simple ones are what a vault must beat to be worth having: the mean of the target, and a linear model of the inputs,
both of the vault's own rows. They are made for the occasion and kept nowhere.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..encoding.codes import Code
from ..encoding.features import IdentityMap
from ..encoding.scales import Scales
from ..exact.arrays import Floats
from ..learning.ensemble import Ensemble
from ..learning.rules import RidgeRule
from ..learning.state import State
from . import tables
from .disk.people import hashed
from .disk.snapshot import Model, Snapshot
from .evaluation.evaluation import LINEAR, MEAN, VAULT, Evaluation, evaluation
from .reader import Reader
from .receipts import outside_notes
from .requests.intake import Progress
from .writer import Writer

_ALPHA = 1e-3  # so that inputs which say the same do no harm


def evaluate(
    reader: Reader,
    looking: Callable[[], AbstractContextManager[Writer]],
    data: Any,
    progress: Progress,
    *,
    resamples: int,
    seed: int,
) -> Evaluation:
    """Evaluate a vault by one model, which is fresh when the answer is given; ``looking`` reads the vault's rows."""
    data = tables.kept(data)
    while True:
        model = reader.current()
        with looking() as writer:
            if writer.now.manifest != model.manifest:
                continue
            simple = Simple.of(writer.now, progress)
        seen = Seen()
        seen.look(model, simple, data)
        with looking() as writer:
            known = _known(writer, list(seen.people)) if writer.now.manifest == model.manifest else 0
        if reader.current() is model:
            return seen.evaluation(model, known, resamples=resamples, seed=seed)


@dataclass(frozen=True, eq=False)
class Simple:
    """Simple predictions, from a vault's rows."""

    mean: Floats  # (t,)
    linear: Ensemble

    @classmethod
    def of(cls, vault: Snapshot, progress: Progress) -> "Simple":
        """Learn them from the rows of a vault: one learner on everything, each input once, on a linear scale."""
        d, rows = len(vault.schema.inputs), vault.manifest.rows
        blueprint = replace(
            vault.blueprint,
            code=Code.single(),
            features=IdentityMap().restore(d, {}),
            scales=Scales.of(None, d),
            target_scales=Scales.of_targets(None, len(vault.schema.targets)),
            intercept=True,
            rule=RidgeRule(_ALPHA),
            aggregate="mean",
        )
        with vault.rows.watched(lambda k: progress("learning a linear model", k, rows * (2 + blueprint.observed))):
            total = sum((y.sum(axis=0) for _, y in vault.rows.sweep()), start=np.zeros(len(vault.schema.targets)))
            linear = State.learn(blueprint, vault.rows, vault.state.drawn).ensemble
        return cls(total / max(rows, 1), linear)


@dataclass(eq=False)
class Seen:
    """What was seen of a table: its targets, what is predicted, and whose the rows are."""

    y: list[Floats] = field(default_factory=list)  # (n, t) each
    predicted: dict[str, list[Floats]] = field(default_factory=lambda: {VAULT: [], LINEAR: [], MEAN: []})
    whose: list[int] = field(default_factory=list)
    people: dict[bytes, int] = field(default_factory=dict)
    outside: int = 0

    def look(self, model: Model, simple: Simple, data: Any) -> None:
        """Read and predict a table, which must have the targets."""
        schema, ensemble = model.schema, model.state.ensemble
        for block in tables.read_blocks(data, schema, targets=True, ids=tables.has_ids(data, schema), more=True):
            assert block.y is not None
            self.y.append(block.y)
            self.predicted[VAULT].append(ensemble.predict(block.X))
            self.predicted[LINEAR].append(simple.linear.predict(block.X))
            self.predicted[MEAN].append(np.broadcast_to(simple.mean, block.y.shape))
            self.outside += int(ensemble.encoder.inputs.outside_rows(block.X).sum())
            self.whose += [self.people.setdefault(one, len(self.people)) for one in block.ids or ()]

    def evaluation(self, model: Model, known: int, *, resamples: int, seed: int) -> Evaluation:
        """Return what it comes to."""
        y, people = np.concatenate(self.y), len(self.people) or None
        notes = outside_notes(len(y), self.outside, model.state.blueprint.outside == "extrapolate")
        if known:
            notes += (
                f"the vault has rows of {known:,} of the {people:,} people: rows that it knows it predicts too well",
            )
        return evaluation(
            model.schema.targets,
            y,
            {name: np.concatenate(parts) for name, parts in self.predicted.items()},
            np.array(self.whose, dtype=np.intp) if people else np.arange(len(y)),
            resamples=resamples,
            seed=seed,
            people=people,
            known=known if people else None,
            outside=self.outside,
            notes=notes,
        )


def _known(writer: Writer, ids: list[bytes]) -> int:
    """How many of these ids have rows in the vault."""
    return len(np.unique(writer.now.people.find(hashed(writer.identity.key, ids)).live.owner))
