"""Paths: what computes, the native kernels or NumPy alone; a test can ask for either."""

from contextlib import contextmanager

import pytest

from expunge.exact import native

NATIVE = native.kernels() is not None


@contextmanager
def computing(*, natively):
    """Compute with the kernels, which must be there, or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXPUNGE_NATIVE", "1" if natively else "0")
        native.kernels.cache_clear()
        assert (native.kernels() is not None) == natively
        try:
            yield
        finally:
            native.kernels.cache_clear()
