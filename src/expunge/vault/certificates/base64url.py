"""Base64url without padding, in its one form: text that decodes to bytes which encode to other text is refused."""

import base64
import re

_TEXT = re.compile(r"[A-Za-z0-9_-]*")


def encoded(data: bytes) -> str:
    """Bytes as text."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: object) -> bytes:
    """The inverse; anything else is a ValueError."""
    if not isinstance(text, str) or not _TEXT.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encoded(data) != text:
        raise ValueError("bits are set that mean nothing")
    return data
