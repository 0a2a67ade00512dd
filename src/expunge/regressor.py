"""CodedRegressor: a scikit-learn regressor that can forget."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from .encoding.bounds import Bounds, BoundsLike
from .encoding.codes import Code
from .encoding.encoder import Outside
from .encoding.features import FeatureMap
from .encoding.randomness import Seed
from .encoding.scales import ScalesLike
from .errors import InvalidInput
from .estimator import CodedEstimator, TableLike
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
    aggregate : {"mean", "median"}
        How the learners' predictions are combined.
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
    coef_ : array, shape (D,) or (t, D)
        Mean weights of the ridge learners on the features of the scaled row, for the scaled target.
    intercept_ : float or array of shape (t,)
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
        """Mean weights of the ridge learners, for the features of a scaled row and the scaled target."""
        W = self._mean_weights()
        W = W[: self._state.ensemble.encoder.features.n_out].T
        return W[0] if self._fitted_model.flat else W

    @property
    def intercept_(self) -> Any:
        """Mean intercept of the ridge learners, for the scaled target."""
        W = self._mean_weights()
        constant = W[-1] if self._state.ensemble.encoder.intercept else np.zeros(W.shape[1])
        return float(constant[0]) if self._fitted_model.flat else constant

    def _mean_weights(self) -> Floats:
        if not isinstance(self._check_fitted().state.blueprint.rule, RidgeRule):
            raise AttributeError("only a model with learner='ridge' has coef_ and intercept_")
        models = [W for W in self._state.ensemble.models if W is not None]
        if not models:
            raise AttributeError("every row was unlearned: there are no weights")
        return mean_weights(models)

    def _read_targets(self, y: NDArray[Any], *, reset: bool) -> Floats:
        targets = y.reshape(len(y), -1).astype(np.float64, copy=False)
        if not reset and targets.shape[1] != (t := self._state.ensemble.encoder.n_targets):
            raise InvalidInput(f"y must have {t} columns as in fit, got {targets.shape[1]}")
        return targets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
