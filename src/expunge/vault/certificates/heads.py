"""Heads: where a ledger ended, signed, to be published or mailed: whoever has one can tell a ledger that was rewritten.

Each record of a ledger has the hash of all before it, so one hash stands for the whole: a later ledger that holds the
record with that hash in the same place has every record before it unchanged.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ...errors import InvalidCertificate, VerificationFailed
from ..ledger.records import Position, Record, fits
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


def check_head(payload: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Raise unless a ledger is the one that a head is of, with or without more records.

    `InvalidCertificate` says that this is no head, `VerificationFailed` that the ledger does not continue it.
    """
    if not fits(payload, _FIELDS) or payload["version"] != VERSION or payload["records"] < 1:
        raise InvalidCertificate(f"this is not a head of version {VERSION}: fields are missing, or of another kind")
    if not records or payload["iss"] != issuer(str(records[0].body.get("vault"))):
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
