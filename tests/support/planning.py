"""A search that is shortened, not changed: plans of small tables in a second or less."""

from contextlib import contextmanager

import pytest

from expunge.planning import search

SHORT = {
    "_COSINES": 40, "_FINE": 40, "_WIDE": 40, "_WIDEST": 40, "_FEW_COSINES": 24,
    "_ROUNDS": 2, "_SWEEPS": 1, "_INPUTS": 2, "_STEPS": 8, "_FEW_STEPS": 6,
}  # fmt: skip


@contextmanager
def short_search():
    """Fewer cosines, rounds and sweeps."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in SHORT.items():
            patched.setattr(search, name, value)
        yield
