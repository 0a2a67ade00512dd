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
from ...learning.state import State
from ...saving import files
from ...saving.archive import dump
from ...saving.blueprints import blueprint_parts
from ...saving.npy import array_parts
from ..certificates.commitments import Commitments
from ..disk.fields import Word
from ..disk.folder import Folder, VaultIdentity, sha256_of
from ..disk.leaves import Leaves
from ..disk.manifest import About, File, Learner, Manifest, Owners
from ..disk.rowfile import Summing
from ..disk.sides import side_of
from ..disk.slotsum import slots_sum
from ..disk.snapshot import Snapshot, rows_of
from ..ledger.records import Position, Record
from ..tables.schema import Schema
from .request import Request

_SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class Site:
    """Where a request is planned: a vault as it is (None before its first training), and the request's number."""

    folder: Folder
    identity: VaultIdentity
    number: int
    trained: Snapshot | None
    keys: tuple[str, ...]  # that sign for the vault, the newest first
    leaves: Leaves
    check_process: Callable[[], None]  # refuses in a child that was forked in the midst of the request
    workers: Any = None  # `taking.Workers`: other processes that help
    summed: Summing | None = None  # what they have summed

    @property
    def now(self) -> Snapshot:
        """The vault as it is."""
        if self.trained is None:
            raise InvalidFile(f"{self.folder.path} was never trained to the end: train it again")
        return self.trained

    def stage(self, what: str) -> str:
        """What is being done, for a progress bar, and how many workers were lost over it."""
        lost = 0 if self.workers is None else self.workers.lost
        return f"{what} ({lost} worker{'s'[: lost > 1]} lost)" if lost else what

    @property
    def commitments(self) -> Commitments:
        """The commitments to the people of the request."""
        return Commitments(self.identity.key, self.identity.vault, self.number)


@dataclass(frozen=True, eq=False)
class Charter:
    """What a training fixes, and the files that say so."""

    schema: Schema
    files: tuple[File, File]  # of the schema and of the blueprint

    @classmethod
    def written(cls, site: Site, schema: Schema, blueprint: Blueprint) -> "Charter":
        """Write the two files."""
        described = io.BytesIO()
        dump(described, *blueprint_parts(blueprint))
        return cls(
            schema,
            (
                site.folder.write(f"schema.{site.number}", schema.to_json().encode()),
                site.folder.write(f"blueprint.{site.number}", described.getvalue()),
            ),
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """A request that is ready to be carried out, and what it leads to."""

    request: Request
    state: State
    owners: int  # ids that have rows then
    erased: int  # ids that are erased then
    learners: int = 0  # that learned anew
    people: tuple[Owners, ...] | None = None  # all segments of people, if there are new ones
    erases: Slots | None = None
    stage: Floats | None = None  # corrected rows, (k, d + t), for the slots that the request says
    charter: Charter | None = None  # a new schema and blueprint
    leaves: Sequence[bytes] = ()  # commitments to the people of the request
    fresh: bool = False  # whether nothing of the state before goes on: a training
    clone_of: str = ""  # of the first request of a clone: its source and the request that this was at
    skipped: int = 0  # ids that were left out, as asked
    known: int = 0  # people who had rows before
    clipped: int = 0  # values that were moved to a bound

    def prepare(self, site: Site, after: Position, record: Record) -> Manifest:
        """Write every file that the request brings, and the manifest that names them; all are synced (step 1)."""
        before = None if self.fresh else site.now
        layout = rows_of(self.state).layout
        number, state, known = site.number, self.state, None if before is None else before.manifest
        schema, blueprint = site.now.manifest.charter if self.charter is None else self.charter.files
        manifest = Manifest(
            vault=site.identity.vault,
            request=number,
            page=0 if site.trained is None else 1 - site.trained.manifest.page,
            training=number if known is None else known.training,
            before=after,
            record=record.end.hash,
            drawn=state.drawn,
            rows=state.rows,
            slots_sum=self._slots_sum(site.identity.seal),
            owners=self.owners,
            erased=self.erased,
            salt=secrets.token_bytes(_SALT_BYTES).hex(),
            keys=site.keys,
            schema=schema,
            blueprint=blueprint,
            learners=_write_learners(site, state, before),
            segments=layout.segments,
            batches=layout.dealt.batches,
            people=site.now.manifest.people if self.people is None else self.people,
            inputs=side_of(state.extents.inputs),
            targets=side_of(state.extents.targets),
            stage=None if self.stage is None else site.folder.write(f"stage.{number}", *array_parts(self.stage)),
            about=self._about(site),
        )
        if self.leaves:
            site.leaves.write(number, record.body["receipts"], self.leaves)
        if site.trained is None:
            site.folder.begin(manifest.name, manifest.spare, manifest.to_bytes())
        else:
            with site.folder.filling() as fill:
                fill(manifest.name, manifest.to_bytes())
        if self.fresh or self.charter is not None or self.people is not None or self.stage is not None:
            files.sync_folder(site.folder.path)  # else there is no new name
        return manifest

    def _about(self, site: Site) -> About:
        """What people ask about the model then. A clone stays one, whatever it is trained on later."""
        if self.charter is None:
            return site.now.manifest.about
        before = "" if site.trained is None else site.trained.manifest.about.clone_of
        return replace(_about(self.charter.schema, self.state.blueprint), clone_of=self.clone_of or before)

    def _slots_sum(self, seal: bytes) -> Word:
        """The sum of the slots that will have a row: those that go have theirs until they are overwritten."""
        gone = 0 if self.erases is None else slots_sum(self.erases, seal)
        return Word((rows_of(self.state).sum - gone) % 2**64)


def _write_learners(site: Site, state: State, before: Snapshot | None) -> tuple[Learner, ...]:
    """Write the weights and moments of the learners that learned; the others keep their pages."""
    ensemble, learners = state.ensemble, []
    with site.folder.filling() as fill:
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
            name = f"learner.{j}.{site.number}.0" if known is None else known.spare
            weights, limbs = array_parts(_weights(ensemble, j)), array_parts(whole.limbs)
            learner = Learner(name, digest, sha256_of(*weights), whole.rows, whole.coded_rows)
            if known is None:
                site.folder.begin(name, learner.spare, *weights, *limbs)
            else:
                fill(name, *weights, *limbs)
            learners.append(learner)
    return tuple(learners)


def _about(schema: Schema, blueprint: Blueprint) -> About:
    rule = blueprint.rule
    assert isinstance(rule, RidgeRule)  # a vault has no other
    return About(
        targets=schema.targets,
        columns=tuple(schema.input_kinds),
        inputs=schema.inputs,
        shards=blueprint.code.shards,
        learners=blueprint.code.learners,
        alpha=rule.alpha,
        features=_features_in_words(blueprint.features),
        scales=_scales_in_words(blueprint.scales),
        target_scales=", ".join(str(scale) for (scale,) in blueprint.target_scales.given),
        outside=blueprint.outside,
        observed_bounds=blueprint.observed,
        fold_case=schema.fold_case,
    )


def _features_in_words(features: FeatureMap) -> str:
    """A feature map with all of its parameters but the seed, those that are off left out."""
    described = features.describe()
    given = {name: value for name, value in described["params"].items() if value is not None and value is not False}
    arrays = {name: f"array of shape {array.shape}" for name, array in features.array_params().items()}
    return f"{described['name']}({', '.join(f'{name}={arrays.get(name, repr(given[name]))}' for name in given)})"


def _scales_in_words(scales: Scales) -> str:
    """How many inputs are given on which scales."""
    ways = Counter(" and ".join(one if isinstance(one, str) else "knots" for one in given) for given in scales.given)
    return ", ".join(f"{count:,} {way}" for way, count in ways.items())


def _weights(ensemble: Ensemble, learner: int) -> Floats:
    """A learner's weights, (n_weights, t); zeros if it has no row."""
    W: Floats | None = ensemble.models[learner]
    return np.zeros((ensemble.encoder.n_weights, ensemble.encoder.n_targets)) if W is None else W


def leaves_of(site: Site, ids: Iterable[bytes]) -> list[bytes]:
    """The commitments to the people of the next request, sorted: their order tells nothing."""
    return sorted(site.commitments.of(ids))
