"""Train: learn a table from scratch, in a new vault or in place of what a vault had learned."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...encoding.placement import Placement, free_slots, slots_needed
from ...encoding.scales import Scales, ScalesLike
from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint, draw_blueprint
from ...learning.settings import Settings
from ...learning.state import ModelState
from ...saving import files
from ...stores.bits import Bits
from ...tables import Schema
from ...tables.kinds import LINEAR
from ..disk.manifest import RowSegment
from ..disk.people import People
from ..disk.rowfile import RowFile, RowLayout
from .comparison import ModelComparison, ReplacementRules
from .intake import IncomingOwners, IncomingTable, ProgressCallback, StoredTable, take_table, write_people
from .plan import ModelDefinition, RequestContext, RequestPlan
from .request import Request, Texts


def draw_vault_blueprint(settings: Settings, schema: Schema) -> Blueprint:
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
    scales: dict[str, Any] = {"scales": schema.scales(), "target_scales": _resolve_target_scales(settings, schema)}
    if settings.scales is not None:
        _check_scales(settings.scales, schema)
        scales["scales"] = settings.scales
    return draw_blueprint(replace(settings, **scales, **bounds), len(schema.inputs), len(schema.targets))


def _resolve_target_scales(settings: Settings, schema: Schema) -> list[str]:
    """The scales on which the targets are learned, of a schema or of settings; if both say one, it is the same."""
    given = Scales.parse_targets(settings.target_scales, len(schema.targets)).by_input
    for name, said, (scale,) in zip(schema.targets, schema.target_scales(), given, strict=True):
        if settings.target_scales is not None and said not in (None, scale):
            raise InvalidSetting(f"the schema says that {name!r} is {said}, and target_scales gives it another scale")
    return [said or str(scale) for said, (scale,) in zip(schema.target_scales(), given, strict=True)]


def _check_scales(given: ScalesLike, schema: Schema) -> None:
    """Refuse scales beside those of a schema; where that says "linear", they have to say the same."""
    entries = Scales.parse(given, len(schema.inputs)).by_input
    for name, said, entry in zip(schema.inputs, schema.declared_scales(), entries, strict=True):
        if said not in (None, LINEAR):
            raise InvalidSetting("the schema declares scales, and so does scales: leave one of them out")
        if said == LINEAR and entry != (LINEAR,):
            raise InvalidSetting(f"the schema says that {name!r} is linear, and scales gives it another scale")


@dataclass(frozen=True)
class Train(Request):
    """Rows that are learned from scratch; nothing of what was learned before goes on."""

    drawn: int  # rows that came, holes among them
    planned: str  # what a plan promised of the model, in words
    compared: str  # the errors beside those of the model that it replaces, in words
    accepted: Texts  # what would have been refused if the caller had not said otherwise

    kind: ClassVar[str] = "train"

    @classmethod
    def plan(
        cls,
        context: RequestContext,
        data: Any,
        schema: Schema,
        blueprint: Blueprint,
        *,
        planned: str,
        skip_erased: bool,
        rules: ReplacementRules,
        progress: ProgressCallback,
    ) -> RequestPlan:
        """Stream a table into a new row file and learn it. Who was erased stays erased.

        What would replace a model is compared with it (`comparison`). No manifest names the new files yet, so a
        refusal wipes them and changes nothing.
        """
        _check_same_ids(context, schema)
        comparison = None if context.loaded_snapshot is None else ModelComparison(context, schema, rules)
        charter = ModelDefinition.write(context, schema, blueprint)
        before = People([]) if context.loaded_snapshot is None else context.loaded_snapshot.people
        wanted = IncomingTable(data, schema, blueprint, before, 0, "reading", charter.files)
        arrived = take_table(context, wanted, RowSegment(f"rows.{context.number}.0", 0), progress)
        taken = arrived.summary
        if not skip_erased:
            taken.refuse_erased()
        _check_enough_rows(taken.kept_rows, blueprint)
        if comparison is not None:
            comparison.check_rows(taken.kept_rows)
        dealt = Placement(blueprint.key, blueprint.code.shards, (0,), taken.rows)
        rows = _create_row_file(context, schema, dealt, arrived)
        with rows.report_reads(lambda k: progress(context.describe_stage("learning"), k, taken.kept_rows)):
            state = ModelState.learn(blueprint, rows, taken.rows, extents=taken.extents)
        found = write_people(context, IncomingOwners(arrived.runs, dealt, before, before, only_erased=True))
        compared, accepted = "", tuple[str, ...]()
        if comparison is not None:
            compared = comparison.judge(state, found.segments, progress)
            accepted = tuple(comparison.accepted)
        return RequestPlan(
            cls(taken.kept_rows, found.people, taken.rows, planned, compared, accepted),
            state,
            found.people,
            found.erased,
            blueprint.code.learners,
            people=found.segments,
            definition=charter,
            fresh=True,
            skipped=len(taken.erased),
            clipped=taken.clipped,
        )

    def note(self) -> str | None:
        if not self.accepted:
            return None
        numbers = f": {self.compared}" if self.compared else ""
        return f"this training replaced another model; accepted as asked: {', '.join(self.accepted)}{numbers}"


def _check_same_ids(context: RequestContext, schema: Schema) -> None:
    """Refuse to know people by other rules than before: nobody would be found who was erased under the old ones."""
    if context.loaded_snapshot is not None and context.loaded_snapshot.schema.fold_case != schema.fold_case:
        was = "without fold_case" if schema.fold_case else "with fold_case = true (--fold-case)"
        raise InvalidSetting(f"this vault was trained {was}: train it so again, or who was erased could come back")


def _check_enough_rows(rows: int, blueprint: Blueprint) -> None:
    """Refuse to train on fewer rows than there are shards."""
    s = blueprint.code.shards
    if rows == 0:
        raise InvalidInput("there are no rows left to learn from: everybody in this table was erased")
    if rows < s:
        raise InvalidInput(f"training needs as many rows as shards, got {rows} rows, shards={s}; use fewer shards")


def _create_row_file(context: RequestContext, schema: Schema, dealt: Placement, stored: StoredTable) -> RowFile:
    """The rows that arrived; their bits are in a file that nothing names before the request is accepted."""
    live = Bits.ones(slots_needed(dealt.drawn, dealt.shards))
    live[free_slots(dealt.key, dealt.drawn, dealt.shards)] = False
    live[dealt.slots(stored.summary.holes)] = False
    name = f"live.{context.number}"
    files.create(context.folder.path / name, live.packed.data)
    sizes = len(schema.inputs), len(schema.targets)
    layout = RowLayout(context.folder.path, stored.segments, name, dealt, *sizes, context.identity.seal)
    return RowFile(layout, live, context.sum_moments)
