"""Descriptions: a parameter of an estimator as text that is the same in every process, and that no other value has.

A digest and a saved file say by such texts with what a model was trained. What cannot be told apart by its text, such
as a lambda, is refused: two models would share a digest and predict differently.
"""

import hashlib
import sys
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from ..errors import InvalidSetting


def described_estimator(estimator: Any, *, name: str) -> dict[str, str]:
    """The parameters of an estimator, each as text; an error calls them ``name``'s."""
    return {
        key: described(None if _is_seeded(key, value) else value, name=f"the parameter {key} of {name}")
        for key, value in sorted(estimator.get_params(deep=False).items())
    }


def described(value: Any, *, name: str) -> str:
    """A value as text. What may be inside of it is described too; what cannot be described is an `InvalidSetting`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return _described_array(value, name)
    if isinstance(value, list | tuple):
        return f"{class_name(type(value))}({', '.join(described(item, name=name) for item in value)})"
    if isinstance(value, set | frozenset):
        return f"{class_name(type(value))}({', '.join(sorted(described(item, name=name) for item in value))})"
    if isinstance(value, dict):
        items = sorted((described(key, name=name), described(item, name=name)) for key, item in value.items())
        return f"{class_name(type(value))}({', '.join(f'{key}: {item}' for key, item in items)})"
    if isinstance(value, partial):
        return f"partial({', '.join(described(part, name=name) for part in (value.func, value.args, value.keywords))})"
    if hasattr(value, "get_params") and not isinstance(value, type):
        inside = described_estimator(value, name=class_name(type(value)))
        return f"{class_name(type(value))}({', '.join(f'{key}={text}' for key, text in inside.items())})"
    if callable(value) and (found := _name_of(value)) is not None:
        return found
    what = "a function that cannot be found by its name" if callable(value) else f"of type {type(value).__name__}"
    raise InvalidSetting(
        f"{name} is {what}, which cannot be described in a digest; use numbers, text, arrays, lists, sets, dicts, "
        "estimators, or functions at the top level of a module"
    )


def class_name(kind: type) -> str:
    """The name of a class, with its module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _described_array(array: Any, name: str) -> str:
    if array.dtype.hasobject:  # its bytes are addresses
        return f"array object {array.shape} {described(array.ravel().tolist(), name=name)}"
    return f"array {array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _is_seeded(key: str, value: Any) -> bool:
    """Whether it is a seed that training replaces by one derived from the model's key."""
    return key == "random_state" and not isinstance(value, int | np.integer)


def _name_of(value: Any) -> str | None:
    """The name under which a function or class is found again, or None if it is not."""
    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    path = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
    found: Any = sys.modules.get(str(module))
    for part in path.split("."):
        found = getattr(found, part, None)
    same = found is value or (isinstance(value, MethodType) and found == value)  # a class method is made at each look
    return f"{module}.{path}" if same else None
