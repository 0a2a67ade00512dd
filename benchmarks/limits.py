"""The physical limits of this machine: what no method can beat, measured beside it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf


def cholesky(size: int) -> Callable[[], Any]:
    """One Cholesky factorisation of this size."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((size, size))
    A = np.asfortranarray(B @ B.T + size * np.eye(size))
    return lambda: dpotrf(A, lower=1)


def products(rows: int, width: int, slices: int = 1) -> Callable[[], Any]:
    """The dsyrk calls over coded rows of this width, in blocks as ours are; exact integers take three of them."""
    block = np.random.default_rng(0).integers(-(2**18), 2**18, (max(1, min(rows, 384)), width)).astype(np.float64)
    whole, rest = divmod(rows, len(block))

    def run() -> None:
        for _ in range(slices):
            C = np.zeros((width, width), order="F")
            for _ in range(whole):
                C = dsyrk(1.0, block.T, beta=1.0, c=C, lower=1, overwrite_c=1)
            if rest:
                dsyrk(1.0, block[:rest].T, beta=1.0, c=C, lower=1, overwrite_c=1)

    return run


def moments_pass(width: int) -> Callable[[], Any]:
    """One pass over a learner's moments in memory."""
    limbs = np.ones((3, width * (width + 1) // 2))
    return limbs.sum


@contextmanager
def syncs(folder: Path, count: int) -> Iterator[Callable[[], None]]:
    """As many file syncs, each after a small write, in a folder of the same disk."""
    handle, name = tempfile.mkstemp(dir=folder)

    def run() -> None:
        for k in range(count):
            os.pwrite(handle, bytes([k % 256]) * 4096, 0)
            os.fsync(handle)

    try:
        yield run
    finally:
        os.close(handle)
        Path(name).unlink()
