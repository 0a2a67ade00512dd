"""BLAS and LAPACK: routines that work in place, most of them without the interpreter's lock.

SciPy's own wrapper of ``dsyrk`` holds the lock, so that no other thread can run meanwhile, and ``A.T @ A`` in NumPy
fills in both triangles of a new matrix each time. Its wrappers that pack and unpack triangles return new arrays, and
touching tens of megabytes for the first time takes longer than copying them. SciPy publishes the routines themselves
(`scipy.linalg.cython_blas` and `cython_lapack`); ctypes calls them on our arrays.

This is the only module that imports SciPy, when a routine is first called: code that only reads a model's files does
not wait for the import.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np

from .arrays import Floats


@cache
def scipy_linalg() -> Any:
    """Import `scipy.linalg`, which loads SciPy's own BLAS library."""
    import scipy.linalg

    return scipy.linalg


@cache
def _load_routine(module: str, name: str, kinds: str) -> Any:
    """Load a SciPy routine whose arguments are references to (c)har, (i)nt and (d)ouble, one letter each."""
    from importlib import import_module

    from scipy import LowLevelCallable

    published = import_module(f"scipy.linalg.{module}")
    signature = LowLevelCallable.from_cython(published, name).signature
    arguments = signature.removeprefix("void (").split(", ")
    if "".join(a[0] if a.startswith(("char *", "int *")) else "d" for a in arguments) != kinds:
        raise ImportError(f"SciPy's {name} has an unknown signature: {signature}")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(published.__pyx_capi__[name], signature.encode())
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kinds))(address)


@cache
def _load_wrapper(module: str, name: str) -> Any:
    """Load the Python function that SciPy has for a routine."""
    return getattr(getattr(scipy_linalg(), module), name)


def add_gram(total: Floats, rows: Floats, sign: float) -> None:
    """Add sign * rows' rows to the upper triangle of ``total``: (m, w) and (w, w), both in C order."""
    _check(total, rows)
    m, w = rows.shape
    n, k = _int(w), _int(m)
    # Fortran sees both transposed: rows as (w, m), and the lower triangle of total.
    dsyrk = _load_routine("cython_blas", "dsyrk", "cciiddiddi")
    dsyrk(b"L", b"N", n, k, _double(sign), rows.ctypes.data, n, _double(1.0), total.ctypes.data, n)


def add_outer(packed: Floats, x: Floats, sign: float) -> None:
    """Add sign * x x' to a packed triangle, in place: (w (w + 1) / 2,), (w,)."""
    _load_wrapper("blas", "dspr")(len(x), sign, x, packed, lower=1, overwrite_ap=1)


def add_outer_pair(packed: Floats, x: Floats, y: Floats, sign: float) -> None:
    """Add sign * (x y' + y x') to a packed triangle, in place: (w (w + 1) / 2,), (w,), (w,)."""
    _load_wrapper("blas", "dspr2")(len(x), sign, x, y, packed, lower=1, overwrite_ap=1)


def pack(square: Floats, packed: Floats) -> None:
    """Copy the upper triangle of a matrix, (w, w) in C order, row by row to (w (w + 1) / 2,)."""
    _check(square, packed)
    n, dtrttp = _int(len(square)), _load_routine("cython_lapack", "dtrttp", "cididi")
    dtrttp(b"L", n, square.ctypes.data, n, packed.ctypes.data, _int(0))


def unpack(packed: Floats, square: Floats) -> None:
    """Copy a packed triangle back into a matrix; entries below the diagonal stay as they are."""
    _check(square, packed)
    n, dtpttr = _int(len(square)), _load_routine("cython_lapack", "dtpttr", "ciddii")
    dtpttr(b"L", n, packed.ctypes.data, square.ctypes.data, n, _int(0))


def factorise(lower: Floats) -> tuple[Floats, int]:
    """Compute the Cholesky factor of a symmetric matrix in place of its lower triangle, (w, w) in Fortran order.

    Return the factor, and 0 if the matrix is positive definite, else the number of the pivot that is not positive.
    """
    factor, failed = _load_wrapper("lapack", "dpotrf")(lower, lower=1, clean=0, overwrite_a=1)
    return factor, failed


def solve_transposed(factor: Floats, right: Floats) -> Floats:
    """Solve L' W = right with a lower triangle L, in place of ``right``: (w, w), (w, t) in Fortran order -> (w, t)."""
    solution: Floats = _load_wrapper("lapack", "dtrtrs")(factor, right, lower=1, trans=1, overwrite_b=1)[0]
    return solution


def invert(factor: Floats) -> Floats:
    """Return the inverse of L L' from its factor, (w, w) in Fortran order, in place: a full symmetric matrix."""
    inverse: Floats = _load_wrapper("lapack", "dpotri")(factor, lower=1, overwrite_c=1)[0]
    lower = np.tril(inverse)
    return lower + np.tril(lower, -1).T


def _check(*arrays: Floats) -> None:
    if not all(array.flags.c_contiguous and array.dtype == "f8" for array in arrays):
        raise ValueError("BLAS needs float64 arrays in C order")


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))
