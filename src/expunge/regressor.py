"""CodedRegressor: a scikit-learn regressor that can forget."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from .encoding.bounds import Bounds, BoundsLike
from .encoding.codes import Code
from .encoding.encoder import Outside
from .encoding.features import FeatureMap, IdentityMap
from .encoding.randomness import Seed
from .encoding.scales import ScalesLike
from .errors import InvalidInput
from .estimator import CodedEstimator, TableLike, explain_targets
from .exact.arrays import Floats
from .learning.rules import RidgeRule, mean_weights
from .learning.settings import Aggregate, Keep


class CodedRegressor(RegressorMixin, CodedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A regression model that can forget: coded shards, exact integers, one weak learner per shard.

    Unlearning a row gives, bit for bit, the model that never saw it: ``fit(all).unlearn(some)`` and training on the
    other rows in their slots give the same digest, and on one machine the same weights. Threads may share a model:
    requests wait for each other, predictions do not wait.

    Parameters
    ----------
    shards : int
        Lanes, s: the number of rows in a stripe.
    rate : float
        Rows per coded row, tau = s / r; the model has ``shards / rate`` weak learners.
    density : float, optional
        Share of ones in the code, rho. None is the minimum: each row feeds one learner.
    balanced : bool
        Whether all learners see equally many lanes.
    code : Code, optional
        Your own code, instead of the four parameters above.
    features : FeatureMap, optional
        `RandomFourier`, `Powers`, or None for the scaled inputs as they are.
    alpha : float
        The ridge penalty in scikit-learn's convention (not divided by n); 0 is least squares.
    fit_intercept : bool
        Whether to learn an intercept: a column of ones, encoded like any other and not penalised.
    learner : "ridge" or a scikit-learn regressor
        The weak learner. An estimator is trained from scratch on its coded shard, and ``alpha`` is not used. Unless
        each learner has one lane (`Code.uncoded`, `Code.single`) it must be linear and have ``fit_intercept=False``:
        the encoded column of ones replaces its intercept, and its penalty, if it has one, applies to that column too.
    aggregate : {"mean", "median", "pooled"}
        How the learners are combined. "mean" and "median" are those of their predictions. "pooled" solves once for the
        coded rows of all learners together, which predicts better where a learner has few rows per feature; only with
        ridge learners.
    bounds, target_bounds : None, "unit" or (low, high)
        The range of the inputs and of the target. None observes it (a row that moves it makes everything refit). A
        pair of scalars, or of one value per column, declares it; columns where both are None or NaN are observed.
        "unit" says that the values are in [-1, 1] and used as they are.
    scales : None, str or a list with one entry per input
        The scale on which the features see an input: "linear" (None), from the low bound to the high one; "log", in
        orders of magnitude; or knots, a list of 2 to 256 rising numbers in the input's own units, which a piecewise
        linear map takes to 0, 1/m, 2/m, ..., 1. A list of these gives the input several times, once on each scale:
        ``scales=["linear", "log", ["linear", [0, 1, 5, 20]]]`` makes four scaled columns of three inputs.
    target_scales : None, "linear", "log" or a list with one of these names per target
        The scale on which a target is learned. "log" is for amounts such as prices, where the relative error matters:
        orders of magnitude are learned and predicted, and predictions are returned in the target's own units. They are
        then closer to the conditional median than to the conditional mean.
    clip : bool
        Whether training rows outside declared bounds are clipped instead of refused.
    outside : {"clamp", "extrapolate"}
        What is predicted for a row with an input outside the bounds in force. "clamp": the prediction for the nearest
        row inside, never outside the bounds of the targets (declared or observed), as with trees. "extrapolate": what
        the formula gives, which can be any number. `outside_rows` returns which rows are affected.
    keep : {"rows", "coded"}
        What the model keeps: the rows, so that an id is enough to unlearn them; or only the coded rows, as in the
        paper, so that the caller has to pass the rows as well. "coded" needs declared or unit bounds in every column.
    random_state : int, Generator, RandomState or None
        The seed of the code, the features and the slots.

    Attributes
    ----------
    code_ : Code
    features_ : FeatureMap
    bounds_, target_bounds_ : Bounds
    coef_ : array, shape (d,) or (t, d)
        What one unit more of an input adds to the prediction, in the units of the inputs and of the target. Only a
        linear model has it: ridge learners, their mean, no ``features``, linear ``scales`` and ``target_scales``.
    intercept_ : float or array of shape (t,)
        The prediction where all inputs are zero; only a linear model has it. With ``outside="clamp"`` predictions
        are ``X @ coef_ + intercept_`` for rows inside the bounds, as far as that is inside the target's.
    weights_ : array, shape (D,) or (t, D)
        Mean weights of the ridge learners (if pooled, of the one for all), for the features of a scaled row and the
        scaled target.
    n_rows_ : int
        The number of rows learned and not unlearned.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from expunge import CodedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((100, 3))
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> model = CodedRegressor(shards=10, rate=5, bounds=(0, 1), random_state=0).fit(X, y, ids=np.arange(1000, 1100))
    >>> report = model.unlearn([1007, 1003])
    >>> report.rows, model.n_rows_
    (2, 98)
    >>> model.digest() == model.retrained().digest()
    True
    """

    _task = "regression"
    _target_checks: ClassVar[dict[str, Any]] = {"multi_output": True, "y_numeric": True}

    def __init__(
        self,
        *,
        shards: int = 5,
        rate: float = 5,
        density: float | None = None,
        balanced: bool = True,
        code: Code | None = None,
        features: FeatureMap | None = None,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        learner: Any = "ridge",
        aggregate: Aggregate = "mean",
        bounds: BoundsLike = None,
        target_bounds: BoundsLike = None,
        scales: ScalesLike = None,
        target_scales: ScalesLike = None,
        clip: bool = False,
        outside: Outside = "clamp",
        keep: Keep = "rows",
        random_state: Seed = None,
    ) -> None:
        self.shards = shards
        self.rate = rate
        self.density = density
        self.balanced = balanced
        self.code = code
        self.features = features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.learner = learner
        self.aggregate = aggregate
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.scales = scales
        self.target_scales = target_scales
        self.clip = clip
        self.outside = outside
        self.keep = keep
        self.random_state = random_state

    def predict(self, X: TableLike) -> Floats:
        """Predict the target of rows: (n, d) -> (n,) or (n, t); for rows outside the bounds see ``outside``."""
        predicted = self._predict_outputs(X)
        return predicted[:, 0] if self._fitted_model.flat else predicted

    @property
    def target_bounds_(self) -> Bounds:
        """The bounds of the target in force."""
        return self._check_fitted().state.ensemble.encoder.targets

    @property
    def coef_(self) -> Floats:
        """What one unit more of an input adds to the prediction of a linear model, (d,) or (t, d)."""
        slopes, _ = self._line()
        return slopes[0] if self._fitted_model.flat else slopes

    @property
    def intercept_(self) -> Any:
        """The prediction of a linear model where all inputs are zero."""
        _, constants = self._line()
        return float(constants[0]) if self._fitted_model.flat else constants

    @property
    def weights_(self) -> Floats:
        """Mean weights of the ridge learners, for the features of a scaled row and the scaled target."""
        W = self._mean_weights()[: self._state.ensemble.encoder.features.n_out].T
        return W[0] if self._fitted_model.flat else W

    def _line(self) -> tuple[Floats, Floats]:
        """Return slopes (t, d) and constants (t,) of a linear model, in the units of inputs and targets."""
        W, blueprint, encoder = self._mean_weights(), self._state.blueprint, self._state.ensemble.encoder
        reasons = {
            f"its features are those of {encoder.features.map_name}": encoder.features.is_custom
            or not isinstance(encoder.features, IdentityMap),
            "its scales are not all linear": not encoder.plain,
            "it predicts the median of its learners": blueprint.aggregate == "median",
        }
        if why := [reason for reason, holds in reasons.items() if holds]:
            raise AttributeError(
                f"coef_ and intercept_ are those of a linear model; this one is none: {', '.join(why)}. Explain its "
                "predictions by predict (a permutation or kernel explainer); weights_ are those of the features"
            )
        X, y, d = encoder.inputs, encoder.targets, len(encoder.inputs.low)
        zeros, ones = np.zeros((1, d)), np.ones((1, encoder.n_targets))
        slopes = W[:d] if X.unit else np.where(X.high > X.low, 1 / X.width, 0.0)[:, None] * W[:d]  # (d, t)
        constants = W[-1] if encoder.intercept else np.zeros(W.shape[1])
        constants = constants + X.scale(zeros)[0] @ W[:d]
        return (slopes * (y.unscale(ones) - y.unscale(0 * ones))).T, y.unscale(constants[None])[0]

    def _mean_weights(self) -> Floats:
        if not isinstance(self._check_fitted().state.blueprint.rule, RidgeRule):
            raise AttributeError("only a model with learner='ridge' has coef_, intercept_ and weights_")
        ensemble = self._state.ensemble
        models = [W for W in ensemble.models if W is not None]
        if not models:
            raise AttributeError("every row was unlearned: there are no weights")
        return mean_weights(ensemble.pooled.models if ensemble.aggregate == "pooled" else models)

    def _read_targets(self, y: NDArray[Any], *, reset: bool) -> Floats:
        targets = y.reshape(len(y), -1).astype(np.float64, copy=False)
        if not np.isfinite(targets).all() and (error := explain_targets(y)) is not None:
            raise error  # scikit-learn does not look into objects
        if not reset and targets.shape[1] != (t := self._state.ensemble.encoder.n_targets):
            raise InvalidInput(f"y must have {t} columns as in fit, got {targets.shape[1]}")
        return targets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
