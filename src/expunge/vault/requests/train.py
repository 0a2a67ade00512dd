"""Train: learn a table from scratch, in a new vault or as a replacement of a vault's model."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...encoding.bounds import Extents
from ...encoding.placement import Placement, free_slots, slots_needed
from ...encoding.scales import Scales, ScalesLike
from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint, draw_blueprint
from ...learning.settings import Settings
from ...learning.state import ModelState
from ...saving import files
from ...stores.bits import Bits
from ...stores.change import Change
from ...tables import Schema
from ...tables.kinds import LINEAR
from ..disk.manifest import Planning, RowSegment
from ..disk.people import People
from ..disk.rowfile import RowFile, RowLayout
from .choice import choose_settings, parse_declared
from .comparison import ModelComparison, ReplacementRules
from .intake import IncomingOwners, IncomingTable, ProgressCallback, StoredTable, take_table, write_people
from .plan import ModelDefinition, RequestContext, RequestPlan
from .request import Request, Texts


def draw_vault_blueprint(settings: Settings, schema: Schema) -> Blueprint:
    """Return the blueprint of a model that has seen no row yet, with the bounds and scales that a schema declares."""
    if not (isinstance(settings.learner, str) and settings.learner == "ridge") or settings.keep != "rows":
        raise InvalidSetting("a vault needs a model with learner='ridge' and keep='rows'")
    if settings.aggregate == "pooled":  # predictions would have to read the moments of all learners
        raise InvalidSetting("aggregate='pooled' is for models in memory; in a vault use fewer shards")
    bounds: dict[str, Any] = {"bounds": schema.bounds(), "target_bounds": schema.target_bounds()}
    for name, (low, _) in bounds.items():
        given = getattr(settings, name)
        if given is not None and not np.isnan(low).all():
            raise InvalidSetting(f"both the schema and {name} declare bounds: leave one out")
        if given is not None:
            bounds[name] = given
    scales: dict[str, Any] = {"scales": schema.scales(), "target_scales": _resolve_target_scales(settings, schema)}
    if settings.scales is not None:
        _check_scales(settings.scales, schema)
        scales["scales"] = settings.scales
    return draw_blueprint(replace(settings, **scales, **bounds), len(schema.inputs), len(schema.targets))


def draw_next_blueprint(settings: Settings, schema: Schema, before: Blueprint) -> Blueprint:
    """Return the blueprint of newly chosen settings; the declared bounds stay as they were."""
    return replace(draw_vault_blueprint(settings, schema), inputs=before.inputs, targets=before.targets)


def _resolve_target_scales(settings: Settings, schema: Schema) -> list[str]:
    """Return the scales of the targets, from a schema or from settings; if both declare one, they must agree."""
    given = Scales.parse_targets(settings.target_scales, len(schema.targets)).by_input
    for name, declared, (scale,) in zip(schema.targets, schema.target_scales(), given, strict=True):
        if settings.target_scales is not None and declared not in (None, scale):
            raise InvalidSetting(
                f"the schema declares {name!r} as {declared}, but target_scales gives it another scale"
            )
    return [declared or str(scale) for declared, (scale,) in zip(schema.target_scales(), given, strict=True)]


def _check_scales(given: ScalesLike, schema: Schema) -> None:
    """Refuse scales in addition to those of a schema; an input that the schema declares as linear must be linear."""
    entries = Scales.parse(given, len(schema.inputs)).by_input
    for name, declared, entry in zip(schema.inputs, schema.declared_scales(), entries, strict=True):
        if declared not in (None, LINEAR):
            raise InvalidSetting("both the schema and the parameter scales declare scales: leave one out")
        if declared == LINEAR and entry != (LINEAR,):
            raise InvalidSetting(f"the schema declares {name!r} as linear, but scales gives it another scale")


@dataclass(frozen=True)
class Train(Request):
    """Rows that are learned from scratch; nothing that was learned before remains."""

    drawn: int  # row numbers used, including holes
    planned: str  # the score of the plan, as text
    compared: str  # the errors compared with those of the replaced model, as text
    accepted: Texts  # what would have been refused without the caller's consent

    kind: ClassVar[str] = "train"

    @classmethod
    def plan(
        cls,
        context: RequestContext,
        data: Any,
        schema: Schema,
        blueprint: Blueprint | None,
        *,
        planning: Planning | None,
        planned: str,
        skip_erased: bool,
        rules: ReplacementRules,
        progress: ProgressCallback,
    ) -> RequestPlan:
        """Plan a training: stream a table into a new row file and learn it. Erased people stay erased.

        Without a blueprint, a plan (``planning``) chooses the settings by looking at the stored rows. With one,
        ``planning`` says how it was chosen, if it was chosen by looking at these people's rows.

        A model that would replace another is compared with it (`comparison`). No manifest names the new files yet, so a
        refusal wipes them and changes nothing.
        """
        _check_same_ids(context, schema)
        comparison = None if context.loaded_snapshot is None else ModelComparison(context, schema, rules)
        first_blueprint = blueprint or _draw_provisional_blueprint(planning, schema)
        definition = ModelDefinition.write(context, schema, first_blueprint, provisional=blueprint is None)
        before = People([]) if context.loaded_snapshot is None else context.loaded_snapshot.people
        table = IncomingTable(data, schema, first_blueprint, before, 0, "reading", definition.files, planning)
        stored = take_table(context, table, RowSegment(f"rows.{context.number}.0", 0), progress)
        summary = stored.summary
        if not skip_erased:
            summary.refuse_erased()
        if summary.kept_rows == 0:
            raise InvalidInput("there are no rows left to learn from: everybody in this table was erased")
        notes = tuple[str, ...]()
        if planning is not None:
            planning = replace(planning, drawn=summary.rows, rows=summary.kept_rows, gone=0, open=0)
            if blueprint is None:
                choice = choose_settings(_open_stored_rows(context, schema, stored), schema, planning, progress)
                blueprint, planning = draw_vault_blueprint(choice.settings, schema), choice.planning
                planned = choice.score
                definition, notes = definition.finish(context, blueprint), (choice.note,)
            planning = replace(planning, schema=definition.files[0].sum)
        assert blueprint is not None
        if summary.kept_rows < (shards := blueprint.code.shards):
            raise InvalidInput(
                f"training needs as many rows as shards, got {summary.kept_rows} rows, {shards=}; use fewer shards"
            )
        if comparison is not None:
            comparison.check_rows(summary.kept_rows)
        dealt = Placement(blueprint.key, blueprint.code.shards, (0,), summary.rows)
        rows = _create_row_file(context, schema, dealt, stored)
        state = learn_rows(context, blueprint, rows, progress, extents=summary.extents)
        people = write_people(context, IncomingOwners(stored.runs, dealt, before, before, only_erased=True))
        compared, accepted = "", tuple[str, ...]()
        if comparison is not None:
            compared = comparison.judge(state, people.segments, progress)
            accepted = tuple(comparison.accepted)
        return RequestPlan(
            cls(summary.kept_rows, people.people, summary.rows, planned, compared, accepted),
            state,
            people.people,
            people.erased,
            blueprint.code.learners,
            people=people.segments,
            definition=definition,
            fresh=True,
            planning=planning,
            notes=notes,
            skipped=len(summary.erased),
            clipped=summary.clipped,
        )

    def note(self) -> str | None:
        if not self.accepted:
            return None
        numbers = f": {self.compared}" if self.compared else ""
        return f"this training replaced another model; accepted on request: {', '.join(self.accepted)}{numbers}"


def _check_same_ids(context: RequestContext, schema: Schema) -> None:
    """Refuse a different fold_case: people who were erased under the old one would not be found."""
    if context.loaded_snapshot is not None and context.loaded_snapshot.schema.fold_case != schema.fold_case:
        before = "without fold_case" if schema.fold_case else "with fold_case = true (--fold-case)"
        raise InvalidSetting(
            f"this vault was trained {before}: keep the same fold_case; changing it would let erased ids return"
        )


def _draw_provisional_blueprint(planning: Planning | None, schema: Schema) -> Blueprint:
    """Return the blueprint with which rows are checked and stored before a plan has chosen the settings."""
    clip = planning is not None and parse_declared(planning.declared).get("clip") is True
    return draw_vault_blueprint(Settings(shards=1, rate=1, clip=clip, random_state=0), schema)


def learn_rows(
    context: RequestContext,
    blueprint: Blueprint,
    rows: RowFile,
    progress: ProgressCallback,
    *,
    change: Change | None = None,
    extents: Extents | None = None,
) -> ModelState:
    """Learn rows from scratch, and show progress."""
    total = rows.live.count() * (1 + (blueprint.observed and extents is None))
    with rows.report_reads(lambda k: progress(context.describe_stage("learning"), k, total)):
        return ModelState.learn(blueprint, rows, rows.layout.dealt.drawn, change, extents=extents)


def _open_stored_rows(context: RequestContext, schema: Schema, stored: StoredTable) -> RowFile:
    """Return the stored rows for reading by number: without a code, they have no slots yet."""
    dealt = Placement(np.zeros(2, dtype=np.uint64), 1, (0,), stored.summary.rows)
    sizes = len(schema.inputs), len(schema.targets)
    layout = RowLayout(context.folder.dir, stored.segments, "", dealt, *sizes, context.identity.seal)
    return RowFile(layout, Bits.zeros(0))


def _create_row_file(context: RequestContext, schema: Schema, dealt: Placement, stored: StoredTable) -> RowFile:
    """Return the stored rows; their bits are in a new file, which no manifest names before the request is accepted."""
    live = Bits.ones(slots_needed(dealt.drawn, dealt.shards))
    live[free_slots(dealt.key, dealt.drawn, dealt.shards)] = False
    live[dealt.slots(stored.summary.holes)] = False
    name = f"live.{context.number}"
    files.create(context.folder.dir / name, live.packed.data)
    sizes = len(schema.inputs), len(schema.targets)
    layout = RowLayout(context.folder.dir, stored.segments, name, dealt, *sizes, context.identity.seal)
    return RowFile(layout, live, None if context.workers is None else context.workers.sum_moments)
