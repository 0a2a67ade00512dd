"""Plans: what a request leads to, and the first step of carrying it out: to prepare the files for it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Slots
from ...learning.state import State
from ...saving.npy import array_parts
from ..disk import files
from ..disk.folder import Folder, Identity
from ..disk.manifest import Batch, File, Learner, Manifest, side
from ..disk.people import MOST_SEGMENTS, Hashes, People, segment_bytes
from ..ledger.ledger import Position, Record
from ..tables.schema import Schema

_SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class Training:
    """What a training fixes."""

    schema: Schema
    files: tuple[File, File]  # of the schema and of the blueprint


@dataclass(frozen=True, eq=False)
class Plan:
    """A request that is ready to be carried out: what its record says, and what it leads to."""

    kind: str
    body: Mapping[str, Any]
    state: State
    brings: tuple[Hashes, Slots] | None = None  # new entries of people
    stage: NDArray[np.float64] | None = None  # corrected rows, (k, d + t), for the slots that the body says
    training: Training | None = None


def prepare(
    folder: Folder,
    identity: Identity,
    after: Position,
    record: Record,
    plan: Plan,
    before: tuple[Manifest, People] | None,
) -> Manifest:
    """Write every file that a request brings, and the manifest that names them; all are synced."""
    number, state = record.request, plan.state
    known, people = (None, None) if plan.training or before is None else before
    batches = () if known is None else known.people
    if plan.brings is not None:
        entries = plan.brings
        if people is not None and len(batches) >= MOST_SEGMENTS:
            entries, batches = people.merged(*entries), ()
        name = f"people.{number}"
        files.create(folder.path / name, *segment_bytes(*entries, identity.seal))
        batches = (*batches, Batch(name, len(entries[1])))
    if known is None:
        assert plan.training is not None
        schema, blueprint = plan.training.files
    else:
        schema, blueprint = known.schema, known.blueprint
    manifest = Manifest(
        vault=identity.vault,
        request=number,
        training=number if known is None else known.training,
        before=after,
        record=record.end.hash,
        drawn=state.drawn,
        rows=state.rows,
        salt=secrets.token_bytes(_SALT_BYTES).hex(),
        schema=schema,
        blueprint=blueprint,
        weights=folder.write(f"weights.{number}", *array_parts(_weights(state))),
        learners=_write_learners(folder, number, state, known),
        people=batches,
        inputs=side(state.extents.inputs),
        targets=side(state.extents.targets),
        stage=None if plan.stage is None else folder.write(f"stage.{number}", *array_parts(plan.stage)),
    )
    files.create(folder.path / manifest.name, manifest.to_bytes())
    files.sync_folder(folder.path)
    return manifest


def _write_learners(folder: Folder, number: int, state: State, known: Manifest | None) -> tuple[Learner, ...]:
    """New moments of the learners that learned; the others keep their files."""
    ensemble, learners = state.ensemble, []
    for j, moments in enumerate(ensemble.states):
        digest = ensemble.fingerprint(j)
        if known is not None and digest.hex() == known.learners[j].sum:
            learners.append(known.learners[j])
            continue
        name = f"moments.{j}.{number}"
        files.create(folder.path / name, *array_parts(moments.integers))
        learners.append(Learner(name, digest.hex(), moments.rows, moments.coded_rows))
    return tuple(learners)


def _weights(state: State) -> NDArray[np.float64]:
    """All learners' weights, (r, n_weights, t); zeros for one that has no row."""
    encoder, models = state.ensemble.encoder, state.ensemble.models
    none = np.zeros((encoder.n_weights, encoder.n_targets))
    return np.stack([none if W is None else W for W in models])
