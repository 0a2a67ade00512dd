"""Choice: settings as a function of rows and the people they belong to.

`expunge train`, a vault's replan and `PlannedRegressor` all choose with this one function, so a replan gives the
settings that would have been chosen without the people who left.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..encoding.fourier import RandomFourierMap
from ..exact.arrays import Floats
from ..learning.settings import Settings
from ..tables import Schema
from .plan_file import PlanScore
from .planner import Plan, plan_people
from .sample import MAX_QUICK_ROWS, MAX_SAMPLE_ROWS, Hashes, TooFewRows

_DECLARED = ("bounds", "target_bounds", "scales", "target_scales")  # what a schema declares


@dataclass(frozen=True, eq=False)
class SettingsChoice:
    """Settings, and the people whose rows were looked at to choose them.

    Attributes
    ----------
    settings : Settings
        With the bounds and scales that a schema declares.
    people, largest_hash : int
        The number of these people, and the largest of their hashes; 0 people if there were too few rows for a plan.
    error : float or None
        The mean squared error on validation rows, over the target's variance, rounded.
    score : str
        The same in words.
    note : str
        What was chosen, in words.
    """

    settings: Settings
    people: int
    largest_hash: int
    error: float | None
    score: str
    note: str

    @classmethod
    def from_plan(cls, plan: Plan) -> "SettingsChoice":
        """Return what a plan chose."""
        choice, score = plan.choice, PlanScore.from_plan(plan)
        log = ", target on a log scale" if "log" in choice.target_scales else ""
        note = f"planned: {choice.code}, {choice.in_words}, alpha={choice.alpha:g}{log}: {score}"
        return cls(Settings.from_model(plan.best), plan.people, plan.largest_hash, score.error, str(score), note)


def choose_settings(
    X: Floats,
    y: Floats,
    hashes: Hashes,
    schema: Schema | None,
    *,
    seed: int,
    quick: bool,
    forget_ms: float | None,
    max_features: int,
    clip: bool,
    rows: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> SettingsChoice:
    """Plan on these rows; if they are too few for a plan, choose one linear learner.

    Parameters
    ----------
    X, y : array, shape (n, d) and (n, t)
        All rows, or those of the people with the smallest hashes.
    hashes : array of uint64, shape (n,)
        The keyed hash of each row's person.
    schema : Schema or None
        Its declarations are kept.
    seed, quick, forget_ms, max_features, clip, rows, progress
        As in `plan`.
    """
    declared = dict.fromkeys(_DECLARED) if schema is None else schema.plan_options()
    search: dict[str, Any] = {"forget_ms": forget_ms, "max_features": max_features, "quick": quick}
    try:
        return SettingsChoice.from_plan(
            plan_people(
                X, y, hashes, **declared, **search, clip=clip, random_state=seed, references=False, rows=rows,
                progress=progress,
            )
        )  # fmt: skip
    except TooFewRows as error:
        scales = {} if schema is None else {"scales": schema.scales()}
        line = Settings(shards=1, rate=1, clip=clip, random_state=seed, **(declared | scales))
        target_scales = [scale or "linear" for scale in line.target_scales or []] or None
        line = replace(line, target_scales=target_scales)
        return SettingsChoice(line, 0, 0, None, "", f"{error}; training one linear learner")


class SettingsPlanner:
    """The planner of a vault: chooses settings for rows in the columns of its schema."""

    def sample_size(self, *, quick: bool) -> int:
        """Return the largest number of rows that a plan looks at."""
        return MAX_QUICK_ROWS if quick else MAX_SAMPLE_ROWS

    def choose(
        self, X: Floats, y: Floats, ranks: Hashes, schema: Schema, *, rows: int, **options: Any
    ) -> SettingsChoice:
        """Choose settings for ``rows`` rows like these; the schema's bounds and scales are left to the vault."""
        chosen = choose_settings(X, y, ranks, schema, clip=True, rows=rows, **options)
        return replace(chosen, settings=strip_declared(chosen.settings, schema))


def strip_declared(settings: Settings, schema: Schema) -> Settings:
    """Return settings without what a schema declares: a vault takes that from the schema."""
    features = settings.features
    if features is not None:
        features = RandomFourierMap(**features.get_params())
    to_plan = schema.scales_to_plan()
    scales = settings.scales if to_plan is None or None in to_plan else None
    return replace(settings, features=features, bounds=None, target_bounds=None, scales=scales, clip=False)
