"""The oracle: what a vault must hold after some requests, written down in plain dictionaries.

It keeps rows and ids only. Its model is trained from scratch on the rows that are left, in their slots, so that nothing
of how a vault or a model in memory carries a request out is taken for granted. It never changes: `after` makes another.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor
from expunge.encoding.placement import Placement, draw_slots, slots_needed
from expunge.learning.blueprint import Blueprint, draw_blueprint
from expunge.learning.ensemble import Ensemble
from expunge.learning.settings import Settings
from expunge.learning.state import ModelState
from expunge.stores.store import Rows
from expunge.tables import rank_ids
from expunge.vault import Planning
from expunge.vault.requests import REQUEST_TYPES

from support.planning import QuickPlanner
from support.vaults import table

Values = tuple[float, ...]  # of one row: inputs, then targets
PLANNED = Planning(quick=False, people=1, largest_hash=2**64 - 1)  # a model counts as planned on everybody's rows
Ends = tuple[float, float] | None  # declared bounds of a column; None observes it


def plain_slots_sum(slots: Iterable[int], seal: bytes) -> int:
    """The sum of slots that a manifest must have, with plain integers: SplitMix64 of each, keyed by the seal."""
    key, total = np.random.Philox(key=np.frombuffer(seal, dtype="<u8"), counter=[0, 0, 0, 1]), 0
    start = int(key.random_raw())
    for slot in set(slots):
        mixed = (slot * 0x9E3779B97F4A7C15 + start) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        total += mixed ^ mixed >> 31
    return total % 2**64


@dataclass(frozen=True)
class Request:
    """What is asked of a vault with two inputs and one target: a kind, ids, and values where it brings rows."""

    kind: str
    ids: tuple[int, ...] = ()  # one per row, where there are rows
    rows: tuple[Values, ...] = ()
    bounds: tuple[tuple[str, Ends], ...] = ()  # of columns, where they get others

    @classmethod
    def rebound(cls, **bounds: Ends) -> "Request":
        """Other bounds for the columns x0, x1 or y."""
        return cls("rebound", bounds=tuple(bounds.items()))

    @classmethod
    def drawn(cls, kind: str, seed: int, ids: Iterable[int], width: float = 1.0) -> "Request":
        """Rows with values from 0 to a width."""
        rng, ids = np.random.default_rng(seed), tuple(ids)
        X, y = rng.random((len(ids), 2)) * width, rng.random((len(ids), 1)) * width
        return cls(kind, ids, tuple(map(tuple, np.column_stack([X, y]).tolist())))

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and target."""
        values = np.array(self.rows).reshape(-1, 3)
        return values[:, :2], values[:, 2]

    @property
    def table(self) -> pa.Table:
        return table(self.ids, *self.columns)

    def ask(self, vault: Any, **options: Any) -> Any:
        """Ask an open vault for it."""
        if self.kind == "rebound":
            return vault.rebound(dict(self.bounds), **options)
        if self.kind == "replan":
            return vault.replan(**options)
        return getattr(vault, self.kind)(self.table if self.rows else list(self.ids), **options)


@dataclass(frozen=True, eq=False)
class Oracle:
    """What a vault must hold."""

    model: CodedRegressor  # its parameters; it is never fitted
    blueprint: Blueprint = field(repr=False)
    rows: dict[int, list[tuple[int, Values]]] = field(default_factory=dict)  # id -> slots and values as they arrived
    erased: dict[int, int] = field(default_factory=dict)  # id -> the request whose certificate says so
    kinds: tuple[str, ...] = ()  # of the requests that were carried out
    slots_drawn: int = 0
    batches: tuple[int, ...] = ()  # the number of the first row of each
    chosen: Settings | None = None  # by the last replan

    @classmethod
    def of(cls, model: CodedRegressor, inputs: int = 2, targets: int = 1) -> "Oracle":
        """Before the first training."""
        return cls(model, draw_blueprint(Settings.from_model(model), inputs, targets))

    @property
    def request(self) -> int:
        """The number of the newest request."""
        return len(self.kinds)

    @property
    def slots(self) -> set[int]:
        """The slots in use."""
        return {slot for mine in self.rows.values() for slot, _ in mine}

    @property
    def counts(self) -> Counter[int]:
        """How many rows an id has."""
        return Counter({one: len(mine) for one, mine in self.rows.items()})

    def values(self, *ids: int) -> list[Values]:
        """The rows of these ids, or of all."""
        return [values for one in ids or self.rows for _, values in self.rows[one]]

    @cached_property
    def ensemble(self) -> Ensemble:
        """A model that is trained on these rows and has seen no others."""
        placed = [row for mine in self.rows.values() for row in mine]
        slots = np.array([slot for slot, _ in placed], dtype=np.int64)
        width = len(self.blueprint.inputs.low)
        values = np.array([values for _, values in placed])
        values = values.reshape(-1, width + len(self.blueprint.targets.low))
        shards = self.blueprint.code.shards
        rows = Rows.place(values[:, :width], values[:, width:], slots, slots_needed(self.slots_drawn, shards))
        return ModelState.learn(self.blueprint, rows, self.slots_drawn).ensemble

    def digest(self) -> str:
        return self.ensemble.digest()

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predictions; a column if there is one target only."""
        predicted = self.ensemble.predict(X)
        return predicted[:, 0] if predicted.shape[1] == 1 else predicted

    # Requests

    def after(self, request: Request) -> "Oracle":
        """What a vault must hold once a request is carried out. (Some kinds change nothing.)"""
        if request.kind not in REQUEST_TYPES:
            return self
        rows = {one: list(mine) for one, mine in self.rows.items()}
        new = replace(self, rows=rows, erased=dict(self.erased), kinds=(*self.kinds, request.kind))
        if request.kind == "rebound":
            return new._rebound(dict(request.bounds))
        return getattr(new, f"_{request.kind}")(request.ids, request.rows)

    def inside(self, row: Values) -> Values:
        """A row with each value outside declared bounds moved to the bound."""
        sides = (self.blueprint.inputs, self.blueprint.targets)
        low, high = (np.concatenate([getattr(side, end) for side in sides]).tolist() for end in ("low", "high"))
        ends = zip(row, low, high, strict=True)
        return tuple(value if np.isnan(least) else min(max(value, least), most) for value, least, most in ends)

    def without(self, people: Iterable[int] = (), slots: Iterable[int] = ()) -> "Oracle":
        """The same without the rows of some people or in some slots, of which nothing is told."""
        people, slots = set(people), set(slots)
        left = {one: [row for row in mine if row[0] not in slots] for one, mine in self.rows.items()}
        return replace(self, rows={one: mine for one, mine in left.items() if mine and one not in people})

    def trained_with(self, model: CodedRegressor) -> "Oracle":
        """The same, but for what the next training is done with."""
        return replace(self, model=model)

    def _train(self, ids: tuple[int, ...], rows: tuple[Values, ...]) -> "Oracle":
        """Nothing goes on: bounds are those of the parameters again."""
        drawn = Oracle.of(self.model, *(len(side.low) for side in (self.blueprint.inputs, self.blueprint.targets)))
        return replace(self, blueprint=drawn.blueprint, rows={}, slots_drawn=0, batches=(), chosen=None)._add(ids, rows)

    def _rebound(self, bounds: dict[str, Ends]) -> "Oracle":
        """A model of the same seed that was given these bounds from the beginning."""
        inputs, targets = self.blueprint.inputs, self.blueprint.targets
        d, t = len(inputs.low), len(targets.low)
        given: dict[str, Any] = {}
        for setting, side, names in (
            ("bounds", inputs, [f"x{j}" for j in range(d)]),
            ("target_bounds", targets, ["y"] if t == 1 else [f"y{j}" for j in range(t)]),
        ):
            old = zip(names, side.low.tolist(), side.high.tolist(), strict=True)
            pairs = [bounds.get(name, (low, high)) or (np.nan, np.nan) for name, low, high in old]
            given[setting] = "unit" if side.unit else tuple(zip(*pairs, strict=True))
        return replace(
            self, blueprint=draw_blueprint(replace(self.chosen or Settings.from_model(self.model), **given), d, t)
        )

    def _add(self, ids: tuple[int, ...], rows: tuple[Values, ...]) -> "Oracle":
        """Rows of who was erased are left out: their slots stay empty."""
        slots = draw_slots(self.blueprint.key, self.slots_drawn, len(ids), self.blueprint.code.shards)
        for one, row, slot in zip(ids, rows, slots.tolist(), strict=True):
            if one not in self.erased:
                self.rows.setdefault(one, []).append((slot, row))
        batches = (*self.batches, self.slots_drawn)
        return replace(self, slots_drawn=self.slots_drawn + len(ids), batches=batches)

    def _replan(self, _: object, __: object) -> "Oracle":
        """The settings that `QuickPlanner` chooses for all rows in their order; rows keep numbers, not slots."""
        d, t = len(self.blueprint.inputs.low), len(self.blueprint.targets.low)
        placed = [(one, *row) for one, mine in self.rows.items() for row in mine]
        numbers = self._dealt(self.blueprint).rows(np.array([slot for _, slot, _ in placed], dtype=np.int64))
        order = np.argsort(numbers)
        values = np.array([placed[k][2] for k in order]).reshape(-1, d + t)
        ranks = rank_ids([str(placed[k][0]).encode() for k in order], 0)
        chosen = QuickPlanner().choose(
            values[:, :d], values[:, d:], ranks, None, seed=0, rows=len(placed), progress=lambda share: None
        )
        drawn = draw_blueprint(chosen.settings, d, t)
        blueprint = replace(drawn, inputs=self.blueprint.inputs, targets=self.blueprint.targets)
        slots = iter(self._dealt(blueprint).slots(numbers).tolist())
        rows = {one: [(next(slots), row) for _, row in mine] for one, mine in self.rows.items()}
        return replace(self, blueprint=blueprint, rows=rows, chosen=chosen.settings)

    def _dealt(self, blueprint: Blueprint) -> Placement:
        return Placement(blueprint.key, blueprint.code.shards, self.batches, self.slots_drawn)

    def _rectify(self, ids: tuple[int, ...], rows: tuple[Values, ...]) -> "Oracle":
        """The k-th row of an id takes the place of its k-th row."""
        slots = {one: [slot for slot, _ in self.rows[one]] for one in ids}
        self.rows.update({one: [] for one in slots})
        for one, row in zip(ids, rows, strict=True):
            self.rows[one].append((slots[one].pop(0), row))
        return self

    def _unlearn(self, ids: tuple[int, ...], _: object) -> "Oracle":
        """Whoever was erased before keeps the certificate of then."""
        there = {one for one in ids if one in self.rows}
        for one in there:
            del self.rows[one]
        self.erased.update(dict.fromkeys(there, self.request))
        return self

    def _readmit(self, ids: tuple[int, ...], _: object) -> "Oracle":
        for one in ids:
            del self.erased[one]
        return self
