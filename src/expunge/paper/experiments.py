"""The experiments of the paper, as data: add a row to add an experiment."""

from dataclasses import dataclass
from typing import TypeAlias

RUNS = 10  # of each experiment, by default


@dataclass(frozen=True)
class TradeOff:
    """Test and training error against the cost of unlearning and learning, over a sweep of shards."""

    data: str
    title: str
    features: int | None = None  # random cosine features, D; None uses the inputs unchanged
    alphas: tuple[float, ...] = (0.0,)
    rates: tuple[int, ...] = (5,)
    intercepts: tuple[bool, ...] = (False,)  # the authors' experiments use none
    baseline: bool = False  # whether to add one learner on the original features
    points: int = 8  # of the sweep
    full_only: bool = False
    runs: int = RUNS


@dataclass(frozen=True)
class Influence:
    """Test error of one learner against the share of rows left, with outliers or inliers removed."""

    data: str
    title: str
    features: int | None = None
    alpha: float = 0.0
    points: int = 10
    runs: int = RUNS


@dataclass(frozen=True)
class WarmStart:
    """Error of conjugate gradients started from the old weights, against retrained ones (Section II-B proposes it)."""

    data: str
    title: str
    features: int
    alpha: float
    shards: int = 5
    runs: int = RUNS


Experiment: TypeAlias = TradeOff | Influence | WarmStart

EXPERIMENTS: dict[str, Experiment] = {
    "protein": TradeOff("protein", "Protein", features=300, alphas=(1e-4, 1e-5, 1e-6), runs=20),
    "computer-activity": TradeOff(
        "computer-activity", "Computer Activity", features=25, alphas=(1e-3,), rates=(2, 5), runs=20,
    ),
    "power-plant": TradeOff("power-plant", "Power Plant", features=20, rates=(2, 5), runs=20),
    "large-scale": TradeOff(
        "large-scale", "Large scale: lognormal(1, 4) through an MLP, d=100", features=2000, alphas=(1e-2,),
        rates=(2, 5, 10, 20), points=5, full_only=True, runs=1,
    ),
    "lognormal-0.1": TradeOff("lognormal-0.1", "Lognormal polynomial, variance 0.1"),
    "lognormal-0.5": TradeOff("lognormal-0.5", "Lognormal polynomial, variance 0.5"),
    "lognormal-0.7": TradeOff("lognormal-0.7", "Lognormal polynomial, variance 0.7"),
    "chi-square": TradeOff("chi-square", "Chi-square polynomial", rates=(2, 5, 10), runs=5),
    "lognormal-mlp": TradeOff(
        "lognormal-mlp", "Lognormal(1, 4) through an MLP, d=50", features=1000, alphas=(1e-2, 1e-3), baseline=True,
        points=5, runs=2,
    ),
    "gaussian": TradeOff("gaussian", "Gaussian linear", rates=(2, 5)),
    "intercept": TradeOff(
        "computer-activity", "Computer Activity, with and without intercept", features=25, alphas=(1e-3,),
        intercepts=(False, True), runs=20,
    ),
    "intercept-mlp": TradeOff(
        "lognormal-mlp", "Original features of the MLP data, with and without intercept", alphas=(0.0, 1e-3, 1e-2),
        intercepts=(False, True), points=3,
    ),
    "influence-computer-activity": Influence("computer-activity", "Computer Activity", features=25, alpha=1e-3),
    "influence-power-plant": Influence("power-plant", "Power Plant", features=20),
    "influence-lognormal-0.1": Influence("lognormal-0.1", "Lognormal polynomial, variance 0.1"),
    "influence-lognormal-0.5": Influence("lognormal-0.5", "Lognormal polynomial, variance 0.5"),
    "influence-lognormal-0.7": Influence("lognormal-0.7", "Lognormal polynomial, variance 0.7"),
    "influence-chi-square": Influence("chi-square", "Chi-square polynomial"),
    "influence-gaussian": Influence("gaussian", "Gaussian linear"),
    "warm-start": WarmStart("computer-activity", "Computer Activity", features=25, alpha=1e-3),
    "warm-start-protein": WarmStart("protein", "Protein", features=300, alpha=1e-4),
}  # fmt: skip
