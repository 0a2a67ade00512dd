"""The paper's claims, as functions of the result tables. A claim that does not hold is a result like any other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .runs import summarise

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds, and the numbers behind it."""

    holds: bool
    numbers: str


Judge = Callable[[Tables], Judgement | None]  # None: the tables do not cover the claim


@dataclass(frozen=True)
class Claim:
    """A sentence, the experiments that it is about, and the function that checks it."""

    sentence: str
    experiments: tuple[str, ...]
    judge: Judge


def curve(table: pd.DataFrame, rate: int, alpha: float | None = None, column: str = "test_mse") -> pd.Series:
    """Return the mean error by number of shards for one rate and penalty (default: the first), without intercept."""
    rows = table[(table["features"] == "projected") & ~table["intercept"] & (table["rate"] == rate)]
    rows = rows[rows["alpha"] == (rows["alpha"].iloc[0] if alpha is None else alpha)]
    return rows.groupby("shards")[column].mean()


def interpolate(series: pd.Series, shards: pd.Index) -> Floats:
    """Return a curve at other numbers of shards, linear in log s between its points."""
    x, known = (np.log(index.to_numpy(dtype=np.float64)) for index in (shards, series.index))
    values: Floats = np.interp(x, known, series.to_numpy())
    return values


def coded_below_uncoded(name: str, *, rate: int = 5, above: int = 10) -> Judge:
    """Check that at equal shard size the mean coded error is below the uncoded, at every s above ``above``."""

    def judge(tables: Tables) -> Judgement | None:
        lines, judged = [], []
        for alpha in tables[name]["alpha"].unique():
            uncoded, coded = curve(tables[name], 1, alpha), curve(tables[name], rate, alpha)
            coded = coded[(coded.index > above) & (coded.index <= uncoded.index.max())]
            reference = interpolate(uncoded, coded.index)
            judged += (coded.to_numpy() < reference).tolist()
            points = zip(
                coded.index, coded, reference, _count_wins(tables[name], rate, alpha, coded.index), strict=True
            )
            text = ", ".join(f"s={s} {c:.3g} against {u:.3g} ({w})" for s, c, u, w in points)
            lines.append(f"alpha {alpha:g}: {text}")
        return Judgement(all(judged), "; ".join(lines) + " (in brackets: runs that coding wins)") if judged else None

    return judge


def _count_wins(table: pd.DataFrame, rate: int, alpha: float, shards: pd.Index) -> list[str]:
    """Count the runs in which the coded error is below the uncoded: runs are paired, so this varies less than means."""
    below = [
        curve(run, rate, alpha).loc[shards].to_numpy() < interpolate(curve(run, 1, alpha), shards)
        for _, run in table.groupby("run")
    ]
    return [f"{int(won)}/{len(below)}" for won in np.sum(below, axis=0)]


def cheaper_at_equal_error(name: str, rate: int = 5) -> Judge:
    """Check that no uncoded model that is at most as costly to refit has a lower error than a coded one."""

    def judge(tables: Tables) -> Judgement | None:
        points = summarise(tables[name])
        uncoded, coded = (points[points["rate"] == r][["refit_seconds", "test_mse"]] for r in (1, rate))
        lines, judged = [], []
        for cost, error in coded.itertuples(index=False):
            rivals = uncoded[uncoded["refit_seconds"] <= cost]["test_mse"]
            if len(rivals):
                judged.append(bool(error <= rivals.min()))
                lines.append(f"{1e3 * cost:.0f} ms: {error:.3g} against {rivals.min():.3g}")
        return Judgement(all(judged), "refit cost, coded against best uncoded: " + ", ".join(lines)) if judged else None

    return judge


def near_one_learner(name: str, rates: tuple[int, ...], features: int, within: float) -> Judge:
    """Check that the error is near that of one learner while shards keep five times more rows than features."""

    def judge(tables: Tables) -> Judgement:
        single, worst = curve(tables[name], 1).loc[1], {}
        for rate in rates:
            rows = tables[name][(tables[name]["rate"] == rate) & (tables[name]["shard_rows"] >= 5 * features)]
            worst[rate] = rows.groupby("shards")["test_mse"].mean().max() / single - 1
        numbers = ", ".join(f"{_rate_label(rate)} at most {100 * excess:+.1f} %" for rate, excess in worst.items())
        return Judgement(all(excess <= within for excess in worst.values()), f"one learner {single:.3g}; {numbers}")

    return judge


def gain_grows_with_variance(tables: Tables) -> Judgement:
    """Check that the ratio of uncoded to coded error, at the most shards up to 40, grows with the variance."""
    gains = {}
    for variance in ("0.1", "0.5", "0.7"):
        uncoded, coded = curve(tables[f"lognormal-{variance}"], 1), curve(tables[f"lognormal-{variance}"], 5)
        shards = coded.index[coded.index <= 40][-1:]
        gains[variance] = float(interpolate(uncoded, shards)[0] / coded.loc[shards[0]])
    values = list(gains.values())
    return Judgement(values == sorted(values), ", ".join(f"variance {v}: {g:.2f}x" for v, g in gains.items()))


def floor_grows_with_rate(name: str) -> Judge:
    """Check that the lowest error over all numbers of shards grows with the rate."""

    def judge(tables: Tables) -> Judgement:
        rates = sorted(tables[name]["rate"].unique())
        lowest = [float(curve(tables[name], rate).min()) for rate in rates]
        numbers = ", ".join(f"{_rate_label(rate)}: {low:.3g}" for rate, low in zip(rates, lowest, strict=True))
        return Judgement(lowest == sorted(lowest), numbers)

    return judge


def training_below_test(names: tuple[str, ...]) -> Judge:
    """Check that the training error is below the test error, point by point."""

    def judge(tables: Tables) -> Judgement:
        lines, holds = [], True
        for name in names:
            points = summarise(tables[name])
            below = points["train_mse"] < points["test_mse"]
            holds = holds and bool(below.all())
            lines.append(f"{name} {int(below.sum())} of {len(below)}")
        return Judgement(holds, "points where it holds: " + ", ".join(lines))

    return judge


def removal_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean error by share of rows left, one column per criterion."""
    return table.pivot_table(index="left", columns="removed", values="test_mse", aggfunc="mean")


def outliers_hurt_more(name: str) -> Judge:
    """Check that removing outliers increases the error more than removing inliers, at every share."""

    def judge(tables: Tables) -> Judgement:
        errors = removal_errors(tables[name])
        part = errors[errors.index < 1]
        numbers = ", ".join(f"{100 * left:.0f} % left: {row.outliers:.3g} against {row.inliers:.3g}"
                            for left, row in part.iloc[::-3].iterrows())  # fmt: skip
        holds = bool((part["outliers"] > part["inliers"]).all())
        return Judgement(holds, f"outliers against inliers removed, {numbers}")

    return judge


def similar_before_half(name: str, within: float) -> Judge:
    """Check that both criteria are similar until half of the rows are removed."""

    def judge(tables: Tables) -> Judgement:
        errors = removal_errors(tables[name])
        gap = errors["outliers"] / errors["inliers"] - 1
        early = float(gap[gap.index >= 0.5].abs().max())
        late = float(gap.iloc[0])
        return Judgement(
            early <= within, f"gap at most {100 * early:.1f} % down to half, {100 * late:+.1f} % at the smallest share"
        )

    return judge


def projections_beat_original(tables: Tables) -> Judgement:
    """Check that one learner on random features beats one on the original features."""
    table = tables["lognormal-mlp"]
    single = table[(table["shards"] == 1) & ~table["intercept"]].groupby(["features", "alpha"])["test_mse"].mean()
    numbers = ", ".join(f"{name} features, alpha {alpha:g}: {mse:.3g}" for (name, alpha), mse in single.items())
    return Judgement(bool(single["projected"].max() < single["original"].min()), numbers)


def no_intercept(tables: Tables) -> Judgement:
    """Check the paper's only absolute number: 0.147 to 0.15 on the original features of the MLP data."""
    table = tables["intercept-mlp"]
    single = table[table["shards"] == 1].groupby(["intercept", "alpha"])["test_mse"].agg(["mean", "sem"]).fillna(0.0)
    without = single.loc[False]
    near = (without["mean"] - 2 * without["sem"] <= 0.15) & (without["mean"] + 2 * without["sem"] >= 0.147)
    text = ", ".join(
        f"{'with' if intercept else 'without'} intercept, alpha {alpha:g}: {row['mean']:.3g} +- {2 * row['sem']:.2g}"
        for (intercept, alpha), row in single.iterrows()
    )
    return Judgement(bool(near.all()), text)


def intercept_helps(tables: Tables) -> Judgement:
    """Check that an intercept lowers the error of every model (not in the paper)."""
    rows = summarise(tables["intercept"]).pivot(index=["rate", "shards"], columns="intercept", values="test_mse")
    ratio = rows[True] / rows[False]
    return Judgement(bool((ratio < 1).all()), f"with / without: {ratio.min():.3f} to {ratio.max():.3f} over the sweep")


def learning_costs_a_rate_less(tables: Tables) -> Judgement:
    """Check that training all coded learners takes 1/rate of the time of all uncoded ones, in the paper's cost."""
    table = summarise(tables["protein"])
    table = table[table["alpha"] == table["alpha"].iloc[0]]
    total = (table["learners"] * table["refit_seconds"]).groupby([table["rate"], table["shards"]]).first()
    uncoded, coded = total.loc[1], total.loc[5]
    ratio = interpolate(uncoded, coded.index) / coded.to_numpy()
    return Judgement(bool(np.median(ratio) > 4), f"uncoded over coded: median {np.median(ratio):.1f}x (rate 5)")


def warm_start_forgets(name: str) -> Judge:
    """Check that an iterative solver restarted from the old weights ends at the retrained ones."""

    def judge(tables: Tables) -> Judgement:
        table = tables[name][tables[name]["start"] == "old weights"]
        share = (table["error"] / table["old_error"]).groupby(table["tolerance"]).median()
        numbers = ", ".join(f"rtol {tol:g}: {100 * s:.1f} %" for tol, s in share.iloc[::-1].items())
        return Judgement(bool(share.loc[1e-8] < 0.01), f"distance to the retrained weights that is left, {numbers}")

    return judge


def _rate_label(rate: int) -> str:
    return "uncoded" if rate == 1 else f"rate {rate}"


REAL_AND_DRAWN = ("protein", "computer-activity", "power-plant", "chi-square", "lognormal-mlp", "gaussian")

CLAIMS: dict[str, Claim] = {
    "protein-coding-wins": Claim(
        "Protein: at equal shard size coding gives a lower mean error, for every penalty and s above ten.",
        ("protein",), coded_below_uncoded("protein")),
    "computer-activity-coding-wins": Claim(
        "Computer Activity, rate 5: at equal shard size the coded error is below the uncoded at every s above ten.",
        ("computer-activity",), coded_below_uncoded("computer-activity")),
    "computer-activity-rate-2": Claim(
        "Computer Activity, rate 2: at equal shard size the coded error is below the uncoded at every s above ten.",
        ("computer-activity",), coded_below_uncoded("computer-activity", rate=2)),
    "power-plant-nothing-lost": Claim(
        "Power Plant: coded models are within 3 % of one learner while shards keep 5x more rows than features.",
        ("power-plant",), near_one_learner("power-plant", (2, 5), 20, 0.03)),
    "gaussian-flat": Claim(
        "Gaussian: plain sharding loses nothing (within 5 %) while shards keep 5x more rows than features.",
        ("gaussian",), near_one_learner("gaussian", (1,), 100, 0.05)),
    "gaussian-coding-not-worse": Claim(
        "Gaussian: coding is not worse either (within 10 %) while shards keep 5x more rows than features.",
        ("gaussian",), near_one_learner("gaussian", (2, 5), 100, 0.10)),
    "tails-gain": Claim(
        "Lognormal polynomials: the heavier the tail, the larger the gain of coding.",
        ("lognormal-0.1", "lognormal-0.5", "lognormal-0.7"), gain_grows_with_variance),
    "chi-square-coding-wins": Claim(
        "Chi-square polynomial, rate 5: at equal shard size the coded error is below the uncoded at every s above ten.",
        ("chi-square",), coded_below_uncoded("chi-square")),
    "chi-square-cheaper": Claim(
        "Chi-square polynomial, rate 5: no uncoded model that is as cheap to refit has a lower error than a coded one.",
        ("chi-square",), cheaper_at_equal_error("chi-square")),
    "lognormal-cheaper": Claim(
        "Lognormal polynomial, variance 0.7: no uncoded model as cheap to refit has a lower error than a coded one.",
        ("lognormal-0.7",), cheaper_at_equal_error("lognormal-0.7")),
    "chi-square-floor": Claim(
        "Chi-square polynomial: the lowest reachable error grows with the rate.",
        ("chi-square",), floor_grows_with_rate("chi-square")),
    "large-scale-floor": Claim(
        "Large scale: the lowest reachable error grows with the rate.",
        ("large-scale",), floor_grows_with_rate("large-scale")),
    "mlp-coding-wins": Claim(
        "Lognormal MLP, rate 5: at equal shard size coding gives a lower error, for both penalties and s above ten.",
        ("lognormal-mlp",), coded_below_uncoded("lognormal-mlp")),
    "projections": Claim(
        "Lognormal MLP: random projections beat the original features.",
        ("lognormal-mlp",), projections_beat_original),
    "training-below-test": Claim(
        "The average training error is always below the average test error, point by point.",
        REAL_AND_DRAWN, training_below_test(REAL_AND_DRAWN)),
    "learning-cost": Claim(
        "Coding lowers the cost of learning, of all learners together, by a factor of the rate (rate 5: at least 4).",
        ("protein",), learning_costs_a_rate_less),
    "influence-computer-activity": Claim(
        "Computer Activity: removing outliers hurts more, and at once, than removing inliers.",
        ("influence-computer-activity",), outliers_hurt_more("influence-computer-activity")),
    "influence-power-plant": Claim(
        "Power Plant: both removals are similar (within 10 %) until half of the rows are gone.",
        ("influence-power-plant",), similar_before_half("influence-power-plant", 0.10)),
    "influence-lognormal": Claim(
        "Lognormal polynomial, variance 0.7: removing outliers hurts more than removing inliers.",
        ("influence-lognormal-0.7",), outliers_hurt_more("influence-lognormal-0.7")),
    "influence-chi-square": Claim(
        "Chi-square polynomial: removing outliers hurts more than removing inliers.",
        ("influence-chi-square",), outliers_hurt_more("influence-chi-square")),
    "influence-gaussian": Claim(
        "Gaussian: both removals are similar (within 10 %) until half of the rows are gone.",
        ("influence-gaussian",), similar_before_half("influence-gaussian", 0.10)),
    "original-features": Claim(
        "Original features of the MLP data, no intercept: an error of 0.147 to 0.15 (within two standard errors).",
        ("intercept-mlp",), no_intercept),
    "intercept": Claim(
        "Beyond the paper: an intercept lowers the error of every model on Computer Activity.",
        ("intercept",), intercept_helps),
    "warm-start": Claim(
        "A solver restarted from the old weights ends at the retrained ones (rtol 1e-8: under 1 % of the way left).",
        ("warm-start",), warm_start_forgets("warm-start")),
    "warm-start-protein": Claim(
        "A solver restarted from the old weights ends at the retrained ones, on Protein, D=300 (rtol 1e-8: under 1 %).",
        ("warm-start-protein",), warm_start_forgets("warm-start-protein")),
}  # fmt: skip


def check_claim_names(names: list[str]) -> list[str]:
    """Return the names if all of them are claims; refuse unknown ones."""
    if unknown := sorted(set(names) - set(CLAIMS)):
        raise InvalidSetting(f"unknown claims: {', '.join(unknown)}; there are {', '.join(CLAIMS)}")
    return names


def judge_claims(tables: Tables, names: list[str] | None = None) -> dict[str, Judgement]:
    """Check the claims whose tables are present."""
    verdicts = {
        name: claim.judge(tables)
        for name, claim in CLAIMS.items()
        if (names is None or name in names) and set(claim.experiments) <= set(tables)
    }
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}
