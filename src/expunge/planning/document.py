"""Plans as files: the settings of a model in TOML, for `expunge train --plan`, and back.

A plan file is input from outside and brings no code: whatever it says is checked as if a user had typed it.
"""

import json
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

if TYPE_CHECKING:
    from .planner import Plan

VERSION = 3
DIGITS = 4  # of the error in a score, and of its spread: these are read from rows, too

_SHAPE = ("shards", "rate", "alpha", "outside")
_IDENTITY = "identity"
_LEFT = "planned"  # in the place of a scale that a schema does not declare

_MOST_NAMES = 10  # that a message lists
_LARGEST = sys.float_info.max

Pair: TypeAlias = tuple[float, float] | None  # low and high, None if they are observed

_HEADER = """\
# A plan for a model, made by expunge plan; expunge train --plan takes it.
#
# It was chosen by looking at rows of people who may be erased later, and it stays as it is then. It is one of finitely
# many settings, so it tells at most as many bits about all of them together as [score] says.
"""


@dataclass(frozen=True)
class Score:
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
class Document:
    """What a plan file says."""

    inputs: tuple[str, ...]
    settings: Settings  # with scales only if the plan proposes them
    score: Score
    targets: tuple[str, ...] = ()
    # Scales of the schema that it was made for, of inputs and then targets; None is left to the plan.
    declared: list[Any] | None = None

    bounds: tuple[Pair, ...] = ()  # its bounds, of inputs and then targets; () declares none

    @classmethod
    def of(
        cls,
        plan: "Plan",
        inputs: Sequence[str],
        *,
        scales: bool,
        targets: Sequence[str] = (),
        declared: list[Any] | None = None,
        bounds: Sequence[Pair] = (),
    ) -> "Document":
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
        error, spread = (float(f"{value:.{DIGITS}g}") for value in (choice.error, choice.spread))
        score = Score(round(1 - error, DIGITS), error, spread, choice.forget_ms, plan.sampled, plan.bits)
        return cls(tuple(inputs), settings, score, tuple(targets), declared, tuple(bounds) if any(bounds) else ())

    def to_toml(self) -> str:
        """The file's text."""
        return "\n".join([_HEADER, *self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        settings, features = self.settings, self.settings.features
        yield from _entries({"version": VERSION, "inputs": list(self.inputs), "targets": list(self.targets)})
        if self.declared is not None:
            yield from _entries({"declared": [_LEFT if one is None else one for one in self.declared]})
        if self.bounds:
            yield from _entries({"bounds": [pair or () for pair in self.bounds]})
        for name in ("scales", "target_scales"):
            if (given := getattr(settings, name)) is not None:
                yield from _entries({name: given})
        yield from _entries({name: getattr(settings, name) for name in _SHAPE} | {"seed": settings.random_state})
        if isinstance(features, RandomFourierMap):
            yield "\n[features]"
            shape = {"cosines": features.n_features, "kernel": features.kernel, "linear": features.linear}
            order = {} if features.order is None else {"order": features.order}
            yield from _entries(shape | order | {"scale": features.scale, "seed": features.random_state})
        else:
            yield from _entries({"features": _IDENTITY})
        yield "\n[score]"
        yield from _entries(vars(self.score))

    @classmethod
    def parse(cls, text: str, *, name: str = "plan") -> "Document":
        """Read a plan file's text."""
        try:
            return cls._read(tomllib.loads(text))
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}: {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # of TOML, or of what it holds
            raise InvalidSetting(f"{name} is no plan: make one with expunge plan --out FILE") from None

    @classmethod
    def _read(cls, found: dict[str, Any]) -> "Document":
        if found["version"] != VERSION:
            raise InvalidSetting(f"a plan of version {found['version']!r}, this is version {VERSION}: plan again")
        inputs, targets, score = found["inputs"], found["targets"], found["score"]
        for name in ("inputs", "targets"):
            if not isinstance(found[name], list) or not all(isinstance(one, str) for one in found[name]):
                raise InvalidSetting(f"{name} must be a list of names")
        features = None if found["features"] == _IDENTITY else _drawn(dict(found["features"]))
        given = {name: found[name] for name in _SHAPE} | {name: found.get(name) for name in ("scales", "target_scales")}
        settings = Settings(**given, features=features, random_state=found["seed"])
        settings.check()
        Scales.of(settings.scales, len(inputs)), Scales.of_targets(settings.target_scales, len(targets))  # or refuse
        as_generator(settings.random_state)  # refuse what is no seed
        told = Score(**{one.name: _number(score[one.name]) for one in fields(Score)})
        declared = _declared(found.get("declared"), len(inputs), len(targets))
        bounds = _bounds(found.get("bounds"), len(inputs) + len(targets))
        return cls(tuple(inputs), settings, told, tuple(targets), declared, bounds)

    def promise(self, settings: Settings) -> str:
        """The score, in words, if these settings are those that were planned."""
        shape = (*_SHAPE, "features", "random_state")
        same = all(getattr(settings, name) == getattr(self.settings, name) for name in shape)
        return str(self.score) if same else ""

    def check(
        self,
        inputs: Sequence[str],
        targets: Sequence[str] = (),
        declared: list[Any] | None = None,
        bounds: Sequence[Pair] = (),
    ) -> None:
        """Refuse a table with other inputs, targets, declared scales or bounds than those that were planned for.

        Bounds may be declared where the plan had none: see `unbounded`.
        """
        if tuple(inputs) == self.inputs:
            what = "target" if tuple(targets) != self.targets else "scales" if declared != self.declared else ""
            if what:
                other = "another target" if what == "target" else "other scales"
                raise InvalidSetting(f"the plan was made for {other}, so its score says nothing of this: plan again")
            if moved := [name for name, ours, theirs in self._bounds(bounds) if ours is not None and ours != theirs]:
                which = named(moved)
                raise InvalidSetting(
                    f"the plan was made with other bounds of {which}, by which values are scaled: plan again"
                )
            return
        theirs, ours = set(inputs), set(self.inputs)
        what = f"{len(ours - theirs)} of its inputs are missing, {len(theirs - ours)} are new"
        if ours == theirs:
            what = "its inputs are in another order"
        raise InvalidSetting(f"the plan was made for another table or schema: {what}; plan again")

    def unbounded(self, bounds: Sequence[Pair]) -> list[str]:
        """The inputs and targets that have bounds now, and had none when the plan was made: its score is of others."""
        return [name for name, ours, theirs in self._bounds(bounds) if ours is None and theirs is not None]

    def _bounds(self, bounds: Sequence[Pair]) -> Iterator[tuple[str, Pair, Pair]]:
        """Inputs and targets with the bounds that were planned with, and others."""
        names = self.inputs + self.targets
        none = (None,) * len(names)
        return zip(names, self.bounds or none, bounds or none, strict=True)


def named(names: Sequence[str]) -> str:
    """Names in a message: quoted, and only so many that they can be read."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more


def _drawn(given: dict[str, Any]) -> RandomFourierMap:
    scale = np.array(given.pop("scale"), dtype=np.float64)
    features = RandomFourierMap(given.pop("cosines"), scale=scale, random_state=given.pop("seed"), **given)
    features.check()
    as_generator(features.random_state)  # refuse what is no seed
    return features


def _declared(found: object, inputs: int, targets: int) -> list[Any] | None:
    """The scales that a schema declared, None where it left them to the plan."""
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != inputs + targets:
        raise InvalidSetting(
            f"declared must be a list with one scale for each of {inputs + targets} inputs and targets"
        )
    try:
        said = ["linear" if one == _LEFT else one for one in found]  # refuse what is none
        Scales.of(said[:inputs], inputs), Scales.of_targets(said[inputs:], targets)
    except InvalidSetting as error:
        raise InvalidSetting(f"declared: {error}") from None
    return [None if one == _LEFT else one for one in found]


def _bounds(found: object, count: int) -> tuple[Pair, ...]:
    """The bounds that a schema declared, None where they are observed."""
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) != count or not all(map(_is_pair, found)):
        raise InvalidSetting(f"bounds must be a list with low and high of {count} inputs and targets, or nothing ([])")
    return tuple((float(pair[0]), float(pair[1])) if pair else None for pair in found)


def _is_pair(found: object) -> bool:
    """Whether this is [low, high], finite and in this order, or []."""
    if not isinstance(found, list) or len(found) not in (0, 2):
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in found)
    return numbers and (not found or -_LARGEST <= found[0] <= found[1] <= _LARGEST)


def _number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting("score must have numbers only")
    return value


def _entries(values: dict[str, Any]) -> Iterator[str]:
    yield from (f"{name} = {_literal(value)}" for name, value in values.items())


def _literal(value: Any) -> str:
    """A value in TOML, whose texts, numbers, booleans and lists are JSON's, but for characters that do not print."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float):
        return repr(float(value))  # of NumPy's, too
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: _escaped(found[0]), text) if isinstance(value, str) else text


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
