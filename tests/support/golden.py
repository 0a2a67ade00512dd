"""A small model whose data and draws are all written down in golden.json; run as a program it prints its digests.

``python golden.py --write`` draws it anew: only if the digest is meant to change.
"""

import json
import sys
from pathlib import Path

import numpy as np

from expunge import Code, CodedClassifier, random_code
from expunge.classifier import FittedClassifier
from expunge.encoding.bounds import parse_bounds
from expunge.encoding.features import PowersMap
from expunge.encoding.fourier import RandomFourierMap
from expunge.encoding.placement import draw_slots, slots_needed
from expunge.encoding.scales import Scales
from expunge.learning.blueprint import Blueprint
from expunge.learning.class_rules import ClassRule
from expunge.learning.labels import Labels
from expunge.learning.rules import RidgeRule
from expunge.learning.state import ModelState
from expunge.stores.change import Change
from expunge.stores.ids import IdIndex
from expunge.stores.store import Rows

PATH = Path(__file__).with_name("golden.json")

SCALES = Scales.parse([["linear", "log"], [1.5, 2.0, 3.0, 4.25], "log"], 3)  # of rows above zero
SCALED = RandomFourierMap(12, kernel="matern32", scale=[1.0, 2.0, 0.5, 3.0], linear=True, order=3)


def digests() -> dict[str, str]:
    """The digests of five models, before and after unlearning; every number comes from the file."""
    golden = json.loads(PATH.read_text())
    found = {}
    plain = Scales.parse(None, 3)
    models = {
        "fourier": (fourier(golden, RandomFourierMap(16)), plain, None, 0),
        "powers": (PowersMap(3).restore(3, {}), plain, None, 0),
        "scales": (fourier(golden["scaled"], SCALED), SCALES, "log", 3),
    }
    for name, (features, scales, target_scales, shift) in models.items():
        state = learned(golden, features, scales, target_scales, shift)
        found[name] = state.ensemble.digest()
        gone = draw_slots(state.blueprint.key, 0, 64, 6)[golden["unlearned"]]
        found[f"{name}, unlearned"] = state.prepare(Change(gone)).commit().ensemble.digest()
    for classes in (2, 5):
        model = classifier(golden, classes)
        found[f"{classes} classes"] = model.digest()
        model.unlearn(golden["unlearned"][:3])
        found[f"{classes} classes, unlearned"] = model.digest()
    return found


def classifier(golden, classes) -> CodedClassifier:
    """A classifier of the data, whose targets are cut into as many classes; two rows per person."""
    X, y = np.array(golden["X"]) / 1024, np.array(golden["y"]) * classes // 4097
    blueprint = Blueprint(
        key=np.array(golden["key"], dtype=np.uint64),
        code=Code.uncoded(2),
        features=fourier(golden, RandomFourierMap(16)),
        scales=Scales.parse(None, 3),
        inputs=parse_bounds(None, 3, name="bounds"),
        targets=parse_bounds("unit", classes, name="classes"),
        target_scales=Scales.parse_targets(None, classes),
        intercept=True,
        clip=False,
        outside="clamp",
        keep="rows",
        rule=ClassRule(1e-3, 0.5),
        aggregate="mean",
    )
    slots = draw_slots(blueprint.key, 0, len(X), 2)
    rows = Rows.place(X, np.eye(classes)[y], slots, len(X))
    state, index = ModelState.learn(blueprint, rows, len(X)), IdIndex(np.arange(len(X)) // 2, slots)
    fitted = FittedClassifier(state, index, False, True, Labels.declare(range(classes)), np.bincount(y), "auto")
    return CodedClassifier()._set_fitted_model(fitted)


def fourier(golden, features) -> RandomFourierMap:
    drawn = {name: np.array(golden[name]) for name in ("projection", "phases", "exponents")}
    return features.copy().restore(len(drawn["projection"]), drawn)


def learned(golden, features, scales, target_scales, shift) -> ModelState:
    blueprint = Blueprint(
        key=np.array(golden["key"], dtype=np.uint64),
        code=Code(np.array(golden["G"])),
        features=features,
        scales=scales,
        inputs=parse_bounds(None, 3, name="bounds"),
        targets=parse_bounds(None, 1, name="target_bounds"),
        target_scales=Scales.parse_targets(target_scales, 1),
        intercept=True,
        clip=False,
        outside="clamp",
        keep="rows",
        rule=RidgeRule(1e-3),
        aggregate="mean",
    )
    X, y = np.array(golden["X"]) / 1024 + shift, np.array(golden["y"])[:, None] / 1024 + shift
    slots = draw_slots(blueprint.key, 0, len(X), blueprint.code.shards)
    return ModelState.learn(blueprint, Rows.place(X, y, slots, slots_needed(len(X), blueprint.code.shards)), len(X))


def write() -> None:
    rng = np.random.default_rng(20210101)
    features = RandomFourierMap(16).draw_copy(3, rng)
    golden = {
        "key": rng.integers(0, 2**63, 2).tolist(),
        "G": random_code(6, 2, density=0.6, random_state=rng).G.tolist(),
        **{name: array.tolist() for name, array in features.arrays().items()},
        "X": rng.integers(-2048, 2048, (64, 3)).tolist(),
        "y": rng.integers(0, 4096, 64).tolist(),
        "unlearned": [3, 17, 18, 40],
    }
    drawn = SCALED.draw_copy(SCALES.n_out, rng).arrays()
    golden["scaled"] = {name: array.tolist() for name, array in drawn.items()}
    golden["slots"] = draw_slots(np.array(golden["key"], dtype=np.uint64), 0, 64, 6).tolist()
    PATH.write_text(json.dumps(golden))
    golden["digests"] = digests()
    PATH.write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    sys.stdout.write(json.dumps(digests()) + "\n")
