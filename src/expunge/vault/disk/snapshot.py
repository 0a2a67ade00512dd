"""A vault's model in memory, from the files that a manifest names."""

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.placement import room
from ...errors import InvalidFile
from ...exact.moments import Moments
from ...learning.blueprint import Blueprint
from ...learning.ensemble import Ensemble
from ...learning.state import State
from ...saving.archive import Archive
from ...saving.blueprints import load_blueprint
from ...saving.npy import array_from
from ...stores.rows import Rows
from ..tables.schema import Schema
from .folder import Folder
from .manifest import Learner, Manifest
from .people import People, Segment
from .rowfile import StoredRows, read_live


@dataclass(frozen=True, eq=False)
class Model:
    """All that it takes to predict. It has no rows and no moments."""

    manifest: Manifest
    schema: Schema
    blueprint: Blueprint
    ensemble: Ensemble


def load_model(folder: Folder, manifest: Manifest, known: Model | None = None) -> Model:
    """Read the model of a manifest; what never changes is taken from one that is known."""
    if known is not None and (known.manifest.schema, known.manifest.blueprint) == (manifest.schema, manifest.blueprint):
        schema, blueprint = known.schema, known.blueprint
    else:
        schema = Schema.from_json(folder.read(manifest.schema).decode())
        with Archive(io.BytesIO(folder.read(manifest.blueprint)), name=str(folder.path / manifest.blueprint.name)) as a:
            blueprint = load_blueprint(a)
    return Model(manifest, schema, blueprint, _ensemble(folder, manifest, schema, blueprint))


def _ensemble(folder: Folder, manifest: Manifest, schema: Schema, blueprint: Blueprint) -> Ensemble:
    encoder = blueprint.encoder(manifest.extents)
    shape = (blueprint.code.learners, encoder.n_weights, encoder.n_targets)
    if len(manifest.learners) != shape[0] or (len(schema.inputs), len(schema.targets)) != (
        blueprint.features.n_features_in_,
        shape[2],
    ):
        raise InvalidFile(f"{folder.path / manifest.name} does not fit its schema or its blueprint")
    weights = array_of(folder.read(manifest.weights), "<f8", shape, folder, manifest.weights.name)
    return Ensemble(
        encoder,
        Rows(np.empty((0, len(schema.inputs))), np.empty((0, shape[2])), np.empty(0, dtype=np.bool_)),
        blueprint.rule,
        blueprint.aggregate,
        states=[None] * shape[0],
        models=[W if learner.rows else None for W, learner in zip(weights, manifest.learners, strict=True)],
        _prints=[bytes.fromhex(learner.sum) for learner in manifest.learners],
    )


def load(folder: Folder, manifest: Manifest, known: Model | None) -> tuple[Model, State, People]:
    """The model, its rows and whose they are. Moments are read when they are needed, with `with_moments`."""
    model = load_model(folder, manifest, known)
    blueprint = model.blueprint
    slots, d, t = room(manifest.drawn, blueprint.code.shards), len(model.schema.inputs), len(model.schema.targets)
    try:
        live = read_live(folder.path / manifest.live_file, slots)
        rows = StoredRows(folder.path / manifest.rows_file, live, d, t, manifest.seal)
        people = load_people(folder, manifest)
    except FileNotFoundError as error:
        raise InvalidFile(f"{error.filename} is not there: the folder is incomplete") from None
    state = State(blueprint, replace(model.ensemble, store=rows), manifest.extents, manifest.drawn, manifest.rows)
    return model, state, people


def load_people(folder: Folder, manifest: Manifest) -> People:
    """Whose rows are where."""
    return People([Segment(folder.path / batch.name, batch.count, manifest.seal) for batch in manifest.people])


def with_moments(state: State, learners: list[int], folder: Folder, manifest: Manifest) -> State:
    """The same state with these learners' moments read, and checked."""
    ensemble = state.ensemble
    states = ensemble.states.copy()
    for j in learners:
        if states[j] is None:
            states[j] = load_moments(folder, manifest.learners[j], ensemble.encoder.width)
    return replace(state, ensemble=replace(ensemble, states=states))


def load_moments(folder: Folder, learner: Learner, width: int) -> Moments:
    """A learner's moments."""
    with_header = folder.read_unchecked(learner.name)
    limbs = array_of(with_header, "<i8", (3, width * (width + 1) // 2), folder, learner.name)
    moments = Moments(limbs, learner.rows, learner.coded_rows)
    if moments.digest().hex() != learner.sum:
        raise InvalidFile(f"{folder.path / learner.name} is damaged: it fails its checksum")
    return moments


def array_of(data: bytes, dtype: str, shape: tuple[int, ...], folder: Folder, name: str) -> NDArray[Any]:
    """An array that must be of this type and shape. Nothing is unpickled."""
    try:
        return array_from(data, dtype, *shape)
    except ValueError as error:
        raise InvalidFile(f"{folder.path / name} {error}") from error
