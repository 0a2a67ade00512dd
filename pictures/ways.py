"""The picture of a row's ways: what happens, room by room, when a model learns, forgets and predicts.

Which functions are shown is chosen here; that they are entered, in which order, and in which rooms they are is found by
running a small example. A function that is no longer entered, or renamed, is an error.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor, Powers
from expunge.vault import Vault, writer

from .svg import FAINT, INK, PAPER, Drawing, fitted, width
from .tracing import Step, entered

WIDE, EDGE, PITCH = 1000, 20, 64  # pitch: from column to column
TEXT, ROW = 412, 36  # where the words begin, and from row to row
_FACE = ("regressor.py", "estimator.py", "estimator.py")
_BADGE = "#744210"
_COLORS = {
    "face": "#2f6fb3",
    "vault": "#b7791f",
    "vault.requests": "#c05621",
    "vault.disk": "#975a16",
    "vault.ledger": "#9b2c2c",
    "vault.certificates": "#6b46c1",
    "learning": "#2f855a",
    "stores": "#2c7a7b",
    "encoding": "#4c51bf",
    "exact": "#b83280",
}  # in the order of the columns
_ROOMS = {*_COLORS, "saving", "vault.tables"}


@dataclass(frozen=True)
class Way:
    """What somebody asks, and the functions that are worth to be shown."""

    title: str
    told: str
    run: Callable[[], object]
    shown: tuple[str, ...]
    steps: dict[str, int] = field(default_factory=dict)  # which of them is which of the vault's six steps


_FIT = (
    "CodedRegressor.fit",
    "draw_blueprint",
    "Blueprint.admit",
    "draw_slots",
    "Rows.place",
    "State.learn",
    "Ensemble.learn",
    "Rows.shard",
    "Encoder.integers",
    "PowersMap.map_block",
    "Column.sum",
    "Tally.add",
    "Moments.of",
    "ridge_weights",
)
_UNLEARN = (
    "CodedRegressor.unlearn",
    "IdIndex.find",
    "State.after",
    "Ensemble.changed",
    "Code.learners_of",
    "RidgeRule.relearn",
    "Rows.touched",
    "Moments.exchanged",
    "ridge_weights",
    "Outcome.commit",
    "Rows.commit",
    "IdIndex.erase",
)
_PREDICT = (
    "CodedRegressor.predict",
    "Ensemble.predict",
    "RidgeRule.predictor",
    "Encoder.features_of",
    "Bounds.scale",
    "PowersMap.map_block",
    "Encoder.unscaled",
)
_STEPS = {
    "Plan.prepare": 1,
    "Ledger.append": 2,
    "Folder.commit": 3,
    "Unlearn.overwrite": 4,
    "Folder.wipe_all_but": 5,
    "Notary.certify": 6,
}
_VAULT = (
    "Vault.unlearn",
    "Writer.locked",
    "look_up",
    "People.find",
    "Unlearn.plan",
    "Snapshot.touching",
    "State.after",
    "Writer.perform",
    "RowFile.erase",
    "People.bury",
    "SigningKey.sign",
    *_STEPS,
)


@contextmanager
def _ways() -> Iterator[list[Way]]:
    """The ways, on forty rows."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 2))
    y = X.sum(axis=1)
    model = CodedRegressor(shards=4, rate=2, features=Powers(2), bounds=(0, 1), target_bounds=(0, 2), random_state=0)
    table = pa.table({"who": range(40), "a": X[:, 0], "b": X[:, 1], "y": y})
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault.create(Path(folder) / "small.vault", table, target="y", id="who", model=model)
        yield [
            Way("Fit", "model.fit(X, y): rows become moments, moments become weights", lambda: model.fit(X, y), _FIT),
            Way("Unlearn", "model.unlearn([3]): a row goes, exactly", lambda: model.unlearn([3]), _UNLEARN),
            Way("Predict", "model.predict(X): nothing is changed", lambda: model.predict(X), _PREDICT),
            Way(
                "Unlearn in a vault",
                "vault.unlearn([3]): the six steps; State.after is the way of Unlearn, above",
                lambda: vault.unlearn([3]),
                _VAULT,
                _STEPS,
            ),
        ]


def drawn() -> str:
    """Draw the ways."""
    with _ways() as ways:
        for way in ways:
            way.run()  # once in vain: what is computed only the first time in a process is no part of the way
    drawing = Drawing(WIDE, "A row's ways through the rooms: fit, unlearn, predict, and unlearn in a vault")
    drawing.text(EDGE, 32, "A row's ways through the rooms", 18, bold=True)
    told = f"Functions in the order in which they are first entered; most are left out. The face: {', '.join(_FACE)}."
    drawing.text(EDGE, 52, told, 12.5, color=FAINT)
    y = 66.0
    with _ways() as ways:
        for way in ways:
            y += _way(drawing, way, y) + 14
    return drawing.finished(y)


def _room(step: Step) -> str:
    return "face" if step.file in _FACE else step.room


def _way(drawing: Drawing, way: Way, y: float) -> float:
    """Draw one way; returns how high it is."""
    trace = entered(way.run)
    steps = _shown(way, trace)
    rooms = [room for room in _COLORS if room in map(_room, steps)]
    columns = {room: EDGE + 36 + PITCH * k for k, room in enumerate(rooms)}
    others = sorted({_room(step) for step in trace if _room(step) in _ROOMS} - set(rooms))
    feet = [y + 76 + ROW * k for k in range(len(steps) + 1)]
    high = feet[-1] - y + (8 if others else -8)
    drawing.box(EDGE, y, WIDE - 2 * EDGE, high, fill="#f8fafc")
    drawing.text(EDGE + 14, y + 24, way.title, 15, bold=True)
    drawing.text(EDGE + 28 + width(way.title, 15, bold=True), y + 24, way.told, 12.5, color=FAINT)
    for room, x in columns.items():
        drawing.text(x, y + 50, room.rpartition(".")[2], 10.5, color=_COLORS[room], bold=True, anchor="middle")
        drawing.path(f"M{x} {y + 58:.0f}V{feet[-1] - 16:.0f}")
    _line(drawing, [columns[_room(step)] for step in steps], feet)
    for step, foot in zip(steps, feet, strict=False):
        drawing.dot(columns[_room(step)], foot - 4, 6, _COLORS[_room(step)])
        _words(drawing, step, foot, way.steps.get(step.name))
    if others:
        drawing.text(EDGE + 14, feet[-1] - 2, f"also entered: {', '.join(others)}", 11, color=FAINT)
    return high


def _shown(way: Way, trace: list[Step]) -> list[Step]:
    """The steps that are shown, in the order in which they were entered."""
    steps = [step for step in trace if step.name in way.shown]
    if missing := set(way.shown) - {step.name for step in steps}:
        raise LookupError(f"{way.title}: no longer entered: {sorted(missing)}; choose what to show in {__file__}")
    numbers = [way.steps[step.name] for step in steps if step.name in way.steps]
    if numbers != sorted(numbers):
        raise LookupError(f"{way.title}: the six steps are entered in the order {numbers}")
    return steps


def _line(drawing: Drawing, xs: list[float], feet: list[float]) -> None:
    points = [f"{x:.0f} {foot - 4:.0f}" for x, foot in zip(xs, feet, strict=False)]
    drawing.path(f"M{'L'.join(points)}", color=INK, thick=1.3)


def _words(drawing: Drawing, step: Step, foot: float, number: int | None) -> None:
    """Write what a step is and does; the number is that among the vault's six steps."""
    x = float(TEXT)
    if number is not None:
        label = f"{number} {_names()[number - 1]}"
        drawing.box(x, foot - 13, width(label, 11, bold=True) + 12, 16, fill=_BADGE, edge=_BADGE, round_=8)
        drawing.text(x + 7, foot, label, 11, color=PAPER, bold=True)
        x += width(label, 11, bold=True) + 20
    drawing.text(x, foot, step.name, 12.5, mono=True, bold=True)
    drawing.text(WIDE - EDGE - 12, foot, step.file, 11, mono=True, color=FAINT, anchor="end")
    drawing.text(TEXT, foot + 16, fitted(step.gist, 12, WIDE - EDGE - 12 - TEXT), 12, color=FAINT)


def _names() -> list[str]:
    """The names of the six steps, as the writer's docstring gives them."""
    return re.findall(r"^\d\. \*(\w+)\*", writer.__doc__ or "", flags=re.MULTILINE)
