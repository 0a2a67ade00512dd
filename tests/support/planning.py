"""A search that is shortened, not changed: plans of small tables in a second or less; and a planner of no search."""

import hashlib
from contextlib import contextmanager

import numpy as np
import pytest

from expunge.encoding.features import PowersMap
from expunge.learning.settings import Settings
from expunge.planning import search
from expunge.planning.choice import SettingsChoice
from expunge.vault.requests import choice

SHORT = {
    "_TRIAL_COSINES": 40, "_POLISH_COSINES": 40, "_STEP_COSINES": 40, "_MAX_STEP_COSINES": 40, "_QUICK_COSINES": 24,
    "_ROUNDS": 2, "_MAX_SWEEPS": 1, "_POLISHED_INPUTS": 2, "_DESCENT_STEPS": 8, "_QUICK_STEPS": 6,
}  # fmt: skip


@contextmanager
def short_search():
    """Fewer cosines, rounds and sweeps."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in SHORT.items():
            patched.setattr(search, name, value)
        yield


class QuickPlanner:
    """A planner of a millisecond, in place of the real one: any other row or rank gives other settings, most likely."""

    def sample_size(self, *, quick):
        return 12 if quick else 1000

    def choose(self, X, y, ranks, schema, *, seed, rows, progress, **options):
        progress(0.5)
        seen = hashlib.sha256(np.column_stack([X, y]).tobytes() + ranks.tobytes() + str(seed).encode()).digest()
        shards, alpha = (2, 4)[seen[0] % 2], 1e-3 * (1 + seen[1])
        settings = Settings(shards=shards, rate=2, alpha=alpha, features=PowersMap(1 + seen[2] % 2), random_state=seed)
        people = len(np.unique(ranks))
        note = f"planned: {shards} shards"
        return SettingsChoice(settings, people, int(ranks.max(initial=0)), 0.25, "R2 0.7500", note)


@contextmanager
def quick_plans():
    """Let vaults choose their settings by `QuickPlanner`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(choice, "load_planner", QuickPlanner)
        yield
