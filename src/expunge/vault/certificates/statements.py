"""Statements other than certificates: heads of the ledger, anchors, and reports of audits.

A head is a signed statement of where the ledger ended. Publish or mail it, so that a rewritten ledger can be detected.
Each record has the hash of all records before it, so one hash stands for all of them: if a later ledger has the record
with that hash at the same position, every record before it is unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

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
    """Return the payload of the head of a vault's ledger.

    Parameters
    ----------
    vault : str
        The vault's name.
    position : Position
        The end of the last record.
    record_count : int
        The number of records.
    request : int
        The number of the newest request.
    time : datetime
        The time of the statement.
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
    """Raise unless a ledger continues a head: `InvalidCertificate` if it is not a head, else `VerificationFailed`."""
    if not has_fields(payload, _HEAD_FIELDS) or payload["version"] != HEAD_VERSION or payload["records"] < 1:
        raise InvalidCertificate(
            f"this is not a head of version {HEAD_VERSION}: fields are missing, or have a wrong type"
        )
    count, newest, end, vault = 0, 0, START, None
    for record in islice(records, payload["records"]):
        vault = record.body.get("vault") if count == 0 else vault
        count, newest, end = count + 1, max(newest, record.request if record.is_request else 0), record.end
    if payload["iss"] != issuer(str(vault)):
        raise VerificationFailed("the head is of another vault")
    if count < payload["records"]:
        raise VerificationFailed(
            f"the ledger has {count:,} records, but the head counts {payload['records']:,}: the ledger is an older "
            "copy, or records were removed; restore the newest"
        )
    if end != Position(payload["bytes"], payload["head"]):
        raise VerificationFailed("the ledger does not continue the head: records before it were changed")
    if newest != payload["request"]:
        raise VerificationFailed("the newest request in the head is not the one that the ledger had at that point")


def sign_head(index: LedgerIndex, signer: VaultSigner) -> str:
    """Sign the current head of a ledger."""
    return signer.sign(head_payload(index.vault, *index.head, datetime.now(UTC)), jws.HEAD_TYPE)


@dataclass(frozen=True)
class Anchor:
    """A head that was kept outside the vault, with the proof of when it existed, if there is one.

    Parameters
    ----------
    head : str
        The head, a compact JWS.
    stamp : bytes, optional
        A timestamp authority's response for `stamped_bytes` of the head.
    roots : path, optional
        The root certificates (PEM) of the trusted authorities; required with a stamp.
    """

    head: str
    stamp: bytes | None = None
    roots: Path | None = None

    def check(self, records: Iterable[Record], keys: Sequence[jws.PublicKey]) -> str:
        """Return what the head proves about a ledger, or raise."""
        payload = jws.verify_statement(self.head, keys, types=[jws.HEAD_TYPE])
        check_head(payload, records)
        proof = f"the ledger continues the head with {payload['records']:,} records, up to request {payload['request']}"
        if self.stamp is None:
            return proof
        from . import timestamps

        roots = timestamps.load_roots(self.roots) if self.roots is not None else []
        when = timestamps.verify_timestamp(self.stamp, stamped_bytes(self.head), roots)
        return f"{proof}, which existed on {when:%Y-%m-%d at %H:%M:%S} UTC"


def stamped_bytes(head: str) -> bytes:
    """Return the bytes that are stamped: the head's file, so that ``openssl ts -verify`` agrees."""
    return head.encode() + b"\n"


def write_head(path: Path, head: str, stamp: bytes | None = None) -> list[Path]:
    """Write a head, and its timestamp beside it (``FILE.tsr``); return the paths."""
    check_head_path(path)
    parts = {path: stamped_bytes(head)} | ({} if stamp is None else {_stamp_path(path): stamp})
    for name, data in parts.items():
        _write_new_file(name, data)
    return list(parts)


def check_head_path(path: Path) -> None:
    """Refuse a path where a head cannot be written; existing files may be anchors and are not overwritten."""
    _check_new_file(path, "head")
    _check_new_file(_stamp_path(path), "head")


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.tsr")


def sign_report(vault: str, request: int, end: Position, verdict: Verdict, actor: str, signer: VaultSigner) -> str:
    """Sign a report of an audit: its verdict on a vault, the newest request, and where the ledger ended."""
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
    """Refuse a path where a report cannot be written; an existing file may be evidence and is not overwritten."""
    _check_new_file(path, "report")


def write_report(path: Path, report: str) -> None:
    """Write a report for others to read."""
    check_report_path(path)
    _write_new_file(path, report.encode() + b"\n")


def _check_new_file(path: Path, content: str) -> None:
    if path.is_symlink() or path.exists():
        raise InvalidSetting(f"{path} already exists, and a {content} is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the {content}")


def _write_new_file(path: Path, data: bytes) -> None:
    """Write a file for others to read, atomically."""
    with open_draft(path, shared=True) as new:
        files.write_all(new.fd, data, 0)
        new.commit()
