"""What forgetting takes here and now: shown beside what is predicted. No decision depends on it."""

import time

import numpy as np

from ..fitted import placed
from ..learning.blueprint import draw_blueprint
from ..learning.settings import Settings
from ..learning.state import State
from ..stores.change import Change
from .ground import Ground
from .trial import unit

_FORGETS = 3  # times that forgetting is measured


def forgets(ground: Ground, settings: Settings) -> float:
    """Milliseconds that it takes here to forget a row of the sample, without the ids; nothing is committed."""
    fold = ground.folds[0]
    some = slice(0, 50 * settings.shards)
    blueprint = draw_blueprint(unit(settings), fold.Z.shape[1], fold.targets.shape[1])
    rows, slots = placed(blueprint, fold.Z[some], fold.targets[some])
    state = State.learn(blueprint, rows, len(slots))
    times = []
    for slot in slots[:_FORGETS]:
        started = time.perf_counter()
        state.after(Change(np.array([slot])))
        times.append(time.perf_counter() - started)
    return min(times) * 1e3
