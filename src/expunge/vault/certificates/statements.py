"""Heads: where a ledger ended, signed, to be published or mailed: whoever has one can tell a ledger that was rewritten.

Each record of a ledger has the hash of all before it, so one hash stands for the whole: a later ledger that holds the
record with that hash in the same place has every record before it unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidCertificate, InvalidSetting, VerificationFailed
from ...saving import files
from ...saving.drafts import open_draft
from ..ledger.index import LedgerIndex
from ..ledger.records import START, Position, Record, has_fields
from ..results import Verdict
from . import jws
from .notary import current_time
from .payload import SOFTWARE, canonical_json, issuer, statement_payload
from .signers import VaultSigner

HEAD_VERSION = 1

_HEAD_FIELDS: dict[str, type] = {
    "version": int,
    "iss": str,
    "iat": int,
    "head": str,
    "records": int,
    "bytes": int,
    "request": int,
}


def head_payload(vault: str, position: Position, record_count: int, request: int, time: datetime) -> str:
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
    return canonical_json(
        {
            "version": HEAD_VERSION,
            "iss": issuer(vault),
            "iat": int(time.timestamp()),
            "head": position.hash,
            "records": record_count,
            "bytes": position.offset,
            "request": request,
        }
    )


def check_head(payload: Mapping[str, Any], records: Iterable[Record]) -> None:
    """Raise unless a ledger is the one that a head is of, with or without more records.

    `InvalidCertificate` says that this is no head, `VerificationFailed` that the ledger does not continue it.
    """
    if not has_fields(payload, _HEAD_FIELDS) or payload["version"] != HEAD_VERSION or payload["records"] < 1:
        raise InvalidCertificate(
            f"this is not a head of version {HEAD_VERSION}: fields are missing, or of another kind"
        )
    known, newest, end, vault = 0, 0, START, None
    for record in islice(records, payload["records"]):
        vault = record.body.get("vault") if known == 0 else vault
        known, newest, end = known + 1, max(newest, record.request if record.is_request else 0), record.end
    if payload["iss"] != issuer(str(vault)):
        raise VerificationFailed("the head is of another vault")
    if known < payload["records"]:
        raise VerificationFailed(
            f"the ledger has {known:,} records and the head {payload['records']:,}: it is an older copy, or "
            "records were taken from it; put the newest back"
        )
    if end != Position(payload["bytes"], payload["head"]):
        raise VerificationFailed("the ledger does not continue the head: records before it were changed")
    if newest != payload["request"]:
        raise VerificationFailed("the head names another newest request than the ledger had then")


def sign_head(index: LedgerIndex, signer: VaultSigner) -> str:
    """The head of a ledger, as of now."""
    return signer.sign(head_payload(index.vault, *index.head, datetime.now(UTC)), jws.HEAD_TYPE)


# MERGED anchors: Anchors: heads that are kept outside the vault, with the proof of when they existed: written, read and checked.


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
        payload = jws.verify_statement(self.head, keys, types=[jws.HEAD_TYPE])
        check_head(payload, records)
        said = f"the ledger continues the head with {payload['records']:,} records, up to request {payload['request']}"
        if self.stamp is None:
            return said
        from . import timestamps

        roots = timestamps.load_roots(self.roots) if self.roots is not None else []
        when = timestamps.verify_timestamp(self.stamp, stamped_bytes(self.head), roots)
        return f"{said}, which existed on {when:%Y-%m-%d at %H:%M:%S} UTC"


def stamped_bytes(head: str) -> bytes:
    """What is stamped: the file that a head is written to, byte for byte, so that ``openssl ts -verify`` agrees."""
    return head.encode() + b"\n"


def write_head(path: Path, head: str, stamp: bytes | None = None) -> list[Path]:
    """Write a head, and its timestamp beside it (``FILE.tsr``); returns what was written."""
    check_head_path(path)
    parts = {path: stamped_bytes(head)} | ({} if stamp is None else {_stamp_path(path): stamp})
    for name, data in parts.items():
        _write_head_file(name, data)
    return list(parts)


def check_head_path(path: Path) -> None:
    """Refuse a path where a head cannot be written; one that is there is somebody's anchor."""
    for name in (path, _stamp_path(path)):
        if name.is_symlink() or name.exists():
            raise InvalidSetting(f"{name} exists already, and a head is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the head")


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.tsr")


def _write_head_file(path: Path, data: bytes) -> None:
    """Write a file for others to read, in one step."""
    with open_draft(path, shared=True) as new:
        files.write_all(new.fd, data, 0)
        new.commit()


# MERGED reports: Reports: what an audit of a vault found and when, signed, for people who cannot run it themselves.


if TYPE_CHECKING:
    from .signers import VaultSigner


def sign_report(vault: str, request: int, end: Position, verdict: Verdict, actor: str, signer: "VaultSigner") -> str:
    """The report of a verdict on a vault as of a request, whose ledger ended at a position."""
    fields = {
        "ok": verdict.ok,
        "checks": [vars(check) for check in verdict.checks],
        "milliseconds": round(1e3 * verdict.seconds),
        "head": end.hash,
        "software": SOFTWARE,
        **({"actor": actor} if actor else {}),
    }
    return signer.sign(statement_payload(vault, request, current_time(), fields), jws.REPORT_TYPE)


def check_report_path(path: Path) -> None:
    """Refuse a path where a report cannot be written; one that is there is somebody's evidence."""
    if path.is_symlink() or path.exists():
        raise InvalidSetting(f"{path} exists already, and a report is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the report")


def write_report(path: Path, report: str) -> None:
    """Write a report for others to read, in one step."""
    check_report_path(path)
    with open_draft(path, shared=True) as new:
        files.write_all(new.fd, report.encode() + b"\n", 0)
        new.commit()
