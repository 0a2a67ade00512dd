"""Replan: choose the settings again from the rows that remain, and learn these rows with them.

Rows keep their numbers and tombstones stay. Slots follow from the code, so they are dealt again: the bits, the entries
of people and the learners are written again; the rows themselves do not change.

A plan takes longer than requests can wait. Settings can therefore be chosen without the lock (`PreparedPlan`), and are
used only if the same choice would be made under the lock.
"""

import io
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from ...encoding.placement import Placement, slots_needed
from ...errors import InvalidFile, InvalidSetting, PlanOutdated
from ...exact.arrays import cut
from ...learning.blueprint import Blueprint
from ...saving import files
from ...saving.archive import Archive
from ...saving.format import load_blueprint
from ...stores.bits import Bits
from ..disk.manifest import PeopleSegment, Planning, matches_type
from ..disk.people import segment_bytes
from ..disk.rowfile import RowFile
from ..disk.snapshot import Snapshot
from .choice import PlanningRows
from .intake import ProgressCallback
from .plan import ModelDefinition, RequestContext, RequestPlan, blueprint_bytes
from .request import Request
from .train import draw_vault_blueprint, learn_rows

if TYPE_CHECKING:
    from .restore import MissedChanges

_TOLERANCE = 0.05  # the share by which the RMSE on validation rows may grow without a note


@dataclass(frozen=True, eq=False)
class PreparedPlan:
    """Settings that were chosen for a replan, and the fingerprint of what determined the choice.

    It is as secret as the rows, so it must not be stored.
    """

    blueprint: bytes = field(repr=False)
    planning: Planning = field(repr=False)
    score: str
    note: str
    fingerprint: str = field(repr=False)

    @classmethod
    def choose(cls, rows: PlanningRows, progress: ProgressCallback) -> "PreparedPlan":
        """Choose settings for these rows."""
        choice = rows.choose(progress)
        blueprint = blueprint_bytes(draw_vault_blueprint(choice.settings, rows.schema))
        return cls(blueprint, choice.planning, choice.score, choice.note, rows.fingerprint)

    def load_blueprint(self, before: Blueprint) -> Blueprint:
        """Return the blueprint of the chosen settings; as in `draw_next_blueprint`, the declared bounds stay."""
        with Archive(io.BytesIO(self.blueprint), name="the prepared plan") as archive:
            return replace(load_blueprint(archive), inputs=before.inputs, targets=before.targets)

    def to_json(self) -> str:
        """Return the plan as text, to be passed to another process of this machine."""
        return json.dumps(vars(self) | {"blueprint": self.blueprint.hex(), "planning": asdict(self.planning)})

    @classmethod
    def from_json(cls, text: str) -> "PreparedPlan":
        """Return the plan that `to_json` wrote."""
        try:
            fields = json.loads(text)
            planning = Planning(**fields["planning"])
            plan = cls(**fields | {"blueprint": bytes.fromhex(fields["blueprint"]), "planning": planning})
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidFile("this is not a prepared plan") from None
        if not matches_type(planning, Planning):
            raise InvalidFile("a prepared plan has a value of the wrong type")
        return plan


def read_planning_rows(snapshot: Snapshot) -> PlanningRows:
    """Return the rows that a replan would look at now."""
    planning = snapshot.manifest.planning
    if planning is None:
        raise InvalidSetting(
            "the settings of this vault were given, or planned on a separate table: every erasure is complete "
            "at once, and there is nothing to plan again"
        )
    return PlanningRows.read(snapshot.rows, snapshot.schema, planning)


@dataclass(frozen=True)
class Replan(Request):
    """Settings that were chosen again, which completes every earlier request."""

    planned: str  # the score of the plan, as text
    error_before: str  # the error on validation rows of the previous plan, and of this one; as text, empty if unknown
    error: str

    kind: ClassVar[str] = "replan"

    @classmethod
    def plan(
        cls, context: RequestContext, progress: ProgressCallback, prepared: PreparedPlan | None = None
    ) -> RequestPlan:
        """Plan to choose settings for the current rows, and to learn these from scratch.

        A prepared plan is used unchanged; it is refused if the choice could be different now.
        """
        snapshot = context.snapshot
        manifest, planning_rows = snapshot.manifest, read_planning_rows(snapshot)
        if prepared is None:
            prepared = PreparedPlan.choose(planning_rows, progress)
        elif prepared.fingerprint != planning_rows.fingerprint:
            raise PlanOutdated("rows that the plan looked at were changed since it was made: plan again")
        blueprint = prepared.load_blueprint(snapshot.state.blueprint)
        definition = ModelDefinition.write(context, snapshot.schema, blueprint)
        rows = deal_again(context, snapshot.rows, blueprint)
        state = learn_rows(context, blueprint, rows, progress)
        planning = replace(
            prepared.planning, drawn=planning_rows.drawn, rows=planning_rows.total, schema=definition.files[0].sum
        )
        error_before = None if manifest.planning is None else manifest.planning.error
        return RequestPlan(
            cls(0, 0, prepared.score, _format_error(error_before), _format_error(planning.error)),
            state,
            manifest.owners,
            manifest.erased,
            blueprint.code.learners,
            people=write_people_again(context, snapshot, rows),
            definition=definition,
            fresh=True,
            planning=planning,
            notes=(prepared.note,),
        )

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        missed.replanned = True

    def note(self) -> str | None:
        if not self.error or not self.error_before:
            return None
        before, after = float(self.error_before), float(self.error)
        if after <= before * (1 + _TOLERANCE) ** 2:
            return None
        return (
            f"the plan's error on validation rows is {after:.4g} of the variance instead of {before:.4g}: it was "
            "made without the people who left; rows of more people may give better settings"
        )


def deal_again(context: RequestContext, rows: RowFile, blueprint: Blueprint) -> RowFile:
    """Return the rows in the slots of a new blueprint; their bits are in a new file, which no manifest names yet."""
    before = rows.layout.dealt
    dealt = Placement(blueprint.key, blueprint.code.shards, before.batches, before.drawn)
    live = Bits.zeros(slots_needed(dealt.drawn, dealt.shards))
    for piece in cut(len(rows.live), 1):
        slots = piece.start + rows.live[piece].nonzero()[0]
        live[dealt.slots(before.rows(slots))] = True
    name = f"live.{context.number}"
    files.create(context.folder.dir / name, live.packed.data)
    layout = replace(rows.layout, bits_name=name, dealt=dealt)
    return RowFile(layout, live, None if context.workers is None else context.workers.sum_moments)


def write_people_again(
    context: RequestContext, snapshot: Snapshot, rows: RowFile, *, first: int = 0
) -> tuple[PeopleSegment, ...]:
    """Write the segments of people with the slots that their rows have now; tombstones stay.

    ``first`` is the number in the name of the first new segment.
    """
    before, dealt = snapshot.rows.layout.dealt, rows.layout.dealt
    segments = list[PeopleSegment]()
    for k, segment in enumerate(snapshot.people.segments):
        slots = segment.read_slots()
        slots[slots >= 0] = dealt.slots(before.rows(slots[slots >= 0]))
        segments.append(replace(segment.manifest_entry, name=f"people.{context.number}.{first + k}"))
        content = segment_bytes(segment.read_hashes(), slots, context.identity.seal)
        files.create(context.folder.dir / segments[k].name, *content)
    return tuple(segments)


def _format_error(error: float | None) -> str:
    return "" if error is None else repr(error)
