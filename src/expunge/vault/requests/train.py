"""Train: learn a table from scratch, in a new vault or in place of what a vault had learned."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...encoding.placement import Dealt, free_slots, room
from ...encoding.scales import Scales, ScalesLike
from ...errors import InvalidInput, InvalidSetting
from ...learning.blueprint import Blueprint, draw_blueprint
from ...learning.settings import Settings
from ...learning.state import State
from ...saving import files
from ...stores.bits import Bits
from ..disk.manifest import RowSegment
from ..disk.people import People
from ..disk.rowfile import Layout, RowFile
from ..tables import Schema
from ..tables.scales import LINEAR
from .comparison import Comparison, ReplacementRules
from .intake import Progress
from .plan import Charter, Plan, Site
from .request import Request, Texts
from .taking import NewEntries, TableTaken, TableToTake, brought, taken_in


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

    drawn: int  # rows that came, holes among them
    planned: str  # what a plan promised of the model, in words
    compared: str  # the errors beside those of the model that it replaces, in words
    accepted: Texts  # what would have been refused if the caller had not said otherwise

    kind: ClassVar[str] = "train"

    @classmethod
    def plan(
        cls,
        site: Site,
        data: Any,
        schema: Schema,
        blueprint: Blueprint,
        *,
        planned: str,
        skip_erased: bool,
        rules: ReplacementRules,
        progress: Progress,
    ) -> Plan:
        """Stream a table into a new row file and learn it. Who was erased stays erased.

        What would replace a model is compared with it (`comparison`). No manifest names the new files yet, so a
        refusal wipes them and changes nothing.
        """
        _check_same_ids(site, schema)
        comparison = None if site.trained is None else Comparison(site, schema, rules)
        charter = Charter.written(site, schema, blueprint)
        before = People([]) if site.trained is None else site.trained.people
        wanted = TableToTake(data, schema, blueprint, before, 0, "reading", charter.files)
        arrived = taken_in(site, wanted, RowSegment(f"rows.{site.number}.0", 0), progress)
        taken = arrived.taken
        if not skip_erased:
            taken.refuse_erased()
        _check_enough(taken.kept, blueprint)
        if comparison is not None:
            comparison.check_rows(taken.kept)
        dealt = Dealt(blueprint.key, blueprint.code.shards, (0,), taken.rows)
        rows = _row_file(site, schema, dealt, arrived)
        with rows.watched(lambda k: progress(site.stage("learning"), k, taken.kept)):
            state = State.learn(blueprint, rows, taken.rows, extents=taken.extents)
        found = brought(site, NewEntries(arrived.runs, dealt, before, before, only_erased=True))
        compared, accepted = "", tuple[str, ...]()
        if comparison is not None:
            compared = comparison.judge(state, found.segments, progress)
            accepted = tuple(comparison.accepted)
        return Plan(
            cls(taken.kept, found.people, taken.rows, planned, compared, accepted),
            state,
            found.people,
            found.erased,
            blueprint.code.learners,
            people=found.segments,
            charter=charter,
            fresh=True,
            skipped=len(taken.erased),
            clipped=taken.clipped,
        )

    def note(self) -> str | None:
        if not self.accepted:
            return None
        numbers = f": {self.compared}" if self.compared else ""
        return f"this training replaced another model; accepted as asked: {', '.join(self.accepted)}{numbers}"


def _check_same_ids(site: Site, schema: Schema) -> None:
    """Refuse to know people by other rules than before: nobody would be found who was erased under the old ones."""
    if site.trained is not None and site.trained.schema.fold_case != schema.fold_case:
        was = "without fold_case" if schema.fold_case else "with fold_case = true (--fold-case)"
        raise InvalidSetting(f"this vault was trained {was}: train it so again, or who was erased could come back")


def _check_enough(rows: int, blueprint: Blueprint) -> None:
    """Refuse to train on fewer rows than there are shards."""
    s = blueprint.code.shards
    if rows == 0:
        raise InvalidInput("there are no rows left to learn from: everybody in this table was erased")
    if rows < s:
        raise InvalidInput(f"training needs as many rows as shards, got {rows} rows, shards={s}; use fewer shards")


def _row_file(site: Site, schema: Schema, dealt: Dealt, arrived: TableTaken) -> RowFile:
    """The rows that arrived; their bits are in a file that nothing names before the request is accepted."""
    live = Bits.ones(room(dealt.drawn, dealt.shards))
    live[free_slots(dealt.key, dealt.drawn, dealt.shards)] = False
    live[dealt.slots(arrived.taken.holes)] = False
    name = f"live.{site.number}"
    files.create(site.folder.path / name, live.packed.data)
    sizes = len(schema.inputs), len(schema.targets)
    layout = Layout(site.folder.path, arrived.segments, name, dealt, *sizes, site.identity.seal)
    return RowFile(layout, live, site.summed)
