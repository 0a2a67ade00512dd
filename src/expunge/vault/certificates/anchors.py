"""Anchors: heads that are kept outside the vault, with the proof of when they existed: written, read and checked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidSetting
from ...saving import files
from ...saving.drafts import drafted
from ..ledger.records import Record
from . import jws
from .heads import check_head


@dataclass(frozen=True)
class Anchor:
    """A head that was kept outside, and the proof of when it existed, if there is one.

    Parameters
    ----------
    head : str
        The head, a compact JWS.
    stamp : bytes, optional
        The answer of a timestamp authority to `stamped_bytes` of the head.
    roots : path, optional
        The certificates (PEM) below which the authority must be; needed with a stamp.
    """

    head: str
    stamp: bytes | None = None
    roots: Path | None = None

    def check(self, records: Iterable[Record], keys: Sequence[jws.PublicKey]) -> str:
        """Say what the head proves about a ledger, or raise."""
        payload = jws.checked(self.head, keys, types=[jws.HEAD])
        check_head(payload, records)
        said = f"the ledger continues the head with {payload['records']:,} records, up to request {payload['request']}"
        if self.stamp is None:
            return said
        from . import timestamps

        roots = timestamps.load_roots(self.roots) if self.roots is not None else []
        when = timestamps.checked(self.stamp, stamped_bytes(self.head), roots)
        return f"{said}, which existed on {when:%Y-%m-%d at %H:%M:%S} UTC"


def stamped_bytes(head: str) -> bytes:
    """What is stamped: the file that a head is written to, byte for byte, so that ``openssl ts -verify`` agrees."""
    return head.encode() + b"\n"


def write_head(path: Path, head: str, stamp: bytes | None = None) -> list[Path]:
    """Write a head, and its timestamp beside it (``FILE.tsr``); returns what was written."""
    check_new(path)
    parts = {path: stamped_bytes(head)} | ({} if stamp is None else {_stamp_path(path): stamp})
    for name, data in parts.items():
        _write(name, data)
    return list(parts)


def check_new(path: Path) -> None:
    """Refuse a path where a head cannot be written; one that is there is somebody's anchor."""
    for name in (path, _stamp_path(path)):
        if name.is_symlink() or name.exists():
            raise InvalidSetting(f"{name} exists already, and a head is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the head")


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.tsr")


def _write(path: Path, data: bytes) -> None:
    """Write a file for others to read, in one step."""
    with drafted(path, shared=True) as new:
        files.write_all(new.fd, data, 0)
        new.commit()
