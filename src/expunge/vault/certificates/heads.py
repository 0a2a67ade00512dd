"""Heads: where a ledger ended, signed, to be published or mailed: whoever has one can tell a ledger that was rewritten.

Each record of a ledger has the hash of all before it, so one hash stands for the whole: a later ledger that holds the
record with that hash in the same place has every record before it unchanged.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import InvalidCertificate, InvalidSetting, VerificationFailed
from ...saving import files
from ..ledger.records import Position, Record, fits
from . import jws
from .payload import payload_text
from .signers import Signer

VERSION = 1

_FIELDS: dict[str, type] = {
    "version": int,
    "iss": str,
    "iat": int,
    "head": str,
    "records": int,
    "bytes": int,
    "request": int,
}


def head_payload(vault: str, position: Position, records: int, request: int, time: datetime) -> str:
    """The payload of the head of a vault's ledger with so many records, which ends at a position.

    Parameters
    ----------
    vault : str
        The vault's name.
    position : Position
        The end of the last record.
    records : int
        How many records there are.
    request : int
        The number of the newest request.
    time : datetime
        When this is said.
    """
    return payload_text(
        {
            "version": VERSION,
            "iss": _issuer(vault),
            "iat": int(time.timestamp()),
            "head": position.hash,
            "records": records,
            "bytes": position.offset,
            "request": request,
        }
    )


def check_head(payload: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Raise unless a ledger is the one that a head is of, with or without more records.

    `InvalidCertificate` says that this is no head, `VerificationFailed` that the ledger does not continue it.
    """
    if not fits(payload, _FIELDS) or payload["version"] != VERSION or payload["records"] < 1:
        raise InvalidCertificate(f"this is not a head of version {VERSION}: fields are missing, or of another kind")
    if not records or payload["iss"] != _issuer(str(records[0].body.get("vault"))):
        raise VerificationFailed("the head is of another vault")
    if len(records) < payload["records"]:
        raise VerificationFailed(
            f"the ledger has {len(records):,} records and the head {payload['records']:,}: it is an older copy, or "
            "records were taken from it; put the newest back"
        )
    known = records[: payload["records"]]
    if known[-1].end != Position(payload["bytes"], payload["head"]):
        raise VerificationFailed("the ledger does not continue the head: records before it were changed")
    if newest_request(known) != payload["request"]:
        raise VerificationFailed("the head names another newest request than the ledger had then")


def newest_request(records: Sequence[Record]) -> int:
    """The number of the newest request in a ledger, 0 if there is none."""
    return max((record.request for record in records if record.is_request), default=0)


def sign_head(records: Sequence[Record], signer: Signer) -> str:
    """The head of a ledger, as of now."""
    vault, last = str(records[0].body["vault"]), records[-1].end
    payload = head_payload(vault, last, len(records), newest_request(records), datetime.now(UTC))
    return signer.sign(payload, jws.HEAD)


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

    def check(self, records: Sequence[Record], keys: Sequence[jws.PublicKey]) -> str:
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


def write_head(path: Path, head: str, stamp: bytes | None = None) -> None:
    """Write a head, and its timestamp beside it (``FILE.tsr``)."""
    if stamp is not None:
        _write_new(stamp_path(path), stamp)
    _write_new(path, stamped_bytes(head))


def check_new(path: Path) -> None:
    """Refuse a path where a head cannot be written; one that is there is somebody's anchor."""
    if path.is_symlink() or path.exists():
        raise InvalidSetting(f"{path} exists already, and a head is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the head")


def stamp_path(path: Path) -> Path:
    """Where the timestamp of a head lies."""
    return path.with_name(f"{path.name}.tsr")


def _write_new(path: Path, data: bytes) -> None:
    """Write a file for others to read, in one step."""
    check_new(path)
    with files.replacing(path, path.with_name(f".{path.name}.{secrets.token_hex(4)}"), shared=True) as new:
        files.write_all(new.fd, data, 0)
        new.commit()


def _issuer(vault: str) -> str:
    return f"expunge vault {vault}"
