"""The encoder: from a row to the integers that are summed into coded rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats, cut
from ..exact.limbs import feature_bits
from ..exact.native import kernels, native_column
from .bounds import Bounds
from .codes import Code
from .features import FeatureMap
from .scales import Scales

Outside: TypeAlias = Literal["clamp", "extrapolate"]


@dataclass(frozen=True, eq=False)
class Encoder:
    """The map from a row to integers: scale, map to features, round to a grid. It stores no row."""

    code: Code
    features: FeatureMap
    scales: Scales
    inputs: Bounds
    targets: Bounds
    target_scales: Scales
    intercept: bool
    outside: Outside

    @cached_property
    def bits(self) -> int:
        """F: a feature phi becomes the integer rint(phi * 2^F)."""
        return feature_bits(self.code.heaviest)

    @cached_property
    def n_targets(self) -> int:
        """Columns of y, t."""
        return len(self.targets.low)

    @cached_property
    def n_weights(self) -> int:
        """Columns of a coded row that have a weight: D features and, with an intercept, the ones."""
        return self.features.n_out + self.intercept

    @cached_property
    def width(self) -> int:
        """Columns of a coded row: features, ones, targets."""
        return self.n_weights + self.n_targets

    def integers(self, X: Floats, y: Floats) -> Floats:
        """Return rows as integers in floats, (n, d) and (n, t) -> (n, width). No entry exceeds 2^F."""
        if self.native is not None:
            integers: Floats = self.encode(X, y, np.arange(len(X)), np.ones((1, len(X))), len(X))[0]
            return integers
        Z = np.empty((len(X), self.width))
        for block in cut(len(X), self.width):
            self._fill(Z[block], X[block], y[block])
        return Z

    def encode(self, X: Floats, y: Floats, owner: NDArray[np.int64], weights: Floats, count: int) -> Floats:
        """Sum rows as integers into ``count`` coded rows, in one native pass; only if `native` is not None.

        Row k is added to coded row ``owner[k]`` of each set with ``weights[set, k]``: (n, d), (n, t), (n,), (sets, n)
        -> (sets, count, width).
        """
        arrays = (
            np.ascontiguousarray(array) for array in (self._scale_inputs(X), self.scale_targets(y), owner, weights)
        )
        coded: Floats = self.native.coded(*arrays, count, self.intercept)
        return coded

    @property
    def native(self) -> Any:
        """The `Map` of the extension that computes integers and coded rows; None if there is none."""
        return None if self.features.is_custom else self.features.native(2.0**self.bits)

    def column(self, learner: int) -> Any:
        """Return the native column that trains a learner and relearns it after a row changed; None if there is none."""
        return None if self.native is None else self._columns[learner]

    @cached_property
    def plain(self) -> bool:
        """Whether all scales are linear: a `column` then takes rows in their own units."""
        return self.scales.plain and self.target_scales.plain

    def column_inputs(self, X: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return rows as a `column` takes them: in their own units if the encoder is `plain`, else scaled."""
        rows = (X, y) if self.plain else (self._scale_inputs(X), self.scale_targets(y))
        return np.ascontiguousarray(rows[0]), np.ascontiguousarray(rows[1])

    @cached_property
    def _columns(self) -> list[Any]:
        sides = (self.inputs, self.targets)
        inputs, targets = (np.array([b.low, b.high]) if self.plain and not b.unit else None for b in sides)
        rows = inputs, targets, self.n_targets, self.intercept
        return [native_column(self.native, c.lanes.astype(np.int64), c.floats, *rows) for c in self.code.columns]

    def features_of(self, X: Floats, unit: float = 1.0) -> Floats:
        """Compute the features of a few rows in their own units, times ``unit``: (b, d) -> (b, D)."""
        scaled = self._scale_inputs(X)
        if self.features.is_custom:
            scaled = scaled.view()
            scaled.flags.writeable = False  # with unit bounds this is X itself
        return self.features.map_block(scaled, unit)

    def nearest(self, X: Floats) -> Floats:
        """Return the rows to predict for: with outside="clamp", the nearest rows inside the bounds."""
        return self.inputs.clamp(X) if self.outside == "clamp" else X

    def scale_nearest(self, X: Floats) -> Floats:
        """Return the scaled columns of the `nearest` rows: (b, d) -> (b, d')."""
        native = kernels()
        if native is None or self.inputs.unit or not self.scales.plain:
            return np.ascontiguousarray(self._scale_inputs(self.nearest(X)))
        X = np.ascontiguousarray(X)
        scaled: Floats = native.scaled(X, self.inputs.low, self.inputs.high, self.outside == "clamp")
        return scaled

    def unscale(self, predicted: Floats) -> Floats:
        """Return predictions in the targets' own units; with outside="clamp" inside the bounds of the targets."""
        predicted = self.target_scales.unscaler(self.targets)(predicted)
        if (native := kernels()) is not None and not self.targets.unit:
            limits = self.targets if self.outside == "clamp" else self._no_limits
            predicted = np.array(predicted, order="C")  # a copy: it is overwritten, and may be a view of a larger array
            native.unscale(predicted, self.targets.low, self.targets.high, limits.low, limits.high)
            return predicted
        predicted = self.targets.unscale(predicted)
        return self.targets.clamp(predicted) if self.outside == "clamp" else predicted

    @cached_property
    def _no_limits(self) -> Bounds:
        return Bounds(np.full(self.n_targets, np.nan), np.full(self.n_targets, np.nan))

    @cached_property
    def _scale_inputs(self) -> Callable[[Floats], Floats]:
        return self.scales.scaler(self.inputs)

    @cached_property
    def scale_targets(self) -> Callable[[Floats], Floats]:
        """The map of targets in their own units to scaled targets: (b, t) -> (b, t)."""
        return self.target_scales.scaler(self.targets)

    def _fill(self, Z: Floats, X: Floats, y: Floats) -> None:
        p, unit = self.n_weights, 2.0**self.bits
        phi = self.features_of(X, unit)
        if self.features.is_custom:
            self._check_custom_features(phi, len(X), unit)
        np.rint(phi, out=Z[:, : p - self.intercept])
        if self.intercept:
            Z[:, p - 1] = unit
        np.rint(self.scale_targets(y) * unit, out=Z[:, p:])

    def _check_custom_features(self, phi: Floats, rows: int, unit: float) -> None:
        """Refuse features of a user's map whose sums would not be exact."""
        name, shape = self.features.map_name, (rows, self.features.n_out)
        if np.shape(phi) != shape:
            raise InvalidSetting(f"{name}.map_block must return an array of shape {shape}, got {np.shape(phi)}")
        if not (np.abs(phi) <= unit).all():
            raise InvalidSetting(f"{name}.map_block must return numbers from -unit to unit for rows inside the bounds")
