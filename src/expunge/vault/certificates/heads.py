"""Heads: where a ledger ended, signed, to be published or mailed: whoever has one can tell a ledger that was rewritten.

Each record of a ledger has the hash of all before it, so one hash stands for the whole: a later ledger that holds the
record with that hash in the same place has every record before it unchanged.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from ...errors import InvalidCertificate, VerificationFailed
from ..ledger.index import LedgerIndex
from ..ledger.records import START, Position, Record, fits
from . import jws
from .payload import issuer, payload_text
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
            "iss": issuer(vault),
            "iat": int(time.timestamp()),
            "head": position.hash,
            "records": records,
            "bytes": position.offset,
            "request": request,
        }
    )


def check_head(payload: Mapping[str, Any], records: Iterable[Record]) -> None:
    """Raise unless a ledger is the one that a head is of, with or without more records.

    `InvalidCertificate` says that this is no head, `VerificationFailed` that the ledger does not continue it.
    """
    if not fits(payload, _FIELDS) or payload["version"] != VERSION or payload["records"] < 1:
        raise InvalidCertificate(f"this is not a head of version {VERSION}: fields are missing, or of another kind")
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


def sign_head(index: LedgerIndex, signer: Signer) -> str:
    """The head of a ledger, as of now."""
    return signer.sign(head_payload(index.vault, *index.head, datetime.now(UTC)), jws.HEAD)
