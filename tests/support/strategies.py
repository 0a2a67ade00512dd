"""What a model can be made of: every combination that is allowed."""

import numpy as np
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from expunge import Code, CodedClassifier, CodedRegressor, FeatureMap, Powers, RandomFourier, random_code
from expunge.encoding.scales import Scales

SIGNED = Code([[1, 0], [1, 1], [-1, 1], [1, 0]])
SELECTING = [Code.uncoded(3), Code.single()]
SUMMING = [
    SIGNED,
    Code([[3], [1], [2]]),
    random_code(6, 2, random_state=0),
    random_code(6, 3, balanced=False, random_state=1),
    random_code(6, 3, density=0.6, random_state=2),
]


class Steps(FeatureMap):
    """A map that is not the package's: whether an input is above drawn thresholds."""

    def __init__(self, count=3, random_state=None):
        self.count, self.random_state = count, random_state

    @property
    def n_out(self):
        return self.count

    def draw(self, n_inputs, rng):
        self.thresholds_ = rng.integers(0, 1024, self.count)

    def map_block(self, scaled, unit=1.0):
        return (scaled[:, :1] * 1024 > self.thresholds_) * unit

    def arrays(self):
        return {"thresholds": self.thresholds_}

    def restore(self, n_inputs, arrays):
        self.n_features_in_, self.thresholds_ = n_inputs, arrays["thresholds"]
        return self


FEATURES = [
    None,
    Powers(2),
    Powers(3),
    RandomFourier(4),
    RandomFourier(9, kernel="laplacian", scale=3),
    RandomFourier(7, kernel="matern32", order=3, linear=True),
]
LINEAR = [None, ["linear", ["linear", "linear"], "linear"]]
SCALES = [
    *LINEAR,
    "log",
    ["linear", "log", [-1, 0, 0.25, 1]],
    [["linear", [-1.5, -0.5, 0.5, 2]], ["log", "linear"], [-0.25, 0.75]],
]
DECLARED = ["unit", (-1, 1), (-1, [1, 2, 3])]
OBSERVED = [None, ([-1, None, np.nan], [1, None, np.nan]), ([None, -2, -1], [None, 2, 1])]


def of_width(columns):
    """Features with a scale for so many scaled columns: one per column, a matrix, and one for each of two kernels."""
    rng = np.random.default_rng(columns)
    return [
        RandomFourier(6, kernel="matern52", scale=np.arange(columns) / 2, linear=True),
        RandomFourier(5, kernel="exponential", scale=rng.normal(size=(columns, columns)).tolist(), order=2),
        RandomFourier(7, kernel="gaussian+laplacian", scale=rng.normal(size=(2, columns, columns)), linear=True),
    ]


@st.composite
def shared_parameters(draw, own_features):
    """The parameters that models of all tasks have."""
    code = draw(st.sampled_from(SELECTING + SUMMING) | st.none())
    bounds = draw(st.sampled_from(DECLARED + OBSERVED))
    scales = draw(st.sampled_from(LINEAR if bounds == "unit" else SCALES))
    features = FEATURES + of_width(Scales.parse(scales, 3).n_out) + [Steps(4), Steps(2, random_state=1)] * own_features
    return {
        "code": code,
        "shards": draw(st.sampled_from([2, 4, 6])),
        "rate": draw(st.sampled_from([1, 2])),
        "features": draw(st.sampled_from(features)),
        "scales": scales,
        "bounds": bounds,
        "outside": draw(st.sampled_from(["clamp", "extrapolate"])),
        "alpha": draw(st.sampled_from([0.0, 1e-9, 1e-3, 1.0])),
        "fit_intercept": draw(st.booleans()),
        "random_state": draw(st.integers(0, 9)),
    }


@st.composite
def regressors(draw, learners=True, own_features=False):
    """A CodedRegressor of any kind."""
    parameters = draw(shared_parameters(own_features))
    code, bounds = parameters["code"], parameters["bounds"]
    target_bounds = draw(st.sampled_from([None, (-2, 2), "unit"]))
    target_scales = draw(st.sampled_from([None, "linear"] if target_bounds == "unit" else [None, "log"]))
    parameters |= {"target_bounds": target_bounds, "target_scales": target_scales}
    parameters["aggregate"] = draw(st.sampled_from(["mean", "median", "pooled"]))
    if bounds in DECLARED and target_bounds is not None:
        parameters["keep"] = draw(st.sampled_from(["rows", "coded"]))
    if learners and parameters["aggregate"] != "pooled" and draw(st.integers(0, 3)) == 0:
        choices = [LinearRegression(fit_intercept=False), Lasso(1e-3, fit_intercept=False, max_iter=100_000, tol=1e-2)]
        if code in SELECTING:
            choices += [DecisionTreeRegressor(), KNeighborsRegressor(1), LinearRegression()]
        parameters["learner"] = draw(st.sampled_from(choices))
    return CodedRegressor(**parameters)


@st.composite
def classifiers(draw, learners=True, own_features=False):
    """A CodedClassifier of any kind, for the labels of `class_tables`."""
    parameters = draw(shared_parameters(own_features))
    parameters["aggregate"] = draw(st.sampled_from(["mean", "median", "pooled", "vote"]))
    parameters["classes"] = draw(st.sampled_from([None, CLASSES]))
    parameters["class_power"] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    one_lane = parameters["code"] in SELECTING or (parameters["code"] is None and parameters["rate"] == 1)
    parameters["pairs"] = draw(st.sampled_from(["auto", False] + [True] * one_lane))
    if parameters["bounds"] in DECLARED and parameters["classes"] is not None:
        parameters["keep"] = draw(st.sampled_from(["rows", "coded"]))
    if learners and one_lane and parameters["aggregate"] != "pooled" and draw(st.integers(0, 3)) == 0:
        choices = [DecisionTreeClassifier(), KNeighborsClassifier(1), LogisticRegression(max_iter=1000)]
        parameters["learner"] = draw(st.sampled_from(choices))
    return CodedClassifier(**parameters)


CLASSES = ["a", "bb", "ccc", "d", "never"]


@st.composite
def tables(draw, most=40):
    """Rows in [-1, 1]; at times few distinct values, so that bounds and rows have ties, or a column above zero."""
    n, seed = draw(st.integers(16, most)), draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, 3)) / 2 if draw(st.booleans()) else rng.uniform(-1, 1, (n, 3))
    if draw(st.booleans()):
        X[:, 1] = X[:, 1] / 4 + 0.5  # a log scale from its low end
    targets = draw(st.sampled_from([(), (1,), (2,)]))
    return X, rng.uniform(-1, 1, (n, *targets))


@st.composite
def class_tables(draw, most=40):
    """Rows of two to four classes, some of which may have few."""
    X, _ = draw(tables(most))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shares = draw(st.sampled_from([[0.5, 0.5], [0.9, 0.1], [0.4, 0.3, 0.3], [0.5, 0.4, 0.05, 0.05]]))
    return X, rng.choice(CLASSES[: len(shares)], len(X), p=shares)
