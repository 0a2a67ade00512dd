"""A vault in memory, from the files that a manifest names: its model to predict with, its rows, and whose they are."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.bounds import Bounds, Extent, Extents
from ...encoding.encoder import Encoder
from ...encoding.placement import Placement, slots_needed
from ...errors import InvalidFile
from ...exact.arrays import Floats, cut
from ...exact.moments import Moments
from ...learning.blueprint import Blueprint
from ...learning.ensemble import Ensemble
from ...learning.state import ModelState
from ...saving.archive import Archive, array_file_size, parse_array
from ...saving.format import load_blueprint
from ...stores.store import Rows
from ...tables.schema import Schema
from .folder import Folder
from .manifest import ImmutableFile, LearnerFile, Manifest, PeopleSegment, StoredExtent
from .people import NOBODY, People
from .rowfile import RowFile, RowLayout, read_bits, row_checksums, sum_slots
from .segments import SegmentFile, count_distinct_ids

# MERGED checking: Checking: what an audit finds in a range of rows, or of owners. Ranges can be checked by anybody, in any order.


def find_row_damage(rows: RowFile, numbers: range) -> str | None:
    """What is wrong with rows of these numbers: one fails its checksum, or something is left where there is none."""
    for piece in cut(len(numbers), rows.width):
        some = np.arange(numbers.start + piece.start, numbers.start + piece.stop)
        entries, there = rows.read_entries(some), rows.live[rows.layout.dealt.slots(some)]
        fits = row_checksums(some, entries[:, :-1], rows.layout.seal) == entries[:, -1]
        if not fits[there].all():
            return f"{rows.locate_rows(some[there & ~fits])} is damaged: rows fail their checksum"
        if entries[~there].any():
            return "there are bytes left where a row was erased"
    return None


@dataclass(frozen=True)
class OwnershipCount:
    """Rows that have an owner, and how many people own rows or are erased."""

    rows: int
    slots_sum: int  # of their slots: two that have one slot, or one that has none, would show
    owners: int
    erased: int

    def merge(self, other: "OwnershipCount") -> "OwnershipCount":
        """The same of disjoint ranges of hashes."""
        total = (self.slots_sum + other.slots_sum) % 2**64
        return OwnershipCount(self.rows + other.rows, total, self.owners + other.owners, self.erased + other.erased)


def count_owned_rows(people: People, part: int, parts: int, seal: bytes) -> OwnershipCount:
    """Count the entries in one of so many equal ranges of hashes."""
    hashes, slots = people.read_part(part, parts)
    there = slots >= 0
    mine = slots[there]
    return OwnershipCount(
        len(mine), sum_slots(mine, seal), count_distinct_ids(hashes[there]), count_distinct_ids(hashes[slots < NOBODY])
    )


# MERGED sides: Sides: the bounds in force as a manifest writes them, and back.


def store_extent(extent: Extent) -> StoredExtent:
    """An extent, for the manifest."""
    bounds = extent.bounds
    low, high, at_low, at_high = (
        tuple(array.tolist()) for array in (bounds.low, bounds.high, extent.at_low, extent.at_high)
    )
    return StoredExtent(low, high, at_low, at_high, bounds.unit)


def load_extents(manifest: Manifest) -> Extents:
    """The bounds in force that a manifest tells of."""
    return Extents(_load_extent(manifest.inputs), _load_extent(manifest.targets))


def _load_extent(side: StoredExtent) -> Extent:
    bounds = Bounds(np.array(side.low, dtype=np.float64), np.array(side.high, dtype=np.float64), side.unit)
    return Extent(bounds, np.array(side.at_low, dtype=np.int64), np.array(side.at_high, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class VaultModel:
    """All that it takes to predict. Its state has no rows and no moments."""

    manifest: Manifest
    schema: Schema
    state: ModelState


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a vault holds as of one manifest. Moments are read when a change needs them, with `touching`."""

    folder: Folder
    model: VaultModel  # with the rows in its state
    people: People

    @property
    def manifest(self) -> Manifest:
        """The files that it consists of."""
        return self.model.manifest

    @property
    def schema(self) -> Schema:
        """The columns of its tables."""
        return self.model.schema

    @property
    def state(self) -> ModelState:
        """What the model has learned."""
        return self.model.state

    @property
    def blueprint(self) -> Blueprint:
        """What was fixed before any row was seen."""
        return self.state.blueprint

    @property
    def rows(self) -> RowFile:
        """The rows."""
        return get_row_file(self.state)

    def check_sizes(self) -> None:
        """Refuse files that somebody cut since they were mapped."""
        self.rows.check_sizes()
        for segment in self.people.segments:
            segment.check_size()

    def with_moments(self, state: ModelState, learners: Iterable[int]) -> ModelState:
        """A state with the moments read, and checked, of these learners."""
        ensemble = state.ensemble
        states = ensemble.states.copy()
        for j in learners:
            if states[j] is None:
                states[j] = load_moments(self.folder, self.manifest.learners[j], ensemble.encoder)
        return replace(state, ensemble=replace(ensemble, states=states))


def get_row_file(state: ModelState) -> RowFile:
    """The rows of a vault's state."""
    rows = state.ensemble.store
    assert isinstance(rows, RowFile)
    return rows


def load_snapshot(folder: Folder, manifest: Manifest, cached: VaultModel | None) -> Snapshot:
    """Read all that a vault holds; what never changes is taken from a model that is known."""
    model = load_model(folder, manifest, cached)
    try:
        rows = RowFile.open(make_row_layout(folder, manifest, model.state.blueprint))
        people = load_people(folder, manifest.people, manifest.seal)
    except FileNotFoundError as error:
        raise InvalidFile(f"{error.filename} is not there: the folder is incomplete") from None
    state = replace(model.state, ensemble=replace(model.state.ensemble, store=rows))
    return Snapshot(folder, replace(model, state=state), people)


def make_row_layout(folder: Folder, manifest: Manifest, blueprint: Blueprint) -> RowLayout:
    """Where the rows of a manifest are."""
    dealt = Placement(blueprint.key, blueprint.code.shards, manifest.batches, manifest.drawn)
    sizes = len(manifest.inputs.low), len(manifest.targets.low)
    return RowLayout(folder.path, manifest.segments, manifest.live_file, dealt, *sizes, manifest.seal)


def compute_digest(folder: Folder, model: VaultModel) -> str:
    """The digest of a model that has no rows, with the file of bits as it is."""
    ensemble, manifest = model.state.ensemble, model.manifest
    live = read_bits(folder.path / manifest.live_file, slots_needed(manifest.drawn, model.state.blueprint.code.shards))
    rows = Rows(np.empty((0, len(model.schema.inputs))), np.empty((0, len(model.schema.targets))), live)
    return replace(ensemble, store=rows).digest()


def load_people(folder: Folder, owners: Sequence[PeopleSegment], seal: bytes) -> People:
    """Read whose rows are where, as of a manifest's segments of people."""
    return People([SegmentFile(folder.path / one.name, one.count, seal, one.part, one.parts) for one in owners])


def load_model(folder: Folder, manifest: Manifest, cached: VaultModel | None = None) -> VaultModel:
    """Read the model of a manifest; what never changes is taken from one that is known."""
    if cached is not None and (cached.manifest.schema, cached.manifest.blueprint) == (
        manifest.schema,
        manifest.blueprint,
    ):
        schema, blueprint = cached.schema, cached.state.blueprint
    else:
        schema = Schema.from_json(folder.read(manifest.schema).decode())
        with Archive(io.BytesIO(folder.read(manifest.blueprint)), name=str(folder.path / manifest.blueprint.name)) as a:
            blueprint = load_blueprint(a)
    ensemble = _load_ensemble(folder, manifest, schema, blueprint)
    return VaultModel(
        manifest, schema, ModelState(blueprint, ensemble, load_extents(manifest), manifest.drawn, manifest.rows)
    )


def _load_ensemble(folder: Folder, manifest: Manifest, schema: Schema, blueprint: Blueprint) -> Ensemble:
    encoder = blueprint.encoder(load_extents(manifest))
    r, d, t = blueprint.code.learners, len(schema.inputs), len(schema.targets)
    if (len(manifest.learners), d, d, t) != (
        r,
        len(blueprint.inputs.low),
        len(manifest.inputs.low),
        encoder.n_targets,
    ):
        raise InvalidFile(f"{folder.path / manifest.name} does not fit its schema or its blueprint")
    weights = [load_weights(folder, learner, encoder.n_weights, t) for learner in manifest.learners]
    return Ensemble(
        encoder,
        Rows(np.empty((0, d)), np.empty((0, t)), np.empty(0, dtype=np.bool_)),
        blueprint.rule,
        blueprint.aggregate,
        states=[None] * r,
        models=[W if learner.rows else None for W, learner in zip(weights, manifest.learners, strict=True)],
        _fingerprints=[bytes.fromhex(learner.sum) for learner in manifest.learners],
    )


def load_weights(folder: Folder, learner: LearnerFile, *shape: int) -> Floats:
    """Read a learner's weights, the first part of its file, checked."""
    data = folder.read(ImmutableFile(learner.name, learner.weights), stop=array_file_size("<f8", *shape))
    weights: Floats = load_array(folder, learner.name, data, "<f8", *shape)
    return weights


def load_moments(folder: Folder, learner: LearnerFile, encoder: Encoder) -> Moments:
    """Read a learner's moments, the second part of its file, checked."""
    width, weights = encoder.width, array_file_size("<f8", encoder.n_weights, encoder.n_targets)
    data = folder.read_unchecked(learner.name, start=weights)
    limbs = load_array(folder, learner.name, data, "<i8", 3, width * (width + 1) // 2)
    moments = Moments(limbs, learner.rows, learner.coded_rows)
    if moments.digest().hex() != learner.sum:
        raise InvalidFile(f"{folder.path / learner.name} is damaged: it fails its checksum")
    return moments


def load_array(folder: Folder, name: str, data: bytes, dtype: str, *shape: int) -> NDArray[Any]:
    """The array in these bytes of a file, which must have this type and shape. Nothing is unpickled or copied."""
    try:
        return parse_array(data, dtype, *shape)
    except ValueError as error:
        raise InvalidFile(f"{folder.path / name} {error}") from error
