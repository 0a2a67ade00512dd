"""Native kernels, where they were built: the same bits as the passes of NumPy that they replace, several times faster.

The extension is optional. It is not there if no compiler was when the package was installed, and it is left alone if
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
    """Say whether the kernels are used, and if not, why; nothing is loaded for it."""
    if os.environ.get(_SWITCH) == "0":
        return f"not used, because {_SWITCH}=0"
    return "used" if find_spec("expunge.exact._native") else "not built, NumPy is used instead"


@cache
def kernels() -> ModuleType | None:
    """The extension, or None."""
    if kernel_status() != "used":
        return None
    try:
        from . import _native  # not at import: it loads SciPy's BLAS, which what only reads files does without
    except (ImportError, TypeError) as error:  # built for another machine, or for another SciPy
        warnings.warn(f"expunge's native kernels cannot be loaded, NumPy is used instead: {error}", stacklevel=2)
        return None
    return _native


def product_kernels() -> ModuleType | None:
    """The extension, if it multiplies coded rows itself; None where BLAS does."""
    native = kernels()
    return native if native is not None and native.multiplies() else None


def native_map(*arguments: Any) -> Any:
    """A `Map` of the extension; None where there is no extension. Copies and pickles come here, too."""
    native = kernels()
    return None if native is None else native.Map(*arguments)


def native_predictor(features: Any, *arguments: Any) -> Any:
    """A `Predictor` of the extension from features that are a `Map`; None if these are None."""
    native = kernels()
    return None if native is None or features is None else native.Predictor(features, *arguments)


def native_column(features: Any, *arguments: Any) -> Any:
    """A `Column` of the extension from features that are a `Map`; None if these are None."""
    native = kernels()
    return None if native is None or features is None else native.Column(features, *arguments)
