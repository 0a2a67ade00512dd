"""A vault in memory, from the files that a manifest names: its model to predict with, its rows, and whose they are."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.encoder import Encoder
from ...encoding.placement import Dealt, room
from ...errors import InvalidFile
from ...exact.arrays import Floats
from ...exact.moments import Moments
from ...learning.blueprint import Blueprint
from ...learning.ensemble import Ensemble
from ...learning.state import State
from ...saving.archive import Archive
from ...saving.blueprints import load_blueprint
from ...saving.npy import array_bytes, array_from
from ...stores.rows import Rows
from ..tables.schema import Schema
from .folder import Folder
from .manifest import File, Learner, Manifest, Owners
from .people import People
from .rowfile import Layout, RowFile, read_bits
from .segments import Segment
from .sides import extents_of


@dataclass(frozen=True, eq=False)
class Model:
    """All that it takes to predict. Its state has no rows and no moments."""

    manifest: Manifest
    schema: Schema
    state: State


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a vault holds as of one manifest. Moments are read when a change needs them, with `touching`."""

    folder: Folder
    model: Model  # with the rows in its state
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
    def state(self) -> State:
        """What the model has learned."""
        return self.model.state

    @property
    def blueprint(self) -> Blueprint:
        """What was fixed before any row was seen."""
        return self.state.blueprint

    @property
    def rows(self) -> RowFile:
        """The rows."""
        return rows_of(self.state)

    def check_sizes(self) -> None:
        """Refuse files that somebody cut since they were mapped."""
        self.rows.check_sizes()
        for segment in self.people.segments:
            segment.check_size()

    def touching(self, state: State, learners: Iterable[int]) -> State:
        """A state with the moments read, and checked, of these learners."""
        ensemble = state.ensemble
        states = ensemble.states.copy()
        for j in learners:
            if states[j] is None:
                states[j] = load_moments(self.folder, self.manifest.learners[j], ensemble.encoder)
        return replace(state, ensemble=replace(ensemble, states=states))


def rows_of(state: State) -> RowFile:
    """The rows of a vault's state."""
    rows = state.ensemble.store
    assert isinstance(rows, RowFile)
    return rows


def load_snapshot(folder: Folder, manifest: Manifest, known: Model | None) -> Snapshot:
    """Read all that a vault holds; what never changes is taken from a model that is known."""
    model = load_model(folder, manifest, known)
    try:
        rows = RowFile.open(layout_of(folder, manifest, model.state.blueprint))
        people = load_people(folder, manifest.people, manifest.seal)
    except FileNotFoundError as error:
        raise InvalidFile(f"{error.filename} is not there: the folder is incomplete") from None
    state = replace(model.state, ensemble=replace(model.state.ensemble, store=rows))
    return Snapshot(folder, replace(model, state=state), people)


def layout_of(folder: Folder, manifest: Manifest, blueprint: Blueprint) -> Layout:
    """Where the rows of a manifest are."""
    dealt = Dealt(blueprint.key, blueprint.code.shards, manifest.batches, manifest.drawn)
    sizes = len(manifest.inputs.low), len(manifest.targets.low)
    return Layout(folder.path, manifest.segments, manifest.live_file, dealt, *sizes, manifest.seal)


def digest_of(folder: Folder, model: Model) -> str:
    """The digest of a model that has no rows, with the file of bits as it is."""
    ensemble, manifest = model.state.ensemble, model.manifest
    live = read_bits(folder.path / manifest.live_file, room(manifest.drawn, model.state.blueprint.code.shards))
    rows = Rows(np.empty((0, len(model.schema.inputs))), np.empty((0, len(model.schema.targets))), live)
    return replace(ensemble, store=rows).digest()


def load_people(folder: Folder, owners: Sequence[Owners], seal: bytes) -> People:
    """Read whose rows are where, as of a manifest's segments of people."""
    return People([Segment(folder.path / one.name, one.count, seal, one.part, one.parts) for one in owners])


def load_model(folder: Folder, manifest: Manifest, known: Model | None = None) -> Model:
    """Read the model of a manifest; what never changes is taken from one that is known."""
    if known is not None and (known.manifest.schema, known.manifest.blueprint) == (manifest.schema, manifest.blueprint):
        schema, blueprint = known.schema, known.state.blueprint
    else:
        schema = Schema.from_json(folder.read(manifest.schema).decode())
        with Archive(io.BytesIO(folder.read(manifest.blueprint)), name=str(folder.path / manifest.blueprint.name)) as a:
            blueprint = load_blueprint(a)
    ensemble = _ensemble(folder, manifest, schema, blueprint)
    return Model(manifest, schema, State(blueprint, ensemble, extents_of(manifest), manifest.drawn, manifest.rows))


def _ensemble(folder: Folder, manifest: Manifest, schema: Schema, blueprint: Blueprint) -> Ensemble:
    encoder = blueprint.encoder(extents_of(manifest))
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
        _prints=[bytes.fromhex(learner.sum) for learner in manifest.learners],
    )


def load_weights(folder: Folder, learner: Learner, *shape: int) -> Floats:
    """Read a learner's weights, the first part of its file, checked."""
    data = folder.read(File(learner.name, learner.weights), stop=array_bytes("<f8", *shape))
    weights: Floats = checked_array(folder, learner.name, data, "<f8", *shape)
    return weights


def load_moments(folder: Folder, learner: Learner, encoder: Encoder) -> Moments:
    """Read a learner's moments, the second part of its file, checked."""
    width, weights = encoder.width, array_bytes("<f8", encoder.n_weights, encoder.n_targets)
    data = folder.read_unchecked(learner.name, start=weights)
    limbs = checked_array(folder, learner.name, data, "<i8", 3, width * (width + 1) // 2)
    moments = Moments(limbs, learner.rows, learner.coded_rows)
    if moments.digest().hex() != learner.sum:
        raise InvalidFile(f"{folder.path / learner.name} is damaged: it fails its checksum")
    return moments


def checked_array(folder: Folder, name: str, data: bytes, dtype: str, *shape: int) -> NDArray[Any]:
    """The array in these bytes of a file, which must have this type and shape. Nothing is unpickled or copied."""
    try:
        return array_from(data, dtype, *shape)
    except ValueError as error:
        raise InvalidFile(f"{folder.path / name} {error}") from error
