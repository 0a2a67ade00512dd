"""TOML: values as literals, for schemas and plans.

Names and values come from other people's files, and the text may be printed to a terminal: characters that do not print
are written as escapes.
"""

from datetime import date
from typing import Any

import numpy as np

_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def toml_literal(value: Any) -> str:
    """Return a text, number, boolean, date, or a list or array of these, as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return repr(float(value))  # also for NumPy's floats
        case int():
            return str(value)
        case str():
            return '"' + "".join(map(_escape_char, value)) + '"'
        case date():
            return value.isoformat()
        case np.ndarray():
            return toml_literal(value.tolist())
        case _:
            return f"[{', '.join(map(toml_literal, value))}]"


def _escape_char(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
