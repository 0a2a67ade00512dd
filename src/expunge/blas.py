"""BLAS: the one routine that training spends its time in, without the interpreter's lock.

SciPy's own wrapper of ``dsyrk`` holds the lock, so that no other thread can run meanwhile, and ``A.T @ A`` in NumPy
fills in both triangles of a new matrix each time. SciPy publishes the routine itself for callers such as this one
(`scipy.linalg.cython_blas`); through ctypes it runs without the lock and adds in place.
"""

import ctypes
from functools import cache
from typing import Any

from scipy import LowLevelCallable
from scipy.linalg import cython_blas

from .bounds import Floats

_INT = ctypes.POINTER(ctypes.c_int)
_DOUBLE = ctypes.POINTER(ctypes.c_double)


@cache
def _dsyrk() -> Any:
    """The routine: (uplo, trans, n, k, alpha, a, lda, beta, c, ldc), all by reference, as in Fortran."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    routine = LowLevelCallable.from_cython(cython_blas, "dsyrk")
    if not routine.signature.startswith("void (char *, char *, int *, int *, "):
        raise ImportError(f"SciPy's dsyrk has an unknown signature: {routine.signature}")
    address = pointer(cython_blas.__pyx_capi__["dsyrk"], routine.signature.encode())
    text = ctypes.c_char_p
    arguments = (text, text, _INT, _INT, _DOUBLE, ctypes.c_void_p, _INT, _DOUBLE, ctypes.c_void_p, _INT)
    return ctypes.CFUNCTYPE(None, *arguments)(address)


def add_gram(total: Floats, rows: Floats, sign: float) -> None:
    """Add sign * rows' rows to the upper triangle of ``total``, (w, w): both in C order, (m, w) the rows."""
    if not (total.flags.c_contiguous and rows.flags.c_contiguous and total.dtype == rows.dtype == "f8"):
        raise ValueError("add_gram needs float64 arrays in C order")
    m, w = rows.shape
    n, k, lda = ctypes.c_int(w), ctypes.c_int(m), ctypes.c_int(w)
    alpha, beta = ctypes.c_double(sign), ctypes.c_double(1.0)
    # Fortran sees both transposed: rows as (w, m), and the lower triangle of total.
    _dsyrk()(b"L", b"N", n, k, alpha, rows.ctypes.data, lda, beta, total.ctypes.data, n)
