"""Choice: settings as a function of the rows in a vault, so that they forget as the rows do.

A plan looks at the rows of the people with the smallest ranks. A rank is a keyed hash of the id, stored with each row,
so a training and every later replan select people by the same function of the ids in the vault: a replan gives what
planning and training without the people who left would have given.

An erasure is *complete* when no setting in use was chosen with the person's help: at once for people whose rows the
plan did not look at, for all others with the next plan. A plan predicts costs by the power of two in the number of rows
that it counted: when an erasure leaves fewer of these rows, its people who had some of them wait for the next plan too.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...encoding.features import FeatureMap, IdentityMap
from ...encoding.placement import RowNumbers
from ...encoding.randomness import Words
from ...errors import InvalidSetting
from ...exact.arrays import Floats, Slots, cut, isin, unique
from ...learning.settings import Settings
from ...saving.format import PLAIN_MAPS
from ...tables import Schema, rank_ids, sample_positions
from ..disk.manifest import Planning, UInt64
from ..disk.rowfile import RowFile
from ..disk.snapshot import Snapshot
from .lookup import IdLookup

_MAX_SEED = 2**63
_DECLARABLE = ("shards", "rate", "features", "alpha", "outside", "clip", "random_state")


class ChosenSettings(Protocol):
    """The settings that a planner chose."""

    settings: Settings  # without the bounds and scales that a schema declares
    people: int  # the number of people whose rows it looked at
    largest_hash: int  # of these people
    error: float | None  # on validation rows, over the target's variance
    score: str  # the same in words, for the ledger
    note: str  # what was chosen, in words


class Planner(Protocol):
    """Chooses settings by looking at rows."""

    def sample_size(self, *, quick: bool) -> int:
        """Return the largest number of rows that a plan looks at."""

    def choose(
        self,
        X: Floats,
        y: Floats,
        ranks: Words,
        schema: Schema,
        *,
        rows: int,
        progress: Callable[[float], None],
        **options: Any,
    ) -> ChosenSettings:
        """Choose settings for ``rows`` rows, given those with the smallest ranks: (n, d) and (n, t)."""


def load_planner() -> Planner:
    """Return the planner, imported by name because its package is not below this one."""
    planner: Planner = import_module("expunge.planning.choice").SettingsPlanner()
    return planner


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen settings, and what the manifest records of the choice."""

    settings: Settings
    planning: Planning
    score: str
    note: str


@dataclass(frozen=True, eq=False)
class PlanningRows:
    """The rows that a plan looks at, and everything else that determines its choice."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    ranks: Words  # (n,)
    schema: Schema
    planning: Planning  # how to search
    drawn: int  # row numbers given out
    total: int  # rows to train on

    @classmethod
    def read(
        cls,
        rows: RowFile,
        schema: Schema,
        planning: Planning,
        *,
        erased: RowNumbers | None = None,
        drawn: int | None = None,
    ) -> "PlanningRows":
        """Read the rows from the disk.

        ``erased`` are the numbers of rows that are about to be erased. With ``drawn``, only rows with smaller numbers
        are used.
        """
        drawn = rows.layout.dealt.drawn if drawn is None else drawn
        numbers, total = sample_rows(rows, drawn, load_planner().sample_size(quick=planning.quick), erased)
        return cls(*rows.read_values(numbers), rows.read_ranks(numbers), schema, planning, drawn, total)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the choice; the total number of rows enters only to a power of two.

        It is as secret as the rows.
        """
        planning = self.planning
        search = planning.seed, planning.quick, planning.forget_ms, planning.max_features, planning.declared
        about = self.schema.to_json(), search, self.total.bit_length(), self.X.shape, self.y.shape
        digest = hashlib.sha256(json.dumps(about).encode())
        for part in (self.X, self.y, self.ranks):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def choose(self, progress: Callable[[str, int, int | None], None], row_count: int | None = None) -> Choice:
        """Choose settings; ``row_count`` repeats an earlier choice, whose costs were predicted for that many rows."""
        done = 0

        def report(share: float) -> None:
            nonlocal done
            if (percent := int(100 * share)) > done:
                progress("planning", percent - done, 100)
                done = percent

        planning = self.planning
        chosen = load_planner().choose(
            self.X,
            self.y,
            self.ranks,
            self.schema,
            rows=self.total if row_count is None else row_count,
            seed=planning.seed,
            quick=planning.quick,
            forget_ms=planning.forget_ms,
            max_features=planning.max_features,
            progress=report,
        )
        looked_at = replace(
            planning,
            largest_hash=UInt64(chosen.largest_hash),
            people=chosen.people,
            drawn=self.drawn,
            rows=self.total,
            error=chosen.error,
            gone=0,
            open=0,
        )
        settings = replace(chosen.settings, **parse_declared(planning.declared))
        return Choice(settings, looked_at, chosen.score, chosen.note)


def choose_settings(
    rows: RowFile,
    schema: Schema,
    planning: Planning,
    progress: Callable[[str, int, int | None], None],
    *,
    erased: RowNumbers | None = None,
    drawn: int | None = None,
    row_count: int | None = None,
) -> Choice:
    """Choose settings for the rows on the disk, as `PlanningRows` does; see `PlanningRows.read` for the parameters."""
    return PlanningRows.read(rows, schema, planning, erased=erased, drawn=drawn).choose(progress, row_count)


def sample_rows(rows: RowFile, drawn: int, max_rows: int, erased: RowNumbers | None = None) -> tuple[RowNumbers, int]:
    """Return the numbers of the rows that a plan looks at, ascending, and the total number of rows."""
    numbers, ranks = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    limit, total = np.uint64(2**64 - 1), 0
    for piece in cut(drawn, rows.width):
        block = np.arange(piece.start, piece.stop)
        entries = rows.read_entries(block)
        present = entries[:, -1] != 0  # the entry of an erased row is zero
        if erased is not None:
            present &= ~isin(block, erased)
        total += int(np.count_nonzero(present))
        present &= entries[:, -2] <= limit
        numbers, ranks = np.concatenate([numbers, block[present]]), np.concatenate([ranks, entries[present, -2]])
        if len(numbers) > 2 * max_rows:
            chosen = np.sort(sample_positions(ranks, max_rows))
            numbers, ranks = numbers[chosen], ranks[chosen]
            if len(chosen) == max_rows:
                limit = ranks.max()
    return numbers[np.sort(sample_positions(ranks, max_rows))], total


def rank_people(planning: Planning | None, ids: Sequence[bytes]) -> Words:
    """Return the rank of each row's person, 0 if no plan chooses the settings: (n,)."""
    return np.zeros(len(ids), dtype=np.uint64) if planning is None else rank_ids(ids, planning.seed)


def find_open(snapshot: Snapshot, slots: Slots, *, erased: bool) -> NDArray[np.bool_]:
    """Return which of the rows in these slots, erased or corrected now, had a part in choosing the settings: (n,).

    These are the rows of people whom the plan looked at, and all rows that it counted if so many of them are erased by
    now that their number has a smaller power of two, by which costs are predicted.
    """
    planning = snapshot.manifest.planning
    if planning is None or not planning.people:
        return np.zeros(len(slots), dtype=np.bool_)
    numbers = snapshot.rows.layout.dealt.rows(slots)
    counted = numbers < planning.drawn
    left = planning.rows - planning.gone - int(np.count_nonzero(counted)) * erased
    if erased and left.bit_length() < planning.rows.bit_length():
        return counted
    counted[counted] = snapshot.rows.read_ranks(numbers[counted]) <= np.uint64(planning.largest_hash)
    return counted


def put_open_first(
    snapshot: Snapshot, lookup: IdLookup, owners: NDArray[np.intp], *, erased: bool
) -> tuple[NDArray[np.intp], int]:
    """Move the people who had a part in choosing the settings to the front; return everybody, and the number moved."""
    live = lookup.entries.live
    waits = isin(owners, unique(live.owner[find_open(snapshot, live.slot, erased=erased)]))
    return np.concatenate([owners[waits], owners[~waits]]), int(np.count_nonzero(waits))


def check_planning(planning: Planning) -> Planning:
    """Return the options of a plan, or refuse invalid ones."""
    if type(planning.seed) is not int or not 0 <= planning.seed < _MAX_SEED:
        raise InvalidSetting(f"seed must be a whole number from 0 to 2**63 - 1, got {planning.seed!r}")
    parse_declared(planning.declared)
    return planning


def format_declared(**settings: Any) -> str:
    """Return settings that the caller declares and a plan does not choose, as text for `Planning.declared`."""
    values = dict(settings)
    if "features" in values:
        values["features"] = _describe_features(values["features"] or IdentityMap())
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def parse_declared(text: str) -> dict[str, Any]:
    """Return the settings in a text of `format_declared`."""
    values: dict[str, Any] = json.loads(text)
    if not set(values).issubset(_DECLARABLE):
        raise InvalidSetting(f"a plan can leave only these settings to its caller: {', '.join(_DECLARABLE)}")
    if "features" in values:
        values["features"] = PLAIN_MAPS[values["features"]["name"]](**values["features"]["params"])
    return values


def _describe_features(features: FeatureMap) -> dict[str, Any]:
    if features.is_custom or features.array_params() or getattr(features, "random_state", None) is not None:
        raise InvalidSetting(f"with a plan, features must have plain parameters and no random_state, got {features!r}")
    described = features.describe()
    return {"name": described["name"], "params": described["params"]}
