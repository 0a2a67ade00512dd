"""Payloads: what a vault signs in certificates and other statements. They name no person.

A payload is always computed from the ledger's records of a request and of its completion; text found elsewhere is never
signed. The commitment to the new state is SHA-256(salt || digest). The salt is in the manifest and is destroyed with
it, so an older certificate reveals nothing about the people who were erased.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ... import __version__
from ...errors import InvalidFile
from ..disk.manifest import Manifest
from ..ledger.records import DONE, Position, Record, compose_record, records_of_kind

VERSION = 2
SOFTWARE = f"expunge {__version__}"
NOT_COVERED = {
    VERSION: (
        "copies of the data outside the vault: its source, exports, backups of the folder or of the ledger",
        "blocks that the file system or the disk keeps below the files",
        "predictions and reports that were made from the model before",
        "the values in the schema, whose SHA-256 this names: the operator declared them, and they stay",
    )
}
_HASH = re.compile("[0-9a-f]{64}")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLONE_OF = re.compile(rf"{_UUID.pattern}/[1-9][0-9]{{0,11}}")
_SOFTWARE = re.compile(r"expunge [0-9A-Za-z.+-]{1,40}")


def compose_done_record(after: Position, request: int, manifest: Manifest, digest: str) -> Record:
    """Return the record that a request is done, with what its certificate says beyond its own record."""
    body = {
        "kind": DONE,
        "request": request,
        "fold_case": manifest.about.fold_case,
        "commitment": state_commitment(manifest.salt, digest),
        "schema": manifest.schema.sum,
        "software": SOFTWARE,
    }
    if manifest.about.clone_of:
        body["clone_of"] = manifest.about.clone_of
    return compose_record(after, body)


def certificate_payload(vault: str, request_record: Record, done_record: Record) -> str:
    """Return the payload of a request's certificate, from its record and the record that it is done."""
    body = request_record.body
    fields = {
        "kind": request_record.kind,
        "rows": body["rows"],
        "people": body["people"],
        "epoch": request_record.request,
        "commitment": _require_match(_HASH, done_record.body["commitment"]),
        "previous": request_record.end.hash,
        "schema": _require_match(_HASH, done_record.body["schema"]),
        "software": _require_match(_SOFTWARE, done_record.body["software"]),
        "not_covered": list(NOT_COVERED[VERSION]),
    }
    if "open" in body:
        fields |= completion_fields(int(body["open"]))
    if "clone_of" in done_record.body:
        fields["clone_of"] = _require_match(_CLONE_OF, done_record.body["clone_of"])
    if request_record.kind == "clone":
        fields["clone"] = _require_match(_UUID, body["clone"])
    if "receipts" in body:
        fields |= receipt_fields(_require_match(_HASH, body["receipts"]), fold_case=done_record.body["fold_case"])
    if body["in_certificate"]:
        [caller] = body["callers"] or [dict.fromkeys(("reference", "actor"), "")]  # several callers are not named
        fields |= {name: caller[name] for name in ("reference", "actor") if caller[name]}
    return statement_payload(vault, request_record.request, str(body["time"]), fields)


def completion_fields(still_open: int) -> dict[str, Any]:
    """Return the fields that say whether no setting in use was chosen by looking at these people's rows."""
    if not still_open:
        return {"complete": True}
    people = "1 of these people" if still_open == 1 else f"{still_open:,} of these people"
    until = "the next certificate of this vault of the kind replan or train completes this erasure or correction"
    return {
        "complete": False,
        "open": still_open,
        "not_covered": [
            *NOT_COVERED[VERSION],
            f"settings in use, which a plan chose by looking at rows, also at those of {people}: {until}",
        ],
    }


def receipt_fields(root: str, *, fold_case: bool) -> dict[str, Any]:
    """Return the fields of a payload about receipts: the root of their tree, and whether ids ignore case."""
    return {"receipts": root, **({"fold_case": True} if fold_case else {})}


def statement_payload(vault: str, request: int, time: str, fields: Mapping[str, Any]) -> str:
    """Return the payload of a statement: its vault, request and time, and these fields."""
    try:
        seconds = int(datetime.fromisoformat(time).timestamp())
    except (ValueError, OverflowError, OSError):
        raise _foreign_record_error() from None
    claims = {"version": VERSION, "iss": issuer(vault), "jti": f"{vault}/{request}", "iat": seconds}
    return canonical_json({**claims, "request": request, **fields})


def issuer(vault: str) -> str:
    """Return the issuer of a vault's statements."""
    return f"expunge vault {vault}"


def state_commitment(salt: str, digest: str) -> str:
    """Return a commitment to a state; it reveals nothing without the salt, which is destroyed with the state."""
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(digest)).hexdigest()


def canonical_json(fields: Mapping[str, Any]) -> str:
    """Return a payload as canonical JSON."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _require_match(pattern: re.Pattern[str], value: object) -> str:
    """Return the value if it matches; free text is never signed."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise _foreign_record_error()


def _foreign_record_error() -> InvalidFile:
    return InvalidFile("the ledger was changed: it has a record that no vault writes; restore the newest ledger")


def check_state_commitment(manifest: Manifest, records: Sequence[Record], digest: str) -> None:
    """Refuse a state with this digest if the ledger has another commitment for the manifest's request."""
    done = records_of_kind(records, DONE).get(manifest.request)
    if done is None:
        return
    recorded = done.body["commitment"], done.body["schema"], done.body["fold_case"], done.body.get("clone_of", "")
    about = manifest.about
    if recorded != (state_commitment(manifest.salt, digest), manifest.schema.sum, about.fold_case, about.clone_of):
        raise InvalidFile(
            f"the folder is damaged, or the ledger was changed: the state is not the one that the ledger recorded for "
            f"request {manifest.request}; restore a copy of the folder"
        )
