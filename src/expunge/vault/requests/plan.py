"""Plans: what a request leads to, and the first of its six steps, writing its new files."""

import io
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...encoding.features import FeatureMap
from ...encoding.randomness import Words
from ...encoding.scales import Scales
from ...errors import InvalidFile
from ...exact.arrays import Slots
from ...learning.blueprint import Blueprint
from ...learning.rules import RidgeRule
from ...learning.state import ModelState
from ...saving.archive import array_parts, dump_archive
from ...saving.files import SyncBatch
from ...saving.format import blueprint_parts
from ...tables.schema import Schema
from ..certificates.commitments import Commitments, RequestLeaves, merkle_root
from ..disk.folder import Folder, VaultIdentity, sha256_hex
from ..disk.manifest import ImmutableFile, LearnerFile, Manifest, ModelSummary, PeopleSegment, Planning, UInt64
from ..disk.rowfile import sum_slots
from ..disk.snapshot import Snapshot, get_row_file, store_extent
from ..ledger.records import Position, Record
from .request import Request

if TYPE_CHECKING:
    from .intake import Workers

_SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class RequestContext:
    """Where a request is planned: the vault as it is, and the request's number."""

    folder: Folder
    identity: VaultIdentity
    number: int
    loaded_snapshot: Snapshot | None  # None before the first training
    keys: tuple[str, ...]  # the vault's signing keys, newest first
    leaves: RequestLeaves
    check_process: Callable[[], None]  # raises in a child that was forked during the request
    workers: "Workers | None" = None  # other processes that help

    @property
    def snapshot(self) -> Snapshot:
        """The vault as it is."""
        if self.loaded_snapshot is None:
            raise InvalidFile(f"{self.folder.path} was never trained completely: train it again")
        return self.loaded_snapshot

    def describe_stage(self, stage: str) -> str:
        """Return the name of a stage for a progress bar, with the number of workers lost so far."""
        lost = 0 if self.workers is None else self.workers.lost_count
        return f"{stage} ({lost} worker{'s'[: lost > 1]} lost)" if lost else stage

    @property
    def commitments(self) -> Commitments:
        """The commitments to the people of the request."""
        return Commitments(self.identity.key, self.identity.vault, self.number)

    def receipt_tree(self, ids: Iterable[bytes]) -> tuple[list[bytes], str]:
        """Return the commitments to the request's people, sorted so that their order reveals nothing, and the root."""
        leaves = sorted(self.commitments.compute(ids))
        return leaves, merkle_root(leaves).hex()


@dataclass(frozen=True, eq=False)
class ModelDefinition:
    """The schema and the blueprint of a model, which a training fixes, and their files."""

    schema: Schema
    files: tuple[ImmutableFile, ImmutableFile]  # of the schema and of the blueprint

    @classmethod
    def write(
        cls, context: RequestContext, schema: Schema, blueprint: Blueprint, *, provisional: bool = False
    ) -> "ModelDefinition":
        """Write the two files; a provisional blueprint is followed by another one (`finish`)."""
        file = context.folder.write(f"schema.{context.number}", schema.to_json().encode())
        name = f"blueprint.{context.number}{'.0' if provisional else ''}"
        return cls(schema, (file, context.folder.write(name, blueprint_bytes(blueprint))))

    def finish(self, context: RequestContext, blueprint: Blueprint) -> "ModelDefinition":
        """Write the blueprint that follows a provisional one."""
        file = context.folder.write(f"blueprint.{context.number}", blueprint_bytes(blueprint))
        return replace(self, files=(self.files[0], file))


def blueprint_bytes(blueprint: Blueprint) -> bytes:
    """Return the content of a blueprint's file."""
    described = io.BytesIO()
    dump_archive(described, *blueprint_parts(blueprint))
    return described.getvalue()


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """A request that is ready to be carried out, and what it leads to."""

    request: Request
    state: ModelState
    owners: int  # ids with rows afterwards
    erased: int  # erased ids afterwards
    learners: int = 0  # learners that learned again
    people: tuple[PeopleSegment, ...] | None = None  # all segments of people, if there are new ones
    erased_slots: Slots | None = None
    corrected_rows: Words | None = None  # (k, d + t + 1) values and ranks, for the slots that the request names
    definition: ModelDefinition | None = None  # a new schema and blueprint
    leaves: Sequence[bytes] = ()  # commitments to the people of the request
    fresh: bool = False  # whether all files are new: a training, a replan, or the first request of a clone
    planning: Planning | None = None  # how the settings were chosen, if they were
    clone_of: str = ""  # in the first request of a clone: its source and the source's newest request
    skipped: int = 0  # ids that were left out, on demand
    known: int = 0  # people who had rows before
    clipped: int = 0  # values that were moved to a bound
    notes: tuple[str, ...] = ()  # messages for users

    def prepare(self, context: RequestContext, after: Position, record: Record) -> Manifest:
        """Write the request's new files and the manifest that names them, and sync all (step 1)."""
        before = None if self.fresh else context.snapshot
        rows = get_row_file(self.state)
        if self.definition is None:
            about = context.snapshot.manifest.about
        else:  # a clone stays a clone, whatever it is trained on later
            origin = "" if context.loaded_snapshot is None else context.loaded_snapshot.manifest.about.clone_of
            about = _describe_model(self.definition.schema, self.state.blueprint, self.clone_of or origin)
        # Erased slots count as used until they are overwritten (step 4).
        erased_sum = 0 if self.erased_slots is None else sum_slots(self.erased_slots, context.identity.seal)
        number, state = context.number, self.state
        schema, blueprint = context.snapshot.manifest.charter if self.definition is None else self.definition.files
        manifest = Manifest(
            vault=context.identity.vault,
            request=number,
            page=0 if context.loaded_snapshot is None else 1 - context.loaded_snapshot.manifest.page,
            training=number if before is None else before.manifest.training,
            before=after,
            record=record.end.hash,
            drawn=state.drawn,
            rows=state.rows,
            slots_sum=UInt64((rows.live_sum - erased_sum) % 2**64),
            owners=self.owners,
            erased=self.erased,
            salt=secrets.token_bytes(_SALT_BYTES).hex(),
            keys=context.keys,
            schema=schema,
            blueprint=blueprint,
            learners=_write_learners(context, state, before),
            segments=rows.layout.segments,
            batches=rows.layout.dealt.batches,
            people=context.snapshot.manifest.people if self.people is None else self.people,
            inputs=store_extent(state.extents.inputs),
            targets=store_extent(state.extents.targets),
            stage=None
            if self.corrected_rows is None
            else context.folder.write(f"stage.{number}", *array_parts(self.corrected_rows)),
            about=about,
            planning=self._next_planning(context),
        )
        if self.leaves:
            context.leaves.write(number, record.body["receipts"], self.leaves)
        if context.loaded_snapshot is None:
            context.folder.create_pages(manifest.name, manifest.spare, manifest.to_bytes())
        else:
            with SyncBatch() as batch:
                batch.fill(context.folder.dir / manifest.name, manifest.to_bytes())
        if self.fresh or self.definition is not None or self.people is not None or self.corrected_rows is not None:
            context.folder.dir.sync()  # otherwise there is no new file name
        return manifest

    def _next_planning(self, context: RequestContext) -> Planning | None:
        """Return how the settings are chosen from now on, with what was erased and corrected since."""
        if self.fresh:
            return self.planning
        planning = context.snapshot.manifest.planning
        if planning is None:
            return None
        gone = 0
        if self.erased_slots is not None:
            gone = int(np.count_nonzero(context.snapshot.rows.layout.dealt.rows(self.erased_slots) < planning.drawn))
        return replace(planning, open=planning.open + self.request.open_count, gone=planning.gone + gone)


def _write_learners(context: RequestContext, state: ModelState, before: Snapshot | None) -> tuple[LearnerFile, ...]:
    """Write the weights and moments of the learners that learned; the others keep their pages."""
    ensemble, learners = state.ensemble, []
    with SyncBatch() as batch:
        for j, moments in enumerate(ensemble.states):
            known = None if before is None else before.manifest.learners[j]
            if before is not None and known is not None and moments is before.state.ensemble.states[j]:
                learners.append(known)
                continue
            whole = replace(moments, limbs=moments.integers)  # converted to integers once
            digest = ensemble.fingerprint(j, whole).hex()
            if known is not None and digest == known.sum:
                learners.append(known)
                continue
            name = f"learner.{j}.{context.number}.0" if known is None else known.spare
            W = ensemble.models[j]  # (n_weights, t); None without rows
            if W is None:
                W = np.zeros((ensemble.encoder.n_weights, ensemble.encoder.n_targets))
            weights, limbs = array_parts(W), array_parts(whole.limbs)
            learner = LearnerFile(name, digest, sha256_hex(*weights), whole.rows, whole.coded_rows)
            if known is None:
                context.folder.create_pages(name, learner.spare, *weights, *limbs)
            else:
                batch.fill(context.folder.dir / name, *weights, *limbs)
            learners.append(learner)
    return tuple(learners)


def _describe_model(schema: Schema, blueprint: Blueprint, clone_of: str) -> ModelSummary:
    """Return the model's summary for `Vault.status`."""
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
        clone_of=clone_of,
    )


def _describe_features(features: FeatureMap) -> str:
    """Return a feature map as text, with all parameters that are on, without the seed."""
    described = features.describe()
    params = {
        name: repr(value) for name, value in described["params"].items() if value is not None and value is not False
    }
    arrays = {name: f"array of shape {array.shape}" for name, array in features.array_params().items()}
    return f"{described['name']}({', '.join(f'{name}={arrays.get(name, params[name])}' for name in params)})"


def _describe_scales(scales: Scales) -> str:
    """Return as text how many inputs are on which scales."""
    counts = Counter(
        " and ".join(scale if isinstance(scale, str) else "knots" for scale in entry) for entry in scales.by_input
    )
    return ", ".join(f"{count:,} {names}" for names, count in counts.items())
