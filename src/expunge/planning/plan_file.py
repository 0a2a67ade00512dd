"""Plans as files: the settings of a model in TOML, for `expunge train --plan`, and back.

A plan file is input from outside and brings no code: whatever it says is checked as if a user had typed it.
"""

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

PLAN_VERSION = 3
SCORE_DIGITS = 4  # of the error in a score, and of its spread: these are read from rows, too

_MODEL_KEYS = ("shards", "rate", "alpha", "outside")
_IDENTITY = "identity"
_PLANNED = "planned"  # in the place of a scale that a schema does not declare

_MAX_FLOAT = sys.float_info.max

BoundPair: TypeAlias = tuple[float, float] | None  # low and high, None if they are observed

_HEADER = """\
# A plan for a model, made by expunge plan; expunge train --plan takes it.
#
# It was chosen by looking at rows of people who may be erased later, and it stays as it is then. It is one of finitely
# many settings, so it tells at most as many bits about all of them together as [score] says.
"""


@dataclass(frozen=True)
class PlanScore:
    """How the choice did on validation rows: ``error`` is its mean squared error over the target's variance."""

    r2: float
    error: float
    spread: float
    forget_ms: float
    sampled: int
    bits: float

    def __str__(self) -> str:
        return f"R2 {self.r2:.4f} on validation rows of {self.sampled:,} that were looked at"


@dataclass(frozen=True, eq=False)
class PlanFile:
    """What a plan file says."""

    inputs: tuple[str, ...]
    settings: Settings  # with scales only if the plan proposes them
    score: PlanScore
    targets: tuple[str, ...] = ()
    # Scales of the schema that it was made for, of inputs and then targets; None is left to the plan.
    declared: list[Any] | None = None

    bounds: tuple[BoundPair, ...] = ()  # its bounds, of inputs and then targets; () declares none

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
    ) -> "PlanFile":
        """The document of a plan for these inputs and targets, and the scales and bounds that a schema declares.

        ``scales`` says whether the plan chose scales.
        """
        choice, best = plan.choice, plan.best
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
        error, spread = (float(f"{value:.{SCORE_DIGITS}g}") for value in (choice.error, choice.spread))
        score = PlanScore(round(1 - error, SCORE_DIGITS), error, spread, choice.forget_ms, plan.sampled, plan.bits)
        return cls(tuple(inputs), settings, score, tuple(targets), declared, tuple(bounds) if any(bounds) else ())

    def to_toml(self) -> str:
        """The file's text."""
        return "\n".join([_HEADER, *self._toml_lines(), ""])

    def _toml_lines(self) -> Iterator[str]:
        settings, features = self.settings, self.settings.features
        yield from _toml_entries({"version": PLAN_VERSION, "inputs": list(self.inputs), "targets": list(self.targets)})
        if self.declared is not None:
            yield from _toml_entries({"declared": [_PLANNED if one is None else one for one in self.declared]})
        if self.bounds:
            yield from _toml_entries({"bounds": [pair or () for pair in self.bounds]})
        for name in ("scales", "target_scales"):
            if (given := getattr(settings, name)) is not None:
                yield from _toml_entries({name: given})
        yield from _toml_entries(
            {name: getattr(settings, name) for name in _MODEL_KEYS} | {"seed": settings.random_state}
        )
        if isinstance(features, RandomFourierMap):
            yield "\n[features]"
            shape = {"cosines": features.n_features, "kernel": features.kernel, "linear": features.linear}
            order = {} if features.order is None else {"order": features.order}
            yield from _toml_entries(shape | order | {"scale": features.scale, "seed": features.random_state})
        else:
            yield from _toml_entries({"features": _IDENTITY})
        yield "\n[score]"
        yield from _toml_entries(vars(self.score))

    @classmethod
    def parse(cls, text: str, *, name: str = "plan") -> "PlanFile":
        """Read a plan file's text."""
        try:
            return cls._from_toml(tomllib.loads(text))
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # of TOML, or of what it holds
            raise InvalidSetting(f"{name} is no plan: make one with expunge plan --out FILE") from None

    @classmethod
    def _from_toml(cls, keys: dict[str, Any]) -> "PlanFile":
        if keys["version"] != PLAN_VERSION:
            raise InvalidSetting(f"a plan of version {keys['version']!r}, this is version {PLAN_VERSION}: plan again")
        inputs, targets, score = keys["inputs"], keys["targets"], keys["score"]
        for name in ("inputs", "targets"):
            if not isinstance(keys[name], list) or not all(isinstance(one, str) for one in keys[name]):
                raise InvalidSetting(f"{name} must be a list of names")
        features = None if keys["features"] == _IDENTITY else _read_features(dict(keys["features"]))
        given = {name: keys[name] for name in _MODEL_KEYS} | {
            name: keys.get(name) for name in ("scales", "target_scales")
        }
        settings = Settings(**given, features=features, random_state=keys["seed"])
        settings.check()
        (
            Scales.parse(settings.scales, len(inputs)),
            Scales.parse_targets(settings.target_scales, len(targets)),
        )  # or refuse
        as_generator(settings.random_state)  # refuse what is no seed
        told = PlanScore(**{one.name: _check_number(score[one.name]) for one in fields(PlanScore)})
        declared = _read_declared_scales(keys.get("declared"), len(inputs), len(targets))
        bounds = _read_bounds(keys.get("bounds"), len(inputs) + len(targets))
        return cls(tuple(inputs), settings, told, tuple(targets), declared, bounds)

    def describe_score(self, settings: Settings) -> str:
        """The score, in words, if these settings are those that were planned."""
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
        """Refuse a table with other inputs, targets, declared scales or bounds than those that were planned for.

        Bounds may be declared where the plan had none: see `unbounded`.
        """
        if tuple(inputs) == self.inputs:
            what = "target" if tuple(targets) != self.targets else "scales" if declared != self.declared else ""
            if what:
                other = "another target" if what == "target" else "other scales"
                raise InvalidSetting(f"the plan was made for {other}, so its score says nothing of this: plan again")
            if moved := [
                name for name, ours, theirs in self._pair_bounds(bounds) if ours is not None and ours != theirs
            ]:
                which = quote_names(moved)
                raise InvalidSetting(
                    f"the plan was made with other bounds of {which}, by which values are scaled: plan again"
                )
            return
        theirs, ours = set(inputs), set(self.inputs)
        what = f"{len(ours - theirs)} of its inputs are missing, {len(theirs - ours)} are new"
        if ours == theirs:
            what = "its inputs are in another order"
        raise InvalidSetting(f"the plan was made for another table or schema: {what}; plan again")

    def newly_bounded(self, bounds: Sequence[BoundPair]) -> list[str]:
        """The inputs and targets that have bounds now, and had none when the plan was made: its score is of others."""
        return [name for name, ours, theirs in self._pair_bounds(bounds) if ours is None and theirs is not None]

    def _pair_bounds(self, bounds: Sequence[BoundPair]) -> Iterator[tuple[str, BoundPair, BoundPair]]:
        """Inputs and targets with the bounds that were planned with, and others."""
        names = self.inputs + self.targets
        none = (None,) * len(names)
        return zip(names, self.bounds or none, bounds or none, strict=True)


def _read_features(given: dict[str, Any]) -> RandomFourierMap:
    scale = np.array(given.pop("scale"), dtype=np.float64)
    features = RandomFourierMap(given.pop("cosines"), scale=scale, random_state=given.pop("seed"), **given)
    features.check()
    as_generator(features.random_state)  # refuse what is no seed
    return features


def _read_declared_scales(value: object, inputs: int, targets: int) -> list[Any] | None:
    """The scales that a schema declared, None where it left them to the plan."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != inputs + targets:
        raise InvalidSetting(
            f"declared must be a list with one scale for each of {inputs + targets} inputs and targets"
        )
    try:
        said = ["linear" if one == _PLANNED else one for one in value]  # refuse what is none
        Scales.parse(said[:inputs], inputs), Scales.parse_targets(said[inputs:], targets)
    except InvalidSetting as error:
        raise InvalidSetting(f"declared: {error}") from None
    return [None if one == _PLANNED else one for one in value]


def _read_bounds(value: object, count: int) -> tuple[BoundPair, ...]:
    """The bounds that a schema declared, None where they are observed."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) != count or not all(map(_is_pair, value)):
        raise InvalidSetting(f"bounds must be a list with low and high of {count} inputs and targets, or nothing ([])")
    return tuple((float(pair[0]), float(pair[1])) if pair else None for pair in value)


def _is_pair(value: object) -> bool:
    """Whether this is [low, high], finite and in this order, or []."""
    if not isinstance(value, list) or len(value) not in (0, 2):
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in value)
    return numbers and (not value or -_MAX_FLOAT <= value[0] <= value[1] <= _MAX_FLOAT)


def _check_number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting("score must have numbers only")
    return value


def _toml_entries(values: dict[str, Any]) -> Iterator[str]:
    yield from (f"{name} = {toml_literal(value)}" for name, value in values.items())
