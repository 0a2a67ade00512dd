"""The blueprint: everything that a fit fixes before it looks at a value.

The key of the slots, the code, the feature map and the rules are drawn or set once and never depend on a row. What
does depend on rows, the observed bounds, is measured in `build`, which is training from scratch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..encoding.bounds import Bounds, Extent
from ..encoding.codes import Code
from ..encoding.features import FeatureMap
from ..encoding.randomness import Key
from ..errors import CountedInput, InvalidSetting
from ..exact.arrays import Floats
from ..stores.shards import Change, Coded, Encoder, Rows, Store
from .ensemble import Aggregate, Ensemble, Rule

Keep: TypeAlias = Literal["rows", "coded"]


@dataclass(frozen=True, eq=False)
class Extents:
    """The extents of inputs and targets."""

    inputs: Extent
    targets: Extent

    def widened(self, X: Floats, y: Floats) -> "Extents":
        """The extents with more rows."""
        return Extents(self.inputs.widened(X), self.targets.widened(y))

    def replaced(self, old: tuple[Floats, Floats], new: tuple[Floats, Floats]) -> "Extents | None":
        """The extents after a change of rows (X, y), or None if a bound moved."""
        inputs, targets = self.inputs.replaced(old[0], new[0]), self.targets.replaced(old[1], new[1])
        return Extents(inputs, targets) if inputs and targets else None


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What a model is before it has seen a row."""

    key: Key
    code: Code
    features: FeatureMap
    inputs: Bounds  # declared: NaN where observed
    targets: Bounds
    intercept: bool
    clip: bool
    keep: Keep
    rule: Rule
    aggregate: Aggregate

    def __post_init__(self) -> None:
        if self.keep == "coded" and self.observed:
            raise InvalidSetting(
                "keep='coded' needs bounds and target_bounds that are declared in every column or 'unit': "
                "observed ones move with a row, and without the rows nothing could be fitted again"
            )
        if self.intercept and not (sums := self.code.G.sum(axis=0)).all():
            raise InvalidSetting(
                f"fit_intercept=True needs a code whose columns do not sum to zero, but {int((sums == 0).sum())} do: "
                "their coded ones cancel; use fit_intercept=False or another code"
            )

    @property
    def observed(self) -> bool:
        """Whether a row can move a bound."""
        return self.inputs.observed or self.targets.observed

    @property
    def print_key(self) -> bytes:
        """The key of the rows' fingerprints."""
        return self.key.astype("<u8").tobytes()

    def admit(
        self, X: Floats, y: Floats, inputs: Sequence[str] | None = None, targets: Sequence[str] | None = None
    ) -> tuple[Floats, Floats]:
        """Rows as they will be kept (clipped, if so declared), or an error that names columns if they are outside."""
        try:
            X = self.inputs.admit(X, clip=self.clip, name="X", columns=inputs)
        except CountedInput as refusal:
            raise refusal.beside(self._outside(y, targets) or refusal) from None
        return X, self.targets.admit(y, clip=self.clip, name="y", columns=targets)

    def _outside(self, y: Floats, columns: Sequence[str] | None) -> CountedInput | None:
        """Return the refusal of targets, or None if they are admitted."""
        try:
            self.targets.admit(y, clip=self.clip, name="y", columns=columns)
        except CountedInput as refusal:
            return refusal
        return None

    def measured(self, store: Store | None = None, change: Change | None = None) -> Extents:
        """The extents of the rows that a store keeps, as they are or as they will be after a change."""
        extents = Extents(Extent.none(self.inputs), Extent.none(self.targets))
        if self.observed and isinstance(store, Rows):  # declared bounds do not depend on rows
            for X, y in store.sweep(change):
                extents = extents.widened(X, y)
        return extents

    def encoder(self, extents: Extents) -> Encoder:
        """What turns rows into integers, with the bounds in force."""
        return Encoder(self.code, self.features, extents.inputs.bounds, extents.targets.bounds, self.intercept)

    def build(self, rows: Rows, change: Change | None = None) -> tuple[Ensemble, Extents]:
        """Train from scratch on rows in their slots, as they are or as they will be after a change."""
        extents = self.measured(rows, change)
        encoder = self.encoder(extents)
        store: Store = rows if self.keep == "rows" else Coded.of(encoder, rows, self.print_key)
        return Ensemble.learn(encoder, store, self.rule, self.aggregate, change), extents
