"""Native kernels: the same bits as the NumPy code that they replace, several times faster.

The extension is optional. It is missing if there was no compiler when the package was installed, and it is not used if
``EXPUNGE_NATIVE`` is 0. Everything works without it.
"""

import os
import warnings
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_SWITCH = "EXPUNGE_NATIVE"


def kernel_status() -> str:
    """Return "used", or why the kernels are not used, without loading them."""
    if os.environ.get(_SWITCH) == "0":
        return f"not used, because {_SWITCH}=0"
    return "used" if find_spec("expunge.exact._native") else "not built, NumPy is used instead"


@cache
def kernels() -> ModuleType | None:
    """Return the native extension, or None if it is switched off or cannot be loaded."""
    if kernel_status() != "used":
        return None
    try:
        from . import _native  # not at import: it loads SciPy's BLAS, which code that only reads files does not need
    except (ImportError, TypeError) as error:  # built for another machine, or for another SciPy
        warnings.warn(f"expunge's native kernels cannot be loaded, NumPy is used instead: {error}", stacklevel=2)
        return None
    return _native


def product_kernels() -> ModuleType | None:
    """Return the extension if it multiplies coded rows itself; None if BLAS does."""
    native = kernels()
    return native if native is not None and native.multiplies() else None


def native_map(*arguments: Any) -> Any:
    """Make a `Map` of the extension, or None without the extension. Copies and pickles call this as well."""
    native = kernels()
    return None if native is None else native.Map(*arguments)


def native_predictor(features: Any, *arguments: Any) -> Any:
    """Make a `Predictor` of the extension from features that are a `Map`, or None if they are None."""
    native = kernels()
    return None if native is None or features is None else native.Predictor(features, *arguments)


def native_column(features: Any, *arguments: Any) -> Any:
    """Make a `Column` of the extension from features that are a `Map`, or None if they are None."""
    native = kernels()
    return None if native is None or features is None else native.Column(features, *arguments)
