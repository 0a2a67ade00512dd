"""Pointers: the two lines of `current`, each of which names the request that a page of the manifest is of.

The page of the newer request counts. A commit overwrites the line of the other page, in place: no rename, and no sync
of the folder. A write that was cut short leaves a line that fails its checksum, and then the other counts as before.
Only numbers are in it, no secrets.
"""

import hashlib
import re
from pathlib import Path

from ...errors import InvalidFile

_LINE = re.compile(rb"request ([1-9]\d{0,11}) [0-9a-f]{8} *")
_OLD = re.compile(rb"manifest\.[1-9]\d*[\n ].*", re.DOTALL)  # before manifests had version 7
_BYTES = 32
NO_POINTER = b" " * (_BYTES - 1) + b"\n"


def pointer(request: int) -> bytes:
    """The line that names a request."""
    name = f"request {request}"
    return f"{name} {hashlib.sha256(name.encode()).hexdigest()[:8]}".ljust(_BYTES - 1).encode() + b"\n"


def pointers_in(data: bytes, path: Path) -> tuple[int, int]:
    """The requests that the two lines name, 0 for a line that names none; if neither does, it is damaged."""
    if _OLD.fullmatch(data):
        raise InvalidFile(f"{path} is of an older version: use the release that made it, or train the vault anew")
    found = _named(data[:_BYTES]), _named(data[_BYTES:])
    if not any(found) or len(data) != 2 * _BYTES:
        raise InvalidFile(f"{path} is damaged")
    return found


def _named(line: bytes) -> int:
    said = _LINE.fullmatch(line[:-1])
    return int(said[1]) if said is not None and line == pointer(int(said[1])) else 0
