"""Plain JSON: what readers in every language take for the same. What one of them reads otherwise is refused."""

import base64
import json
import re
from typing import Any

# MERGED base64url: Base64url without padding, in its one form: text that decodes to bytes which encode to other text is refused.


_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


def encode_base64url(data: bytes) -> str:
    """Bytes as text."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: object) -> bytes:
    """The inverse; anything else is a ValueError."""
    if not isinstance(text, str) or not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_base64url(data) != text:
        raise ValueError("bits are set that mean nothing")
    return data


MAX_SAFE_INTEGER = 2**53 - 1  # the largest number that every reader keeps


def parse_plain_json(text: str) -> Any:
    """Read JSON; a name that is there twice, NaN and Infinity are a ValueError."""
    return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)


def is_plain(value: object, depth: int) -> bool:
    """Whether a value has no more levels than these, and only whole numbers that everybody keeps."""
    if isinstance(value, float) or type(value) is int:
        return type(value) is int and abs(value) <= MAX_SAFE_INTEGER
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(is_plain(one, depth - 1) for one in inner)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
