"""BLAS and LAPACK: routines that work in place, without the interpreter's lock.

SciPy's own wrapper of ``dsyrk`` holds the lock, so that no other thread can run meanwhile, and ``A.T @ A`` in NumPy
fills in both triangles of a new matrix each time. Its wrappers that pack and unpack triangles return new arrays, and to
touch tens of megabytes for the first time takes longer than to copy them. SciPy publishes the routines themselves for
callers such as this one (`scipy.linalg.cython_blas` and `cython_lapack`); ctypes calls them on the arrays that we have.
"""

import ctypes
from functools import cache
from types import ModuleType
from typing import Any

from scipy import LowLevelCallable
from scipy.linalg import cython_blas, cython_lapack

from .arrays import Floats


@cache
def _routine(module: ModuleType, name: str, kinds: str) -> Any:
    """A routine whose arguments are, one letter each, references to (c)har, (i)nt and (d)ouble."""
    signature = LowLevelCallable.from_cython(module, name).signature
    arguments = signature.removeprefix("void (").split(", ")
    if "".join(a[0] if a.startswith(("char *", "int *")) else "d" for a in arguments) != kinds:
        raise ImportError(f"SciPy's {name} has an unknown signature: {signature}")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(module.__pyx_capi__[name], signature.encode())
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kinds))(address)


def add_gram(total: Floats, rows: Floats, sign: float) -> None:
    """Add sign * rows' rows to the upper triangle of ``total``, (w, w): both in C order, (m, w) the rows."""
    _check(total, rows)
    m, w = rows.shape
    n, k = _int(w), _int(m)
    # Fortran sees both transposed: rows as (w, m), and the lower triangle of total.
    dsyrk = _routine(cython_blas, "dsyrk", "cciiddiddi")
    dsyrk(b"L", b"N", n, k, _double(sign), rows.ctypes.data, n, _double(1.0), total.ctypes.data, n)


def pack(square: Floats, packed: Floats) -> None:
    """Copy the upper triangle of a matrix, (w, w) in C order, row by row to (w (w + 1) / 2,)."""
    _check(square, packed)
    n = _int(len(square))
    _routine(cython_lapack, "dtrttp", "cididi")(b"L", n, square.ctypes.data, n, packed.ctypes.data, _int(0))


def unpack(packed: Floats, square: Floats) -> None:
    """The way back; what is below the diagonal stays."""
    _check(square, packed)
    n = _int(len(square))
    _routine(cython_lapack, "dtpttr", "ciddii")(b"L", n, packed.ctypes.data, square.ctypes.data, n, _int(0))


def _check(*arrays: Floats) -> None:
    if not all(array.flags.c_contiguous and array.dtype == "f8" for array in arrays):
        raise ValueError("BLAS needs float64 arrays in C order")


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))
