"""A small model whose data and draws are all written down in golden.json; run as a program it prints its digests.

``python golden.py --write`` draws it anew: only if the digest is meant to change.
"""

import json
import sys
from pathlib import Path

import numpy as np

from expunge import Code, RandomFourier, random_code
from expunge.encoding.bounds import parse_bounds
from expunge.encoding.features import Powers
from expunge.learning.blueprint import Blueprint
from expunge.learning.ensemble import RidgeRule
from expunge.learning.state import FirstRows, State
from expunge.stores.shards import Change
from expunge.stores.slots import draw_slots

PATH = Path(__file__).with_name("golden.json")


def digests() -> dict[str, str]:
    """The digests of two models, before and after unlearning; every number comes from the file."""
    golden = json.loads(PATH.read_text())
    found = {}
    for name, features in (("fourier", fourier(golden)), ("powers", Powers(3).restore(3, {}))):
        state = learned(golden, features)
        found[name] = state.ensemble.digest()
        gone = state.index.find(np.array(golden["unlearned"]))
        outcome = state.after(Change(gone.slots), forget=gone)
        found[f"{name}, unlearned"] = outcome.commit().ensemble.digest()
    return found


def fourier(golden) -> RandomFourier:
    drawn = {name: np.array(golden[name]) for name in ("projection", "phases", "exponents")}
    return RandomFourier(len(drawn["phases"])).restore(3, drawn)


def learned(golden, features) -> State:
    blueprint = Blueprint(
        key=np.array(golden["key"], dtype=np.uint64),
        code=Code(np.array(golden["G"])),
        features=features,
        inputs=parse_bounds(None, 3, name="bounds"),
        targets=parse_bounds(None, 1, name="target_bounds"),
        intercept=True,
        clip=False,
        keep="rows",
        rule=RidgeRule(1e-3),
        aggregate="mean",
    )
    X, y = np.array(golden["X"]) / 1024, np.array(golden["y"])[:, None] / 1024
    return State.learn(blueprint, FirstRows.placed(blueprint, X, y), None, flat=True)


def write() -> None:
    rng = np.random.default_rng(20210101)
    features = RandomFourier(16).drawn(3, rng)
    golden = {
        "key": rng.integers(0, 2**63, 2).tolist(),
        "G": random_code(6, 2, density=0.6, random_state=rng).G.tolist(),
        **{name: array.tolist() for name, array in features.arrays().items()},
        "X": rng.integers(-2048, 2048, (64, 3)).tolist(),
        "y": rng.integers(0, 4096, 64).tolist(),
        "unlearned": [3, 17, 18, 40],
    }
    golden["slots"] = draw_slots(np.array(golden["key"], dtype=np.uint64), 0, 64, 6).tolist()
    PATH.write_text(json.dumps(golden))
    golden["digests"] = digests()
    PATH.write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    sys.stdout.write(json.dumps(digests()) + "\n")
