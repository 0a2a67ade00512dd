"""Encodings that every language reads the same way: plain JSON, and base64url without padding.

Input that some reader would interpret differently is refused.
"""

import base64
import json
import re
from typing import Any

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


def encode_base64url(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: object) -> bytes:
    """Return the bytes of base64url text; anything but its canonical form is a ValueError."""
    if not isinstance(text, str) or not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_base64url(data) != text:
        raise ValueError("unused bits are set")
    return data


MAX_SAFE_INTEGER = 2**53 - 1  # the largest integer that every JSON reader keeps exactly


def parse_plain_json(text: str) -> Any:
    """Parse JSON; duplicate names, NaN and Infinity are a ValueError."""
    return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)


def is_plain(value: object, depth: int) -> bool:
    """Return whether a value has at most this many levels, and only integers that every reader keeps exactly."""
    if isinstance(value, float) or type(value) is int:
        return type(value) is int and abs(value) <= MAX_SAFE_INTEGER
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(is_plain(item, depth - 1) for item in inner)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(fields := dict(pairs)) < len(pairs):
        raise ValueError("a name is duplicated")
    return fields


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
