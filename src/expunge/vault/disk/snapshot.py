"""A vault in memory, loaded from the files that a manifest names: its model, its rows, and their owners."""

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
from .people import NOBODY, People, SegmentFile, count_distinct_ids
from .rowfile import RowFile, RowLayout, read_bits, row_checksums, sum_slots


def find_row_damage(rows: RowFile, numbers: range) -> str | None:
    """Return what is wrong with the rows of these numbers: a bad checksum, or bytes left of an erased row."""
    for piece in cut(len(numbers), rows.width):
        block = np.arange(numbers.start + piece.start, numbers.start + piece.stop)
        entries, live = rows.read_entries(block), rows.live[rows.layout.dealt.slots(block)]
        intact = row_checksums(block, entries[:, :-1], rows.layout.seal) == entries[:, -1]
        if not intact[live].all():
            return f"{rows.locate_rows(block[live & ~intact])} is damaged: rows fail their checksum"
        if entries[~live].any():
            return "there are bytes left where a row was erased"
    return None


@dataclass(frozen=True)
class OwnershipCount:
    """Counts of the rows that have an owner, and of the people who own rows or were erased."""

    rows: int
    slots_sum: int  # sum of their slots: it shows a slot with two owners, or with none
    owners: int
    erased: int

    def merge(self, other: "OwnershipCount") -> "OwnershipCount":
        """Return the counts of two disjoint ranges of hashes together."""
        total = (self.slots_sum + other.slots_sum) % 2**64
        return OwnershipCount(self.rows + other.rows, total, self.owners + other.owners, self.erased + other.erased)


def count_owned_rows(people: People, part: int, parts: int, seal: bytes) -> OwnershipCount:
    """Count the entries in one of ``parts`` equal ranges of hashes."""
    hashes, slots = people.read_part(part, parts)
    live = slots >= 0
    owners, erased = count_distinct_ids(hashes[live]), count_distinct_ids(hashes[slots < NOBODY])
    return OwnershipCount(int(live.sum()), sum_slots(slots[live], seal), owners, erased)


def store_extent(extent: Extent) -> StoredExtent:
    """Return an extent as the manifest stores it."""
    bounds = extent.bounds
    low, high, at_low, at_high = (
        tuple(array.tolist()) for array in (bounds.low, bounds.high, extent.at_low, extent.at_high)
    )
    return StoredExtent(low, high, at_low, at_high, bounds.unit)


def load_extents(manifest: Manifest) -> Extents:
    """Return the current bounds, from a manifest."""
    return Extents(_load_extent(manifest.inputs), _load_extent(manifest.targets))


def _load_extent(side: StoredExtent) -> Extent:
    bounds = Bounds(np.array(side.low, dtype=np.float64), np.array(side.high, dtype=np.float64), side.unit)
    return Extent(bounds, np.array(side.at_low, dtype=np.int64), np.array(side.at_high, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class VaultModel:
    """Everything needed to predict. Its state has no moments, and rows only in a `Snapshot`."""

    manifest: Manifest
    schema: Schema
    state: ModelState


@dataclass(frozen=True, eq=False)
class Snapshot(VaultModel):
    """Everything that a vault holds as of one manifest. Moments are read when a change needs them (`with_moments`)."""

    folder: Folder
    people: People

    @property
    def rows(self) -> RowFile:
        """The rows."""
        return get_row_file(self.state)

    def check_sizes(self) -> None:
        """Refuse files that were cut after they were mapped."""
        segments = {segment.file.name: segment.size for segment in self.people.segments}
        self.folder.dir.check_sizes(self.rows.file_sizes | segments)

    def with_moments(self, state: ModelState, learners: Iterable[int]) -> ModelState:
        """Return a state with the moments of these learners, read and checked."""
        ensemble = state.ensemble
        states = ensemble.states.copy()
        for j in learners:
            if states[j] is None:
                states[j] = load_moments(self.folder, self.manifest.learners[j], ensemble.encoder)
        return replace(state, ensemble=replace(ensemble, states=states))


def get_row_file(state: ModelState) -> RowFile:
    """Return the row file of a vault's state."""
    rows = state.ensemble.store
    assert isinstance(rows, RowFile)
    return rows


def load_snapshot(folder: Folder, manifest: Manifest, cached: VaultModel | None) -> Snapshot:
    """Load everything that a vault holds; what never changes is taken from a cached model."""
    model = load_model(folder, manifest, cached)
    try:
        rows = RowFile.open(make_row_layout(folder, manifest, model.state.blueprint))
        people = load_people(folder, manifest.people, manifest.seal)
    except FileNotFoundError as error:
        raise InvalidFile(f"{error.filename} is missing: the folder is incomplete") from None
    state = replace(model.state, ensemble=replace(model.state.ensemble, store=rows))
    return Snapshot(manifest, model.schema, state, folder, people)


def make_row_layout(folder: Folder, manifest: Manifest, blueprint: Blueprint) -> RowLayout:
    """Return the layout of the row files that a manifest names."""
    dealt = Placement(blueprint.key, blueprint.code.shards, manifest.batches, manifest.drawn)
    sizes = len(manifest.inputs.low), len(manifest.targets.low)
    return RowLayout(folder.dir, manifest.segments, manifest.live_file, dealt, *sizes, manifest.seal)


def compute_digest(folder: Folder, model: VaultModel) -> str:
    """Return the digest of a model that was loaded without rows, from the file of bits."""
    ensemble, manifest = model.state.ensemble, model.manifest
    live = read_bits(folder.dir / manifest.live_file, slots_needed(manifest.drawn, model.state.blueprint.code.shards))
    rows = Rows(np.empty((0, len(model.schema.inputs))), np.empty((0, len(model.schema.targets))), live)
    return replace(ensemble, store=rows).digest()


def load_people(folder: Folder, segments: Sequence[PeopleSegment], seal: bytes) -> People:
    """Open the segments of people that a manifest names."""
    return People([SegmentFile(folder.dir / it.name, it.count, seal, it.part, it.parts) for it in segments])


def load_model(folder: Folder, manifest: Manifest, cached: VaultModel | None = None) -> VaultModel:
    """Load the model of a manifest; what never changes is taken from a cached model."""
    if cached is not None and cached.manifest.charter == manifest.charter:
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
    actual = len(manifest.learners), len(blueprint.inputs.low), len(manifest.inputs.low), encoder.n_targets
    if actual != (r, d, d, t):
        raise InvalidFile(f"{folder.path / manifest.name} does not fit its schema or blueprint")
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
    """Read a learner's weights, the first part of its file, and verify them."""
    data = folder.read(ImmutableFile(learner.name, learner.weights), stop=array_file_size("<f8", *shape))
    weights: Floats = load_array(folder, learner.name, data, "<f8", *shape)
    return weights


def load_moments(folder: Folder, learner: LearnerFile, encoder: Encoder) -> Moments:
    """Read a learner's moments, the second part of its file, and verify them."""
    width, weights = encoder.width, array_file_size("<f8", encoder.n_weights, encoder.n_targets)
    data = folder.read_unchecked(learner.name, start=weights)
    limbs = load_array(folder, learner.name, data, "<i8", 3, width * (width + 1) // 2)
    moments = Moments(limbs, learner.rows, learner.coded_rows)
    if moments.digest().hex() != learner.sum:
        raise InvalidFile(f"{folder.path / learner.name} is damaged: it fails its checksum")
    return moments


def load_array(folder: Folder, name: str, data: bytes, dtype: str, *shape: int) -> NDArray[Any]:
    """Return the array in these bytes, which must have this type and shape. Nothing is unpickled or copied."""
    try:
        return parse_array(data, dtype, *shape)
    except ValueError as error:
        raise InvalidFile(f"{folder.path / name} {error}") from error
