"""Plain JSON: what readers in every language take for the same. What one of them reads otherwise is refused."""

import json
from typing import Any

MOST_WHOLE = 2**53 - 1  # the largest number that every reader keeps


def plain_json(text: str) -> Any:
    """Read JSON; a name that is there twice, NaN and Infinity are a ValueError."""
    return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)


def is_plain(value: object, depth: int) -> bool:
    """Whether a value has no more levels than these, and only whole numbers that everybody keeps."""
    if isinstance(value, float) or type(value) is int:
        return type(value) is int and abs(value) <= MOST_WHOLE
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(is_plain(one, depth - 1) for one in inner)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
