"""Feature maps: from inputs in [0, 1] to D numbers in [-1, 1], the same bits on every machine.

A map is drawn once, from the number of inputs and a seed, never from data. It uses only operations that IEEE 754 fixes
to the last bit (+, -, *, rint) and matrix products whose partial sums are all exact, so that a feature depends neither
on the block size nor on the processor.
"""

import copy
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from ..exact.native import kernels, native_map
from .randomness import as_generator
from .values import plain_value, whole_number


class FeatureMap(ABC):
    """Base class of feature maps. Subclass it to write your own: see ``docs/feature-maps.md``.

    As in scikit-learn, ``__init__`` stores its parameters under their names and does nothing else; so a map can be
    copied, searched (``features__degree``) and described. A parameter ``random_state`` is a seed: digests contain what
    it drew, not the seed.
    """

    n_features_in_: int  # d, set by `draw_copy` or `restore`

    map_name: ClassVar[str]  # in digests and files
    is_custom: ClassVar[bool]  # whether the user wrote it: code that is not in any file

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.map_name, cls.is_custom = name or cls.__name__, name is None  # a user's subclass of our map is custom

    @property
    @abstractmethod
    def n_out(self) -> int:
        """The number of features, D."""

    @abstractmethod
    def map_block(self, scaled: Floats, unit: float = 1.0) -> Floats:
        """Compute the features of a few rows times ``unit``, a power of two: (b, d) -> (b, D), a new array."""

    def native(self, unit: float) -> Any:
        """Return the `Map` of the extension that computes the same features times ``unit``; None if there is none."""
        return None

    def check(self) -> None:  # noqa: B027 - most maps have nothing to refuse
        """Refuse invalid parameters."""

    def draw(self, n_inputs: int, rng: np.random.Generator) -> None:  # noqa: B027 - nor to draw
        """Draw the random part for ``n_inputs`` columns, as integers; `arrays` returns it."""

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return the draws as integers: `restore` builds the same map from them."""
        return {}

    def restore(self, n_inputs: int, arrays: dict[str, NDArray[np.int64]]) -> Self:
        """Set the draws to ``arrays``; refuse arrays that this map cannot have drawn."""
        if arrays:
            raise InvalidSetting(f"{self.map_name} draws no arrays, got {sorted(arrays)}")
        self.check()
        self.n_features_in_ = n_inputs
        return self

    def draw_copy(self, n_inputs: int, rng: np.random.Generator) -> Self:
        """Return a new map with these parameters, drawn from its own seed if it has one, else from ``rng``."""
        fresh = self.copy()
        fresh.check()
        fresh.n_features_in_ = n_inputs
        seed = getattr(fresh, "random_state", None)
        fresh.draw(n_inputs, rng if seed is None else as_generator(seed))
        for name, array in fresh.arrays().items():
            if np.asarray(array).dtype.kind not in "iu":  # floats would be truncated in digests and files
                raise InvalidSetting(
                    f"{self.map_name}.arrays must return integers, {name!r} is {np.asarray(array).dtype}"
                )
        return fresh

    def copy(self) -> Self:
        """Return a new map with the same parameters, not drawn."""
        return type(self)(**copy.deepcopy(self.get_params(deep=False)))

    def describe(self) -> dict[str, Any]:
        """Return name and parameters without the seed, as plain JSON values; an array as its shape and a hash."""
        large = self.array_params()
        params = {
            name: _summary(large[name])
            if name in large
            else plain_value(f"the parameter {name} of {self.map_name}", value)
            for name, value in FeatureMap.get_params(self).items()
            if name != "random_state"
        }
        return {"name": self.map_name, "params": params}

    def array_params(self) -> dict[str, Floats]:
        """Return the parameters that are arrays of numbers, by name."""
        return {
            name: value.astype("<f8")
            for name, value in FeatureMap.get_params(self).items()
            if isinstance(value, np.ndarray) and value.dtype.kind in "iuf"
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of ``__init__``, by name."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        for name, value in params.items():
            if name not in (known := _defaults(type(self))):
                raise InvalidSetting(f"{self.map_name} has no parameter {name!r}; it has {', '.join(known) or 'none'}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = _defaults(type(self))
        changed = [
            f"{n}={_format_value(v)}" for n, v in FeatureMap.get_params(self).items() if repr(v) != repr(defaults[n])
        ]
        return f"{self.map_name}({', '.join(changed)})"


@cache
def _native_identity(inputs: int, unit: float) -> Any:
    """Make the `Map` of the extension that returns its inputs."""
    return native_map(np.empty((inputs + 1, 0)), np.empty(8), True, unit)


def _format_value(value: Any) -> str:
    """Format a parameter on one line, at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _summary(array: Floats) -> dict[str, Any]:
    return {"shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}


@cache
def _defaults(kind: type) -> Mapping[str, Any]:
    """Return the parameters of a class, with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise InvalidSetting(f"{kind.__name__}.__init__ must name its parameters, without * or **")
    return MappingProxyType({p.name: p.default for p in parameters})


class IdentityMap(FeatureMap, name="Identity"):
    """The scaled inputs as they are: a linear model."""

    @property
    def n_out(self) -> int:
        return self.n_features_in_

    def map_block(self, scaled: Floats, unit: float = 1.0) -> Floats:
        return scaled * unit

    def native(self, unit: float) -> Any:
        return None if kernels() is None else _native_identity(self.n_features_in_, unit)


class PowersMap(FeatureMap, name="Powers"):
    """Element-wise powers X, X^2, ..., X^degree without interactions, as in the paper's polynomials."""

    def __init__(self, degree: int = 2) -> None:
        self.degree = degree

    @property
    def n_out(self) -> int:
        return self.degree * self.n_features_in_

    def map_block(self, scaled: Floats, unit: float = 1.0) -> Floats:
        d = self.n_features_in_
        out = np.empty((len(scaled), self.n_out))
        np.multiply(scaled, unit, out=out[:, :d])
        for k in range(1, self.degree):  # products, not **: libm's pow differs between machines
            np.multiply(out[:, (k - 1) * d : k * d], scaled, out=out[:, k * d : (k + 1) * d])
        return out

    def check(self) -> None:
        whole_number("degree", self.degree)
