"""Plans: what a request leads to, and the first of its six steps: to write every file that it brings."""

import io
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...encoding.features import FeatureMap
from ...encoding.scales import Scales
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots
from ...learning.blueprint import Blueprint
from ...learning.ensemble import Ensemble
from ...learning.rules import RidgeRule
from ...learning.state import ModelState
from ...saving import files
from ...saving.archive import array_parts, dump_archive
from ...saving.format import blueprint_parts
from ...tables.schema import Schema
from ..certificates.commitments import Commitments, RequestLeaves
from ..disk.folder import Folder, VaultIdentity, sha256_hex
from ..disk.manifest import ImmutableFile, LearnerFile, Manifest, ModelSummary, PeopleSegment, UInt64
from ..disk.rowfile import StripeSummer, sum_slots
from ..disk.snapshot import Snapshot, get_row_file, store_extent
from ..ledger.records import Position, Record
from .request import Request

_SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class RequestContext:
    """Where a request is planned: a vault as it is (None before its first training), and the request's number."""

    folder: Folder
    identity: VaultIdentity
    number: int
    loaded_snapshot: Snapshot | None
    keys: tuple[str, ...]  # that sign for the vault, the newest first
    leaves: RequestLeaves
    check_process: Callable[[], None]  # refuses in a child that was forked in the midst of the request
    workers: Any = None  # `taking.Workers`: other processes that help
    sum_moments: StripeSummer | None = None  # what they have summed

    @property
    def snapshot(self) -> Snapshot:
        """The vault as it is."""
        if self.loaded_snapshot is None:
            raise InvalidFile(f"{self.folder.path} was never trained to the end: train it again")
        return self.loaded_snapshot

    def describe_stage(self, stage: str) -> str:
        """What is being done, for a progress bar, and how many workers were lost over it."""
        lost = 0 if self.workers is None else self.workers.lost_count
        return f"{stage} ({lost} worker{'s'[: lost > 1]} lost)" if lost else stage

    @property
    def commitments(self) -> Commitments:
        """The commitments to the people of the request."""
        return Commitments(self.identity.key, self.identity.vault, self.number)


@dataclass(frozen=True, eq=False)
class ModelDefinition:
    """What a training fixes, and the files that say so."""

    schema: Schema
    files: tuple[ImmutableFile, ImmutableFile]  # of the schema and of the blueprint

    @classmethod
    def write(cls, context: RequestContext, schema: Schema, blueprint: Blueprint) -> "ModelDefinition":
        """Write the two files."""
        described = io.BytesIO()
        dump_archive(described, *blueprint_parts(blueprint))
        return cls(
            schema,
            (
                context.folder.write(f"schema.{context.number}", schema.to_json().encode()),
                context.folder.write(f"blueprint.{context.number}", described.getvalue()),
            ),
        )


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """A request that is ready to be carried out, and what it leads to."""

    request: Request
    state: ModelState
    owners: int  # ids that have rows then
    erased: int  # ids that are erased then
    learners: int = 0  # that learned anew
    people: tuple[PeopleSegment, ...] | None = None  # all segments of people, if there are new ones
    erased_slots: Slots | None = None
    corrected_rows: Floats | None = None  # corrected rows, (k, d + t), for the slots that the request says
    definition: ModelDefinition | None = None  # a new schema and blueprint
    leaves: Sequence[bytes] = ()  # commitments to the people of the request
    fresh: bool = False  # whether nothing of the state before goes on: a training
    clone_of: str = ""  # of the first request of a clone: its source and the request that this was at
    skipped: int = 0  # ids that were left out, as asked
    known: int = 0  # people who had rows before
    clipped: int = 0  # values that were moved to a bound

    def prepare(self, context: RequestContext, after: Position, record: Record) -> Manifest:
        """Write every file that the request brings, and the manifest that names them; all are synced (step 1)."""
        before = None if self.fresh else context.snapshot
        layout = get_row_file(self.state).layout
        number, state, known = context.number, self.state, None if before is None else before.manifest
        schema, blueprint = context.snapshot.manifest.charter if self.definition is None else self.definition.files
        manifest = Manifest(
            vault=context.identity.vault,
            request=number,
            page=0 if context.loaded_snapshot is None else 1 - context.loaded_snapshot.manifest.page,
            training=number if known is None else known.training,
            before=after,
            record=record.end.hash,
            drawn=state.drawn,
            rows=state.rows,
            slots_sum=self._compute_slots_sum(context.identity.seal),
            owners=self.owners,
            erased=self.erased,
            salt=secrets.token_bytes(_SALT_BYTES).hex(),
            keys=context.keys,
            schema=schema,
            blueprint=blueprint,
            learners=_write_learners(context, state, before),
            segments=layout.segments,
            batches=layout.dealt.batches,
            people=context.snapshot.manifest.people if self.people is None else self.people,
            inputs=store_extent(state.extents.inputs),
            targets=store_extent(state.extents.targets),
            stage=None
            if self.corrected_rows is None
            else context.folder.write(f"stage.{number}", *array_parts(self.corrected_rows)),
            about=self._build_about(context),
        )
        if self.leaves:
            context.leaves.write(number, record.body["receipts"], self.leaves)
        if context.loaded_snapshot is None:
            context.folder.create_pages(manifest.name, manifest.spare, manifest.to_bytes())
        else:
            with context.folder.fill_spares() as fill:
                fill(manifest.name, manifest.to_bytes())
        if self.fresh or self.definition is not None or self.people is not None or self.corrected_rows is not None:
            files.sync_folder(context.folder.path)  # else there is no new name
        return manifest

    def _build_about(self, context: RequestContext) -> ModelSummary:
        """What people ask about the model then. A clone stays one, whatever it is trained on later."""
        if self.definition is None:
            return context.snapshot.manifest.about
        before = "" if context.loaded_snapshot is None else context.loaded_snapshot.manifest.about.clone_of
        return replace(_describe_model(self.definition.schema, self.state.blueprint), clone_of=self.clone_of or before)

    def _compute_slots_sum(self, seal: bytes) -> UInt64:
        """The sum of the slots that will have a row: those that go have theirs until they are overwritten."""
        gone = 0 if self.erased_slots is None else sum_slots(self.erased_slots, seal)
        return UInt64((get_row_file(self.state).live_sum - gone) % 2**64)


def _write_learners(context: RequestContext, state: ModelState, before: Snapshot | None) -> tuple[LearnerFile, ...]:
    """Write the weights and moments of the learners that learned; the others keep their pages."""
    ensemble, learners = state.ensemble, []
    with context.folder.fill_spares() as fill:
        for j, moments in enumerate(ensemble.states):
            known = None if before is None else before.manifest.learners[j]
            if before is not None and known is not None and moments is before.state.ensemble.states[j]:
                learners.append(known)
                continue
            whole = replace(moments, limbs=moments.integers)  # turned into integers once
            digest = ensemble.fingerprint(j, whole).hex()
            if known is not None and digest == known.sum:
                learners.append(known)
                continue
            name = f"learner.{j}.{context.number}.0" if known is None else known.spare
            weights, limbs = array_parts(_learner_weights(ensemble, j)), array_parts(whole.limbs)
            learner = LearnerFile(name, digest, sha256_hex(*weights), whole.rows, whole.coded_rows)
            if known is None:
                context.folder.create_pages(name, learner.spare, *weights, *limbs)
            else:
                fill(name, *weights, *limbs)
            learners.append(learner)
    return tuple(learners)


def _describe_model(schema: Schema, blueprint: Blueprint) -> ModelSummary:
    rule = blueprint.rule
    assert isinstance(rule, RidgeRule)  # a vault has no other
    return ModelSummary(
        targets=schema.targets,
        columns=tuple(schema.input_kinds),
        inputs=schema.inputs,
        shards=blueprint.code.shards,
        learners=blueprint.code.learners,
        alpha=rule.alpha,
        features=_describe_features(blueprint.features),
        scales=_describe_scales(blueprint.scales),
        target_scales=", ".join(str(scale) for (scale,) in blueprint.target_scales.by_input),
        outside=blueprint.outside,
        observed_bounds=blueprint.observed,
        fold_case=schema.fold_case,
    )


def _describe_features(features: FeatureMap) -> str:
    """A feature map with all of its parameters but the seed, those that are off left out."""
    described = features.describe()
    given = {name: value for name, value in described["params"].items() if value is not None and value is not False}
    arrays = {name: f"array of shape {array.shape}" for name, array in features.array_params().items()}
    return f"{described['name']}({', '.join(f'{name}={arrays.get(name, repr(given[name]))}' for name in given)})"


def _describe_scales(scales: Scales) -> str:
    """How many inputs are given on which scales."""
    ways = Counter(" and ".join(one if isinstance(one, str) else "knots" for one in given) for given in scales.by_input)
    return ", ".join(f"{count:,} {way}" for way, count in ways.items())


def _learner_weights(ensemble: Ensemble, learner: int) -> Floats:
    """A learner's weights, (n_weights, t); zeros if it has no row."""
    W: Floats | None = ensemble.models[learner]
    return np.zeros((ensemble.encoder.n_weights, ensemble.encoder.n_targets)) if W is None else W


def commit_to_ids(context: RequestContext, ids: Iterable[bytes]) -> list[bytes]:
    """The commitments to the people of the next request, sorted: their order tells nothing."""
    return sorted(context.commitments.compute(ids))
