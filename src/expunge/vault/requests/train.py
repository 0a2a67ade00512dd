"""Train: learn a table from scratch, in a new vault or in place of what a vault had learned."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...encoding.placement import room
from ...encoding.scales import Scales, ScalesLike
from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint, draw_blueprint
from ...learning.settings import Settings
from ...learning.state import State
from ..disk.people import NOBODY, People
from ..disk.rowfile import RowFile
from ..disk.segments import distinct
from ..disk.snapshot import Snapshot
from ..tables import Block, Schema
from ..tables.scales import LINEAR
from .add import brought
from .intake import Intake, Progress
from .plan import Charter, Plan, Site
from .request import Request


def blueprint_of(settings: Settings, schema: Schema) -> Blueprint:
    """Draw what a model is before it has seen a row, with the bounds and scales that a schema declares."""
    if not (isinstance(settings.learner, str) and settings.learner == "ridge") or settings.keep != "rows":
        raise InvalidSetting("a vault holds models with learner='ridge' and keep='rows' only")
    bounds: dict[str, Any] = {"bounds": schema.bounds(), "target_bounds": schema.target_bounds()}
    for name, (low, _) in bounds.items():
        given = getattr(settings, name)
        if given is not None and not np.isnan(low).all():
            raise InvalidSetting(f"the schema declares bounds, and so does {name}: leave one of them out")
        if given is not None:
            bounds[name] = given
    scales: dict[str, Any] = {"scales": schema.scales(), "target_scales": _target_scales(settings, schema)}
    if settings.scales is not None:
        _check_scales(settings.scales, schema)
        scales["scales"] = settings.scales
    return draw_blueprint(replace(settings, **scales, **bounds), len(schema.inputs), len(schema.targets))


def _target_scales(settings: Settings, schema: Schema) -> list[str]:
    """The scales on which the targets are learned, of a schema or of settings; if both say one, it is the same."""
    given = Scales.of_targets(settings.target_scales, len(schema.targets)).given
    for name, said, (scale,) in zip(schema.targets, schema.target_scales(), given, strict=True):
        if settings.target_scales is not None and said not in (None, scale):
            raise InvalidSetting(f"the schema says that {name!r} is {said}, and target_scales gives it another scale")
    return [said or str(scale) for said, (scale,) in zip(schema.target_scales(), given, strict=True)]


def _check_scales(given: ScalesLike, schema: Schema) -> None:
    """Refuse scales beside those of a schema; where that says "linear", they have to say the same."""
    entries = Scales.of(given, len(schema.inputs)).given
    for name, said, entry in zip(schema.inputs, schema.said_scales(), entries, strict=True):
        if said not in (None, LINEAR):
            raise InvalidSetting("the schema declares scales, and so does scales: leave one of them out")
        if said == LINEAR and entry != (LINEAR,):
            raise InvalidSetting(f"the schema says that {name!r} is linear, and scales gives it another scale")


@dataclass(frozen=True)
class Train(Request):
    """Rows that are learned from scratch; nothing of what was learned before goes on."""

    drawn: int  # slots given out so far
    planned: str  # what a plan promised of the model, in words

    kind: ClassVar[str] = "train"

    @classmethod
    def plan(
        cls,
        site: Site,
        blocks: Iterable[Block],
        schema: Schema,
        blueprint: Blueprint,
        *,
        planned: str,
        skip_erased: bool,
        progress: Progress,
    ) -> Plan:
        """Stream a table into a new row file and learn it. Who was erased stays erased."""
        _check_same_ids(site, schema)
        charter = Charter.written(site, schema, blueprint)
        before = People([]) if site.trained is None else site.trained.people
        intake = Intake(site, schema, blueprint, before, 0)
        path = site.folder.path / f"rows.{site.number}"
        for slots, _, _ in intake.take(path, blocks):
            progress("reading", len(slots), None)
        if not skip_erased:
            intake.refuse_erased()
        state = _learned(site, intake, progress)
        hashes, slots = intake.entries()
        old_hashes, old = before.merged(hashes[:0], slots[:0])
        tombs = old < NOBODY
        brings = np.concatenate([old_hashes[tombs], hashes]), np.concatenate([old[tombs], slots])
        request = cls(len(slots), distinct(hashes), intake.drawn, planned)
        return Plan(
            request,
            state,
            request.people,
            distinct(old_hashes[tombs]),
            blueprint.code.learners,
            brings=brings,
            charter=charter,
            fresh=True,
            skipped=len(intake.erased),
            clipped=intake.clipped,
        )

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.rows.mark(brought(vault, number))


def _check_same_ids(site: Site, schema: Schema) -> None:
    """Refuse to know people by other rules than before: nobody would be found who was erased under the old ones."""
    if site.trained is not None and site.trained.schema.fold_case != schema.fold_case:
        was = "without fold_case" if schema.fold_case else "with fold_case = true (--fold-case)"
        raise InvalidSetting(f"this vault was trained {was}: train it so again, or who was erased could come back")


def _learned(site: Site, intake: Intake, progress: Progress) -> State:
    """The state that training on the rows of an intake leads to."""
    n, s, schema, blueprint = intake.drawn, intake.blueprint.code.shards, intake.schema, intake.blueprint
    if n == 0:
        raise InvalidInput("there are no rows left to learn from: everybody in this table was erased")
    if n < s:
        raise InvalidInput(f"training needs as many rows as shards, got {n} rows, shards={s}; use fewer shards")
    live = np.zeros(room(n, s), dtype=np.bool_)
    live[intake.entries()[1]] = True
    rows = RowFile.create(
        site.folder.path / f"rows.{site.number}",
        site.folder.path / f"live.{site.number}",
        live,
        len(schema.inputs),
        len(schema.targets),
        site.identity.seal,
    )
    with rows.watched(lambda k: progress("learning", k, n * (1 + blueprint.observed))):
        return State.learn(blueprint, rows, n)
