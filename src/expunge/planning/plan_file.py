"""Plan files: the settings of a model in TOML, written by `expunge plan` and read by `expunge train --plan`.

A plan file is untrusted input. It cannot carry code, and its settings are checked as if a user had typed them.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..encoding.fourier import RandomFourierMap
from ..encoding.randomness import as_generator
from ..encoding.scales import Scales
from ..errors import InvalidSetting
from ..learning.settings import Settings
from ..tables import quote_names, toml_literal

if TYPE_CHECKING:
    from .planner import Plan

PLAN_VERSION = 4
SCORE_DIGITS = 4  # digits of the error in a score, and of its spread: these are computed from people's rows

_MODEL_KEYS = ("shards", "rate", "alpha", "outside")
_IDENTITY = "identity"
_PLANNED = "planned"  # stands for a scale that the schema does not declare
_MAX_FLOAT = sys.float_info.max

BoundPair: TypeAlias = tuple[float, float] | None  # low and high, None if they are observed

_HEADER = """\
# A plan for a model, made by expunge plan, for use with expunge train --plan.
#
# It was chosen by looking at rows of people who may be erased later, and does not change when they are: expunge replan
# chooses settings anew in the vault, as [search] says. The plan is one of a finite number of settings, so it reveals at
# most as many bits about all of these people together as [score] says.
"""


@dataclass(frozen=True)
class PlanScore:
    """The score of the choice on validation rows; ``error`` is the mean squared error over the target's variance."""

    r2: float
    error: float
    spread: float
    forget_ms: float
    sampled: int
    bits: float

    @classmethod
    def from_plan(cls, plan: "Plan") -> "PlanScore":
        """Return the score of a plan's choice, rounded."""
        choice = plan.choice
        error, spread = (float(f"{value:.{SCORE_DIGITS}g}") for value in (choice.error, choice.spread))
        return cls(round(1 - error, SCORE_DIGITS), error, spread, choice.forget_ms, plan.sampled, plan.bits)

    def __str__(self) -> str:
        mean = ", no better than the mean" if self.r2 <= self.spread else ""
        return f"R2 {self.r2:.4f} on validation rows{mean}, of {self.sampled:,} sampled rows"


@dataclass(frozen=True)
class PlanSearch:
    """How a plan searched and at whose rows it looked, so that a vault can plan again; the seed is the model's.

    ``people`` is how many people it looked at, those with hashes up to ``largest_hash``; 0 if the rows were those of
    a separate table, unrelated to the people in the vault.
    """

    quick: bool
    forget_ms: float | None
    max_features: int
    people: int
    largest_hash: int

    @classmethod
    def from_plan(cls, plan: "Plan", *, own_rows: bool) -> "PlanSearch":
        """Return how a plan searched; ``own_rows`` says whether on rows of the people to be learned."""
        people, largest = (plan.people, plan.largest_hash) if own_rows else (0, 0)
        return cls(plan.quick, plan.forget_ms, plan.max_features, people, largest)

    def to_keys(self) -> dict[str, Any]:
        """Return the section of a plan file; the hash is text, because TOML readers may refuse such large numbers."""
        limit = {} if self.forget_ms is None else {"forget_ms": self.forget_ms}
        search = {"quick": self.quick, **limit, "max_features": self.max_features, "people": self.people}
        return search | {"largest_hash": f"{self.largest_hash:016x}"}

    @classmethod
    def from_keys(cls, keys: dict[str, Any]) -> "PlanSearch":
        """Read the section of a plan file."""
        quick, text, limit = keys["quick"], keys["largest_hash"], keys.get("forget_ms")
        features, people = _check_count("max_features", keys["max_features"]), _check_count("people", keys["people"])
        if type(quick) is not bool or not re.fullmatch("[0-9a-f]{16}", text):
            raise InvalidSetting("search must hold quick, max_features, people and a hash of 16 digits")
        if limit is not None and not 0 < _check_number(limit) <= _MAX_FLOAT:
            raise InvalidSetting("forget_ms must be a number of milliseconds above 0")
        return cls(quick, limit, features, people, int(text, 16))


@dataclass(frozen=True, eq=False)
class PlanFile:
    """The contents of a plan file."""

    inputs: tuple[str, ...]
    settings: Settings  # with scales only if the plan proposes them
    score: PlanScore
    search: PlanSearch
    targets: tuple[str, ...] = ()
    # The schema that it was made for declares, of inputs and then targets:
    declared: list[Any] | None = None  # scales; None as an entry leaves one to the plan
    bounds: tuple[BoundPair, ...] = ()  # bounds; () declares none

    @classmethod
    def from_plan(
        cls,
        plan: "Plan",
        inputs: Sequence[str],
        *,
        scales: bool,
        targets: Sequence[str] = (),
        declared: list[Any] | None = None,
        bounds: Sequence[BoundPair] = (),
        own_rows: bool = True,
    ) -> "PlanFile":
        """Return the file of a plan for these inputs and targets, with the scales and bounds that a schema declares.

        ``scales`` says whether the plan chose scales, ``own_rows`` whether it looked at rows that will be learned.
        """
        best = plan.best
        features = None if best.features is None else RandomFourierMap(**best.features.get_params())
        settings = Settings(
            shards=best.shards,
            rate=best.rate,
            features=features,
            alpha=best.alpha,
            scales=best.scales if scales else None,
            target_scales=best.target_scales,
            outside=best.outside,
            random_state=best.random_state,
        )
        score, search = PlanScore.from_plan(plan), PlanSearch.from_plan(plan, own_rows=own_rows)
        bound_pairs = tuple(bounds) if any(bounds) else ()
        return cls(tuple(inputs), settings, score, search, tuple(targets), declared, bound_pairs)

    def to_toml(self) -> str:
        """Return the file's text."""
        settings, features = self.settings, self.settings.features
        keys: dict[str, Any] = {"version": PLAN_VERSION, "inputs": self.inputs, "targets": self.targets}
        if self.declared is not None:
            keys["declared"] = [_PLANNED if scale is None else scale for scale in self.declared]
        if self.bounds:
            keys["bounds"] = [pair or () for pair in self.bounds]
        for name in ("scales", "target_scales"):
            if (scales := getattr(settings, name)) is not None:
                keys[name] = scales
        keys |= {name: getattr(settings, name) for name in _MODEL_KEYS} | {"seed": settings.random_state}
        sections: dict[str, dict[str, Any]] = {"": keys}
        if isinstance(features, RandomFourierMap):
            shape = {"cosines": features.n_features, "kernel": features.kernel, "linear": features.linear}
            order = {} if features.order is None else {"order": features.order}
            sections["\n[features]\n"] = shape | order | {"scale": features.scale, "seed": features.random_state}
        else:
            keys["features"] = _IDENTITY
        sections["\n[search]\n"] = self.search.to_keys()
        sections["\n[score]\n"] = vars(self.score)
        lines = [
            title + "\n".join(f"{name} = {toml_literal(value)}" for name, value in entries.items())
            for title, entries in sections.items()
        ]
        return "\n".join([_HEADER, *lines, ""])

    @classmethod
    def parse(cls, text: str, *, name: str = "plan") -> "PlanFile":
        """Read a plan file's text."""
        try:
            return cls._from_toml(tomllib.loads(text))
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # invalid TOML, or invalid values
            raise InvalidSetting(f"{name} is not a plan: make one with expunge plan --out FILE") from None

    @classmethod
    def _from_toml(cls, keys: dict[str, Any]) -> "PlanFile":
        if keys["version"] != PLAN_VERSION:
            raise InvalidSetting(
                f"the plan has version {keys['version']!r}, expected version {PLAN_VERSION}: plan again"
            )
        inputs, targets, score = keys["inputs"], keys["targets"], keys["score"]
        for name in ("inputs", "targets"):
            if not isinstance(keys[name], list) or not all(isinstance(column, str) for column in keys[name]):
                raise InvalidSetting(f"{name} must be a list of names")
        features = None if keys["features"] == _IDENTITY else _read_features(dict(keys["features"]))
        values = {name: keys[name] for name in _MODEL_KEYS}
        values |= {name: keys.get(name) for name in ("scales", "target_scales")}
        settings = Settings(**values, features=features, random_state=keys["seed"])
        settings.check()
        Scales.parse(settings.scales, len(inputs))  # refuses invalid scales
        Scales.parse_targets(settings.target_scales, len(targets))
        as_generator(settings.random_state)  # refuses an invalid seed
        plan_score = PlanScore(**{field.name: _check_number(score[field.name]) for field in fields(PlanScore)})
        declared = _read_declared_scales(keys.get("declared"), len(inputs), len(targets))
        bounds = _read_bounds(keys.get("bounds"), len(inputs) + len(targets))
        search = PlanSearch.from_keys(keys["search"])
        return cls(tuple(inputs), settings, plan_score, search, tuple(targets), declared, bounds)

    def describe_score(self, settings: Settings) -> str:
        """Return the score in words, or "" if these settings are not those that were planned."""
        shape = (*_MODEL_KEYS, "features", "random_state")
        same = all(getattr(settings, name) == getattr(self.settings, name) for name in shape)
        return str(self.score) if same else ""

    def check(
        self,
        inputs: Sequence[str],
        targets: Sequence[str] = (),
        declared: list[Any] | None = None,
        bounds: Sequence[BoundPair] = (),
    ) -> None:
        """Refuse a table whose inputs, targets, declared scales or bounds differ from those of the plan.

        Bounds may be declared where the plan had none: see `newly_bounded`.
        """
        if tuple(inputs) != self.inputs:
            planned, present = set(self.inputs), set(inputs)
            difference = f"{len(planned - present)} of its inputs are missing, {len(present - planned)} are new"
            if planned == present:
                difference = "its inputs are in a different order"
            raise InvalidSetting(f"the plan was made for a different table or schema: {difference}; plan again")
        if tuple(targets) != self.targets or declared != self.declared:
            other = "a different target" if tuple(targets) != self.targets else "different scales"
            raise InvalidSetting(f"the plan was made for {other}, so its score does not apply: plan again")
        moved = [name for name, planned, now in self._pair_bounds(bounds) if planned is not None and planned != now]
        if moved:
            raise InvalidSetting(
                f"the plan was made with different bounds of {quote_names(moved)}, which scale the values: plan again"
            )

    def newly_bounded(self, bounds: Sequence[BoundPair]) -> list[str]:
        """Return the inputs and targets that have bounds now but had none in the plan, so its score does not apply."""
        return [name for name, planned, now in self._pair_bounds(bounds) if planned is None and now is not None]

    def _pair_bounds(self, bounds: Sequence[BoundPair]) -> Iterator[tuple[str, BoundPair, BoundPair]]:
        """Yield every input and target with its bounds in the plan and its bounds now."""
        names = self.inputs + self.targets
        none = (None,) * len(names)
        return zip(names, self.bounds or none, bounds or none, strict=True)


def _read_features(keys: dict[str, Any]) -> RandomFourierMap:
    scale = np.array(keys.pop("scale"), dtype=np.float64)
    features = RandomFourierMap(keys.pop("cosines"), scale=scale, random_state=keys.pop("seed"), **keys)
    features.check()
    as_generator(features.random_state)  # refuses an invalid seed
    return features


def _read_declared_scales(value: object, inputs: int, targets: int) -> list[Any] | None:
    """Return the scales that a schema declared, None where it left them to the plan."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != inputs + targets:
        raise InvalidSetting(
            f"declared must be a list with one scale for each of {inputs + targets} inputs and targets"
        )
    try:
        scales = ["linear" if scale == _PLANNED else scale for scale in value]
        Scales.parse(scales[:inputs], inputs)  # refuses invalid scales
        Scales.parse_targets(scales[inputs:], targets)
    except InvalidSetting as error:
        raise InvalidSetting(f"declared: {error}") from None
    return [None if scale == _PLANNED else scale for scale in value]


def _read_bounds(value: object, count: int) -> tuple[BoundPair, ...]:
    """Return the bounds that a schema declared, None where they are observed."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) != count or not all(map(_is_pair, value)):
        raise InvalidSetting(f"bounds must be a list of [low, high], or [] for none, of {count} inputs and targets")
    return tuple((float(pair[0]), float(pair[1])) if pair else None for pair in value)


def _is_pair(value: object) -> bool:
    """Return whether a value is [low, high], finite and in this order, or []."""
    if not isinstance(value, list) or len(value) not in (0, 2):
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in value)
    return numbers and (not value or -_MAX_FLOAT <= value[0] <= value[1] <= _MAX_FLOAT)


def _check_count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidSetting(f"{name} must be a whole number of at least 0")
    return value


def _check_number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting("score must hold only numbers")
    return value
