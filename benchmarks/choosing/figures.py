"""The pictures of docs/choosing.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.figure import Figure

from expunge import CodedRegressor, RandomFourier
from expunge.encoding.encoder import Outside
from expunge.encoding.scales import Scales
from expunge.exact.arrays import Floats
from expunge.planning.planner import Plan

from .effects import SCALES, Codes, Lines, ground

INPUTS = ["lread", "lwrite", "scall", "sread", "swrite", "fork", "exec"]
INPUTS += ["rchar", "wchar", "runqsz", "freemem", "freeswap"]
_COLOURS = ("#1f5fa8", "#c26a00", "#2e8b57", "#8b3a8b", "#b03030")
_MARKS = ("o", "s", "^", "D", "v")
_ERROR = "error / variance"


def _panels(count: int, *, wide: float = 4.4, high: float = 3.4) -> tuple[Figure, Sequence[Any]]:
    figure = Figure(figsize=(wide * count, high), layout="constrained")
    panels: Sequence[Any] = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels


def _draw(axes: Any, lines: Lines, **style: Any) -> None:
    for (name, points), colour, mark in zip(lines.items(), _COLOURS, _MARKS, strict=False):
        axes.plot(list(points), list(points.values()), color=colour, marker=mark, markersize=5, label=name, **style)


def _ticks(axis: Any, values: Sequence[float], form: str = "g") -> None:
    axis.set_ticks(values, [format(value, form) for value in values])
    axis.set_ticks([], minor=True)


def cosines(error: Lines, forget: Lines, path: Path) -> None:
    """Error and time to forget against D."""
    figure, (left, right) = _panels(2)
    first = {name: next(iter(points.values())) for name, points in error.items()}
    _draw(left, {name: {D: one / first[name] for D, one in points.items()} for name, points in error.items()})
    left.set(xscale="log", xlabel="D, cosines", ylabel="error / error with 30 cosines", ylim=(0, None))
    left.set_title("more cosines, less error ...")
    right.plot(list(forget["predicted"]), list(forget["predicted"].values()), color="#555555", label="predicted")
    right.plot(list(forget["measured here"]), list(forget["measured here"].values()), "o", color=_COLOURS[0])
    right.lines[-1].set_label("measured")
    right.set(xscale="log", yscale="log", xlabel="D, cosines", ylabel="ms to forget a row", title="... for more time")
    _ticks(right.yaxis, (0.5, 1, 2, 5, 10, 20))
    for axes in (left, right):
        _ticks(axes.xaxis, list(next(iter(error.values()))))
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def penalties(lines: Lines, path: Path) -> None:
    """Error against alpha."""
    figure, (axes,) = _panels(1, wide=5.4)
    _draw(axes, lines)
    axes.set(xscale="log", yscale="log", xlabel="alpha", ylabel=_ERROR, title="Protein", ylim=(0.58, 20))
    _ticks(axes.yaxis, (0.6, 0.8, 1, 2, 5, 10, 20))
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def kernels(panels: dict[str, Lines], path: Path) -> None:
    """Error against scale, a line per kind, a panel per table."""
    figure, every = _panels(len(panels))
    for axes, (name, lines) in zip(every, panels.items(), strict=True):
        _draw(axes, lines)
        best = min(min(points.values()) for points in lines.values())
        axes.set_xscale("log", base=2)
        axes.set(xlabel="scale", title=name, ylim=(best * 0.97, best * 1.45))
        _ticks(axes.xaxis, list(next(iter(lines.values()))))
        axes.tick_params(axis="x", labelsize=8)
    every[0].set_ylabel(_ERROR)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def relevance(lines: Lines, plan: Plan, path: Path) -> None:
    """Error against useless inputs, and the relevance that a plan found."""
    figure, (left, right) = _panels(2)
    _draw(left, lines)
    left.set(xlabel="useless inputs beside four good ones", ylabel=_ERROR, title="Power Plant", ylim=(0, None))
    _ticks(left.xaxis, list(next(iter(lines.values()))))
    left.legend(frameon=False, fontsize=9)
    found = found_relevance(plan)
    order = np.argsort(found, kind="stable")
    right.plot(found[order], [INPUTS[j] for j in order], "o", color=_COLOURS[0])
    right.set_xscale("log", base=2)
    right.set(title="Computer Activity", xlabel="scale of the input, as a plan chose it")
    figure.savefig(path, dpi=110)


def found_relevance(plan: Plan) -> Floats:
    """The scale of each input, or the length of its row of a metric; of several (given twice, a blend) the largest."""
    model = plan.best
    assert model.features is not None
    known = model.features.get_params()
    parts = known["scale"] if "+" in known["kernel"] else [known["scale"]]
    scale = np.max([part if part.ndim == 1 else np.linalg.norm(part, axis=1) for part in parts], axis=0)
    source = Scales.parse(model.scales, len(INPUTS)).source
    return np.array([scale[source == j].max() for j in range(len(INPUTS))])


def codes(found: Codes, path: Path) -> None:
    """Error and costs of every code."""
    figure, panels = _panels(3, wide=3.5, high=3.2)
    names = list(found)[::-1]
    error = [found[name][0] for name in names]
    forget, train = ([getattr(found[name][1], cost) for name in names] for cost in ("forget_ms", "train_s"))
    for axes, values, title in zip(
        panels,
        (error, forget, train),
        (_ERROR, "ms to forget a row (predicted)", "s to train (predicted)"),
        strict=True,
    ):
        axes.barh(names, values, color=_COLOURS[0], height=0.6)
        axes.bar_label(axes.containers[0], fmt="%.2g" if title != _ERROR else "%.4f", padding=3, fontsize=9)
        axes.set_title(title, fontsize=11)
        axes.set(xlim=(0, 1.25 * max(values)))
        axes.grid(visible=False)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
    for axes in panels[1:]:
        axes.set_yticklabels([])
    figure.savefig(path, dpi=110)


def scales(lines: Lines, X: Floats, path: Path) -> None:
    """Where the values of a skewed input go, the error with each scale, and what is predicted outside the bounds."""
    figure, (left, middle, right) = _panels(3, wide=3.9)
    _spread(left, X[:, INPUTS.index("rchar")])
    for k, (name, points) in enumerate(lines.items()):
        places = [place + 0.12 * (k - 1) for place in points]
        middle.plot(places, [one / points[0] for one in points.values()], _MARKS[k], color=_COLOURS[k], label=name)
    middle.set_xticks(range(len(SCALES)), [name.replace(" and ", "\nand ") for name in SCALES])
    middle.set(yscale="log", ylabel="error / error of linear", title="all inputs on one scale", ylim=(0.75, 2.7))
    _ticks(middle.yaxis, (0.8, 0.9, 1, 1.2, 1.5, 2, 2.5))
    middle.grid(visible=False, axis="x")
    middle.legend(frameon=False, fontsize=9, loc="upper left")
    _outside(right)
    figure.savefig(path, dpi=110)


def _spread(axes: Any, values: Floats) -> None:
    """How the people's values lie between 0 and 1 on each scale."""
    knots = np.unique(np.quantile(values, np.linspace(0, 1, 17)).round(-3))
    for place, given in enumerate(("linear", "log", [knots.tolist()])):
        scaled = ground(values[:, None], values, given).folds[0].Z[:, 0]
        jitter = np.random.default_rng(0).uniform(-0.3, 0.3, len(scaled))
        axes.plot(scaled, place + jitter, ".", markersize=1, alpha=0.3, color=_COLOURS[place])
    axes.set_yticks(range(3), SCALES[:3])
    axes.invert_yaxis()
    axes.set(title="rchar of all rows", xlabel="place between 0 and 1")
    axes.grid(visible=False)


def _outside(axes: Any) -> None:
    """One input, learned between 0 and 1."""
    rng = np.random.default_rng(0)
    x = rng.random((300, 1))
    y = np.sin(5 * x[:, 0]) + rng.normal(0, 0.15, 300)
    wide = np.linspace(-0.6, 1.6, 300)[:, None]
    axes.plot(x, y, ".", markersize=3, color="#aaaaaa")
    ways: tuple[Outside, ...] = ("clamp", "extrapolate")
    for way, colour in zip(ways, _COLOURS, strict=False):
        features = RandomFourier(100, scale=4, random_state=0)
        model = CodedRegressor(shards=1, rate=1, features=features, bounds=(0, 1), outside=way, random_state=0)
        axes.plot(wide, model.fit(x, y).predict(wide), color=colour, label=f'outside="{way}"')
    axes.axvspan(0, 1, color="#eeeeee", zorder=0)
    axes.set(title="outside the bounds", xlabel="input (learned from the grey part)", ylabel="prediction")
    axes.legend(frameon=False, fontsize=9)
