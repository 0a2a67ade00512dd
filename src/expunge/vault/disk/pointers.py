"""Pointers: the two lines of `current`, the newer of which names the manifest that counts.

A commit overwrites the line that does not count, in place: no rename, and no sync of the folder. A write that was cut
short leaves a line that fails its checksum, and then the other counts as before. Only numbers are in it, no secrets.
"""

import hashlib
import re
from pathlib import Path

from ...errors import InvalidFile
from .manifest import manifest_name

_LINE = re.compile(rb"manifest\.([1-9]\d{0,11}) [0-9a-f]{8} *")
_OLD = re.compile(rb"manifest\.[1-9]\d*\n")  # before manifests had version 5
_BYTES = 32
NO_POINTER = b" " * (_BYTES - 1) + b"\n"


def pointer(request: int) -> bytes:
    """The line that names the manifest of a request."""
    name = manifest_name(request)
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
