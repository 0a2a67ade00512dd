"""Settings: what a user asks of a model, before anything is drawn."""

from dataclasses import dataclass, fields
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from ..encoding.bounds import BoundsLike
from ..encoding.codes import Code, random_code
from ..encoding.encoder import Outside
from ..encoding.features import FeatureMap
from ..encoding.randomness import Seed
from ..encoding.scales import ScalesLike
from ..encoding.values import as_float, flag, whole_number
from ..errors import InvalidSetting

Aggregate: TypeAlias = Literal["mean", "median", "pooled", "vote"]
Keep: TypeAlias = Literal["rows", "coded"]

AGGREGATES: tuple[Aggregate, ...] = ("mean", "median", "pooled", "vote")

_CHOICES = {"aggregate": AGGREGATES, "keep": ("rows", "coded"), "outside": ("clamp", "extrapolate")}


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of a model, with the meanings and defaults of `CodedRegressor`."""

    shards: int = 5
    rate: float = 5
    density: float | None = None
    balanced: bool = True
    code: Code | None = None
    features: FeatureMap | None = None
    alpha: float = 1e-3
    fit_intercept: bool = True
    learner: Any = "ridge"
    aggregate: Aggregate = "mean"
    bounds: BoundsLike = None
    target_bounds: BoundsLike = None
    scales: ScalesLike = None
    target_scales: ScalesLike = None
    clip: bool = False
    outside: Outside = "clamp"
    keep: Keep = "rows"
    random_state: Seed = None

    @classmethod
    def from_model(cls, model: object) -> Self:
        """Read the settings of a model from its attributes."""
        names = [field.name for field in fields(cls)]
        if isinstance(model, type) or not all(hasattr(model, name) for name in names):
            got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
            advice = "pass an instance"
            if hasattr(model, "steps"):  # a pipeline: its scaler would have learned from people who are erased later
                advice = "pass its last step alone, and declare the columns in a schema"
            if hasattr(model, "class_power"):
                advice = "classes are for models in memory; declare a yes/no target as a number, 0 and 1"
            raise InvalidSetting(f"model must be a CodedRegressor or Settings, got {got}; {advice}")
        return cls(**{name: getattr(model, name) for name in names})

    def check(self) -> None:
        """Refuse values that are invalid in any model; other values are checked where they are used."""
        given = self.code is not None  # unused parameters may also be None
        if not (given and self.shards is None):
            whole_number("shards", self.shards)
        for name, value, least, used in (("rate", self.rate, 1, not given), ("alpha", self.alpha, 0, self._is_ridge)):
            if not least <= as_float(value) < np.inf and (used or value is not None):
                raise InvalidSetting(f"{name} must be a number of at least {least}, got {value!r}")
        if self.density is not None and not 0 < as_float(self.density) <= 1:
            raise InvalidSetting(f"density must be a number in (0, 1], got {self.density!r}")
        for name in ("balanced", "fit_intercept", "clip"):
            flag(name, getattr(self, name))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in choices:
                raise InvalidSetting(f"{name} must be one of {choices}, got {value!r}")
        if self.features is not None and not isinstance(self.features, FeatureMap):
            raise InvalidSetting(
                "features must be None, Powers(...), RandomFourier(...) or an instance of your own FeatureMap, "
                f"got {self.features!r}"
            )
        if self.code is not None and not isinstance(self.code, Code):
            raise InvalidSetting(f"code must be a Code, got {type(self.code).__name__}; use Code(G)")
        if isinstance(self.learner, str) and self.learner != "ridge":
            raise InvalidSetting(f"learner must be 'ridge' or a scikit-learn regressor, got {self.learner!r}")

    @property
    def _is_ridge(self) -> bool:
        return isinstance(self.learner, str)

    def draw_code(self, rng: np.random.Generator) -> Code:
        """Return the given code, or draw one."""
        if self.code is not None:
            return self.code
        s, rate = whole_number("shards", self.shards), as_float(self.rate)
        learners = round(s / rate)
        if learners < 1 or abs(learners * rate - s) > 1e-9 * s:
            multiples = rate * np.arange(1, s + 2)
            whole = multiples[(multiples > s) & (np.abs(multiples - multiples.round()) < 1e-9)]  # valid shards
            fix = f"use shards={whole[0]:.0f}" if len(whole) else "use a whole number as rate"
            raise InvalidSetting(f"shards must be a multiple of rate, got shards={s}, rate={rate:g}; {fix}")
        return random_code(s, learners, density=self.density, balanced=self.balanced, random_state=rng)
