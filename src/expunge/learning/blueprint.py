"""The blueprint: everything that a fit fixes before it looks at a value.

The key of the slots, the code, the feature map and the rules are drawn or set once and never depend on a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..encoding.bounds import Bounds, Extents, parse_bounds
from ..encoding.codes import Code
from ..encoding.encoder import Encoder, Outside
from ..encoding.features import FeatureMap, IdentityMap
from ..encoding.randomness import Key, as_generator, draw_key
from ..encoding.scales import Scales
from ..encoding.values import as_float
from ..errors import InvalidColumns, InvalidSetting
from ..exact.arrays import Floats
from ..stores.change import Change
from ..stores.store import Store
from .rules import RidgeRule, Rule, RuleFactory
from .settings import Aggregate, Keep, Settings


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What a model is before it has seen a row."""

    key: Key
    code: Code
    features: FeatureMap
    scales: Scales
    inputs: Bounds  # declared: NaN where observed
    targets: Bounds
    target_scales: Scales
    intercept: bool
    clip: bool
    outside: Outside
    keep: Keep
    rule: Rule
    aggregate: Aggregate

    def __post_init__(self) -> None:
        if self.keep == "coded" and self.observed:
            raise InvalidSetting(
                "keep='coded' needs bounds and target_bounds that are declared in every column or 'unit': "
                "observed ones move with a row, and without the rows nothing could be fitted again"
            )
        self.scales.check(self.inputs)
        self.target_scales.check(self.targets, target=True)
        self.features.describe(), self.rule.describe()  # refuse what no digest could describe
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
    def fingerprint_key(self) -> bytes:
        """The key of the rows' fingerprints."""
        return self.key.astype("<u8").tobytes()

    def admit(
        self,
        X: Floats,
        y: Floats,
        inputs: Sequence[str] | None = None,
        targets: Sequence[str] | None = None,
        *,
        clip: bool | None = None,
    ) -> tuple[Floats, Floats]:
        """Rows as they will be kept (clipped, if so declared or asked), or an error that names columns."""
        clip = self.clip if clip is None else clip
        try:
            X = self.inputs.admit(X, clip=clip, name="X", columns=inputs)
        except InvalidColumns as refusal:
            try:
                self.targets.admit(y, clip=clip, name="y", columns=targets)
            except InvalidColumns as more:
                raise refusal.add_columns(more) from None
            raise
        return X, self.targets.admit(y, clip=clip, name="y", columns=targets)

    def measure(self, store: Store | None = None, change: Change | None = None) -> Extents:
        """The extents of the rows that a store keeps, as they are or as they will be after a change."""
        look = self.observed and store is not None  # declared bounds do not depend on rows
        return Extents.measure(self.inputs, self.targets, store.as_rows().sweep(change) if look and store else ())

    def encoder(self, extents: Extents) -> Encoder:
        """What turns rows into integers, with the bounds in force."""
        return Encoder(
            code=self.code,
            features=self.features,
            scales=self.scales,
            inputs=extents.inputs.bounds,
            targets=extents.targets.bounds,
            target_scales=self.target_scales,
            intercept=self.intercept,
            outside=self.outside,
        )


def draw_blueprint(settings: Settings, inputs: int, targets: int, *, rule: RuleFactory | None = None) -> Blueprint:
    """Check settings for tables of so many inputs and targets, and draw what is drawn once.

    ``rule`` brings the rule of a learner that is not "ridge".
    """
    settings.check()
    rng = as_generator(settings.random_state)
    code = settings.draw_code(rng)
    key = draw_key(rng)
    features = IdentityMap() if settings.features is None else settings.features
    made = _make_rule(settings, key, rule)
    made.check(code)
    scales = Scales.parse(settings.scales, inputs)
    return Blueprint(
        key=key,
        code=code,
        features=features.draw_copy(scales.n_out, rng),
        scales=scales,
        inputs=parse_bounds(settings.bounds, inputs, name="bounds"),
        targets=parse_bounds(settings.target_bounds, targets, name="target_bounds"),
        target_scales=Scales.parse_targets(settings.target_scales, targets),
        intercept=bool(settings.fit_intercept) and made.wants_ones(code),
        clip=bool(settings.clip),
        outside=settings.outside,
        keep=settings.keep,
        rule=made,
        aggregate=settings.aggregate,
    )


def _make_rule(settings: Settings, key: Key, rule: RuleFactory | None) -> Rule:
    if isinstance(settings.learner, str):
        return RidgeRule(as_float(settings.alpha))
    if rule is None:
        raise InvalidSetting(f"learner must be 'ridge' here, got {type(settings.learner).__name__}")
    return rule(key)
