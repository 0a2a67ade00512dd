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
    """Everything that defines a model before it has seen a row."""

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
                "keep='coded' needs bounds and target_bounds that are declared in every column or 'unit': an observed "
                "bound can move with a row, and without the rows nothing can be refitted"
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
        """Return rows as they will be kept (clipped, if ``clip`` says so), or raise an error that names columns."""
        clip = self.clip if clip is None else clip
        try:
            X = self.inputs.admit(X, clip=clip, name="X", columns=inputs)
        except InvalidColumns as error:
            try:
                self.targets.admit(y, clip=clip, name="y", columns=targets)
            except InvalidColumns as target_error:
                raise error.add_columns(target_error) from None
            raise
        return X, self.targets.admit(y, clip=clip, name="y", columns=targets)

    def measure(self, store: Store | None = None, change: Change | None = None) -> Extents:
        """Return the extents of the rows that a store keeps, as they are or as they will be after a change."""
        if store is None or not self.observed:  # declared bounds do not depend on rows
            return Extents.measure(self.inputs, self.targets)
        return Extents.measure(self.inputs, self.targets, store.as_rows().sweep(change))

    def encoder(self, extents: Extents) -> Encoder:
        """Return the encoder with the bounds in force."""
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
    """Check settings for tables with this many inputs and targets, and draw what is drawn once.

    ``rule`` makes the rule of a learner that is not "ridge", or of a model of classes.
    """
    settings.check()
    rng = as_generator(settings.random_state)
    code = settings.draw_code(rng)
    key = draw_key(rng)
    features = IdentityMap() if settings.features is None else settings.features
    if rule is not None:
        learner_rule = rule(code, key)
    elif isinstance(settings.learner, str):
        learner_rule = RidgeRule(as_float(settings.alpha))
    else:
        raise InvalidSetting(f"learner must be 'ridge' here, got {type(settings.learner).__name__}")
    learner_rule.check(code, settings.aggregate)
    scales = Scales.parse(settings.scales, inputs)
    return Blueprint(
        key=key,
        code=code,
        features=features.draw_copy(scales.n_out, rng),
        scales=scales,
        inputs=parse_bounds(settings.bounds, inputs, name="bounds"),
        targets=parse_bounds(settings.target_bounds, targets, name="target_bounds"),
        target_scales=Scales.parse_targets(settings.target_scales, targets),
        intercept=bool(settings.fit_intercept) and learner_rule.wants_ones(code),
        clip=bool(settings.clip),
        outside=settings.outside,
        keep=settings.keep,
        rule=learner_rule,
        aggregate=settings.aggregate,
    )
