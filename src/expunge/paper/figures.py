"""Figures: one per experiment, as PNG and SVG, readable in print."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .experiments import Experiment, Influence, TradeOff
from .runs import summarise

# Okabe and Ito's colours, which colour-blind readers can tell apart; in grey the markers differ.
COLOURS = {1: "#000000", 2: "#0072B2", 5: "#D55E00", 10: "#009E73", 20: "#CC79A7"}
MARKERS = {1: "o", 2: "s", 5: "^", 10: "D", 20: "v"}
LINES = ["-", "--", ":"]

STYLE: Any = {
    "font.size": 9,
    "axes.grid": True,
    "axes.formatter.min_exponent": 4,  # plain numbers on log axes, also on the secondary one, which resets formatters
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "svg.hashsalt": "expunge",
}


def draw_figure(name: str, experiment: Experiment, table: pd.DataFrame, out: Path) -> list[Path]:
    """Draw one experiment's figure into ``out`` and return the files."""
    with mpl.rc_context(STYLE):
        if isinstance(experiment, TradeOff):
            figure = draw_trade_off(experiment, summarise(table))
        elif isinstance(experiment, Influence):
            figure = draw_influence(experiment, summarise(table))
        else:
            figure = draw_warm_start(summarise(table))
        runs = table["run"].nunique()
        part = table["share"].min() if "share" in table else 1.0
        rows = f", {100 * part:g} % of the rows" if part < 1 else ""
        figure.suptitle(f"{experiment.title} ({runs} run{'s' if runs > 1 else ''}{rows})", fontsize=10)
        files = [out / f"{name}.png", out / f"{name}.svg"]
        figure.savefig(files[0], dpi=160, metadata={"Software": None})
        figure.savefig(files[1], metadata={"Date": None})
    return files


def draw_trade_off(experiment: TradeOff, points: pd.DataFrame) -> Figure:
    """Draw test error against cost (the paper's and ours) and number of shards, and training error against cost."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    cost, shards, learning = figure.subplots(1, 3)
    projected = points[points["features"] == "projected"]
    for (intercept, alpha, rate), line in projected.groupby(["intercept", "alpha", "rate"], sort=False):
        line = line.sort_values("shards")
        style = _line_style(experiment, bool(intercept), float(alpha), int(rate))
        cost.plot(1e3 * line["refit_seconds"], line["test_mse"], **style)
        cost.plot(1e3 * line["unlearn_seconds"], line["test_mse"], **style | {"label": None, "mfc": "white", "lw": 0.5})
        shards.plot(line["shards"], line["test_mse"], **style)
        shards.fill_between(
            line["shards"], line["test_mse_q25"], line["test_mse_q75"], color=style["color"], alpha=0.12, lw=0
        )
        learning.plot(1e3 * line["refit_seconds"], line["train_mse"], **style)
        single = line[line["shards"] == 1]
        star: dict[str, Any] = {"ms": 12, "color": "#E69F00", "mec": "black", "zorder": 5}
        cost.plot(1e3 * single["unlearn_seconds"], single["test_mse"], "*", **star)
        extrapolated = line[line["extrapolated"].astype(bool)]
        cost.plot(1e3 * extrapolated["refit_seconds"], extrapolated["test_mse"], "x", color="black", ms=9)
    for error in points[points["features"] == "original"]["test_mse"][:1]:  # among the shards it would flatten them
        cost.axhline(error, color="grey", lw=0.8, ls="-.")
        cost.annotate("original features", (0.03, error), xycoords=("axes fraction", "data"), va="bottom", size=7)
    one_refit = 1e3 * projected[projected["shards"] == 1]["refit_seconds"].median()
    top = cost.secondary_xaxis("top", functions=(lambda x: x / one_refit, lambda x: x * one_refit))
    top.set_xlabel("relative to one learner's refit", fontsize=7.5)
    _label_axes(
        cost,
        "time to unlearn a row (ms)\nfilled: refit, hollow: ours, star: our one learner",
        "test MSE",
    )
    _label_axes(shards, "shards, s", "test MSE")
    _label_axes(learning, "mean time to train a weak learner (ms)", "training MSE")
    if points["extrapolated"].any():
        cost.set_xlabel(cost.get_xlabel() + "\ncross: extrapolated from a part of the rows")
    figure.legend(*shards.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _line_style(experiment: TradeOff, intercept: bool, alpha: float, rate: int) -> dict[str, Any]:
    label = "uncoded" if rate == 1 else f"coded, rate {rate}"
    if len(experiment.alphas) > 1:
        label += f", $\\lambda$={alpha:g}"
    if len(experiment.intercepts) > 1:
        label += ", intercept" if intercept else ", no intercept"
    marker = "P" if intercept else MARKERS[rate]
    line = LINES[experiment.alphas.index(alpha) % 3]
    return {
        "color": COLOURS[rate],
        "marker": marker,
        "ls": line,
        "label": label,
        "ms": 5 if intercept else 4,
        "lw": 1.2,
    }


def _label_axes(ax: Axes, x: str, y: str) -> None:
    ax.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    _format_ticks(ax.xaxis)
    _format_ticks(ax.yaxis)


def _format_ticks(axis: Axis) -> None:
    """Put plain numbers on a log axis, also between the powers of ten if the axis spans few of them."""

    def format_minor(value: float, _: object) -> str:
        low, high = axis.get_view_interval()
        digits = "123456789" if high < 3 * low else "235" if high < 20 * low else ""
        return f"{value:g}" if f"{value:e}"[0] in digits else ""

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(format_minor))


def draw_influence(experiment: Influence, points: pd.DataFrame) -> Figure:
    """Draw test error against the share of rows left, and the density of the features if it is known."""
    density = DENSITIES.get(experiment.data)
    figure = Figure(figsize=(5.2 if density is None else 7.2, 3.8), layout="constrained")
    widths = (1,) if density is None else (3, 1)
    ax, *side = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    for (removed, line), colour, marker in zip(points.groupby("removed"), ("#0072B2", "#D55E00"), "os", strict=False):
        ax.plot(100 * line["left"], line["test_mse"], color=colour, marker=marker, label=f"{removed} removed", ms=4)
        ax.fill_between(100 * line["left"], line["test_mse_q25"], line["test_mse_q75"], color=colour, alpha=0.15, lw=0)
    ax.invert_xaxis()
    ax.set(xlabel="training rows left (%)", ylabel="test MSE of one learner", yscale="log")
    _format_ticks(ax.yaxis)
    ax.legend(loc="upper left")
    if density is not None:
        side[0].plot(*density, color="black", lw=1)
        side[0].set(xlabel="feature", ylabel="density")
    return figure


def draw_warm_start(points: pd.DataFrame) -> Figure:
    """Draw the distance to the retrained weights, and the iterations, against the tolerance."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (start, line), colour, marker in zip(points.groupby("start"), ("#D55E00", "#0072B2"), "^o", strict=True):
        left.plot(
            line["tolerance"], line["error"], color=colour, marker=marker, label=f"conjugate gradients from {start}"
        )
        right.plot(line["tolerance"], line["iterations"], color=colour, marker=marker, label=f"from {start}")
    left.axhline(points["old_error"].mean(), color="black", ls="--", lw=1, label="the old weights themselves")
    left.set(xscale="log", yscale="log", xlabel="tolerance (rtol)", ylabel="relative distance to retrained weights")
    right.set(xscale="log", xlabel="tolerance (rtol)", ylabel="iterations")
    for ax in (left, right):
        ax.invert_xaxis()
        ax.legend()
    return figure


def _lognormal_density(variance: float) -> tuple[Any, Any]:
    x = np.linspace(0.05, 15, 300)
    return x, np.exp(-((np.log(x) - 1) ** 2) / (2 * variance)) / (x * np.sqrt(2 * np.pi * variance))


def _chi_square_density() -> tuple[Any, Any]:
    x = np.linspace(0.05, 8, 300)
    return x, np.exp(-x / 2) / np.sqrt(2 * np.pi * x)


def _gaussian_density() -> tuple[Any, Any]:
    x = np.linspace(-4, 4, 300)
    return x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


DENSITIES = {
    "lognormal-0.1": _lognormal_density(0.1),
    "lognormal-0.5": _lognormal_density(0.5),
    "lognormal-0.7": _lognormal_density(0.7),
    "chi-square": _chi_square_density(),
    "gaussian": _gaussian_density(),
}
