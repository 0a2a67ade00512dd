"""The blueprint: everything that a fit fixes before it looks at a value.

The key of the slots, the code, the feature map and the rules are drawn or set once and never depend on a row. What
does depend on rows, the observed bounds, is measured in `build`, which is training from scratch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .bounds import Bounds, Extent, Floats
from .codes import Code
from .ensemble import Aggregate, Ensemble, Rule
from .errors import InvalidSetting
from .features import FeatureMap
from .randomness import Key
from .shards import Change, Coded, Encoder, Rows, Store

Keep: TypeAlias = Literal["rows", "coded"]


@dataclass(frozen=True, eq=False)
class Extents:
    """The observed bounds of inputs and targets; None where bounds are declared or unit."""

    inputs: Extent | None
    targets: Extent | None

    @property
    def observed(self) -> bool:
        """Whether a row can move a bound."""
        return self.inputs is not None or self.targets is not None

    def replaced(self, old: tuple[Floats, Floats], new: tuple[Floats, Floats]) -> "Extents | None":
        """The extents after a change of rows (X, y), or None if a bound moved."""
        sides = []
        for extent, before, after in zip((self.inputs, self.targets), old, new, strict=True):
            updated = extent and extent.replaced(before, after)
            if extent is not None and updated is None:
                return None
            sides.append(updated)
        return Extents(*sides)


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What a model is before it has seen a row."""

    key: Key
    code: Code
    features: FeatureMap
    inputs: Bounds | None  # None: observed
    targets: Bounds | None
    intercept: bool
    clip: bool
    keep: Keep
    rule: Rule
    aggregate: Aggregate

    def __post_init__(self) -> None:
        if self.keep == "coded" and (self.inputs is None or self.targets is None):
            raise InvalidSetting(
                "keep='coded' needs bounds and target_bounds that are declared or 'unit': "
                "observed ones move with a row, and without the rows nothing could be fitted again"
            )
        if self.intercept and not (sums := self.code.G.sum(axis=0)).all():
            raise InvalidSetting(
                f"fit_intercept=True needs a code whose columns do not sum to zero, but {int((sums == 0).sum())} do: "
                "their coded ones cancel; use fit_intercept=False or another code"
            )

    @property
    def print_key(self) -> bytes:
        """The key of the rows' fingerprints."""
        return self.key.astype("<u8").tobytes()

    def admit(self, X: Floats, y: Floats, columns: Sequence[str] | None = None) -> tuple[Floats, Floats]:
        """Rows as they will be kept (clipped, if so declared), or an error if they are outside the bounds."""
        if self.inputs is not None:
            X = self.inputs.admit(X, clip=self.clip, name="X", columns=columns)
        if self.targets is not None:
            y = self.targets.admit(y, clip=self.clip, name="y")
        return X, y

    def measured(self, rows: Rows) -> Extents:
        """The bounds that are observed, from the rows there are."""
        return Extents(
            Extent.of(rows.X, rows.live) if self.inputs is None else None,
            Extent.of(rows.y, rows.live) if self.targets is None else None,
        )

    def build(self, rows: Rows) -> tuple[Ensemble, Extents]:
        """Train from scratch on rows in their slots: measure bounds, encode, learn."""
        extents = self.measured(rows)
        inputs, targets = _in_force(self.inputs, extents.inputs), _in_force(self.targets, extents.targets)
        encoder = Encoder(self.code, self.features, inputs, targets, self.intercept)
        store: Store = rows if self.keep == "rows" else Coded.of(encoder, rows, self.print_key)
        return Ensemble.learn(encoder, store, self.rule, self.aggregate), extents

    def rebuild(self, rows: Rows, change: Change) -> tuple[Ensemble, Extents]:
        """Train from scratch on these rows after a change; the rows given stay as they are."""
        changed = rows.grown(len(rows.live))
        changed.commit(change)
        return self.build(changed)


def _in_force(declared: Bounds | None, observed: Extent | None) -> Bounds:
    """The one of the two that there is."""
    if declared is not None:
        return declared
    assert observed is not None
    return observed.bounds
