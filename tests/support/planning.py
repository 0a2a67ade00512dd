"""A search that is shortened, not changed: plans of small tables in a second or less."""

from contextlib import contextmanager

import pytest

from expunge.planning import search

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
