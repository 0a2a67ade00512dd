"""What a vault signs: the payloads of certificates and of its other statements. They name nobody.

A payload is computed, always, from the ledger's records of a request and of its end: nothing is signed because somebody
wrote it somewhere. The commitment to the new state is SHA-256(salt || digest). The salt is in the manifest and is
destroyed with it, so that an older certificate reveals nothing about who left.
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

VERSION = 1
SOFTWARE = f"expunge {__version__}"
NOT_COVERED = {
    VERSION: (
        "copies of the data outside the vault: its source, exports, backups of the folder or of the ledger",
        "blocks that the file system or the disk keeps below the files",
        "predictions and reports that were made from the model before",
    )
}
_HASH = re.compile("[0-9a-f]{64}")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLONE_OF = re.compile(rf"{_UUID.pattern}/[1-9][0-9]{{0,11}}")
_SOFTWARE = re.compile(r"expunge [0-9A-Za-z.+-]{1,40}")


def compose_done_record(after: Position, request: int, manifest: Manifest, digest: str) -> Record:
    """The record that a request is done: what its certificate says and its own record does not."""
    said = {"commitment": state_commitment(manifest.salt, digest), "schema": manifest.schema.sum, "software": SOFTWARE}
    if manifest.about.clone_of:
        said["clone_of"] = manifest.about.clone_of
    return compose_record(after, {"kind": DONE, "request": request, "fold_case": manifest.about.fold_case, **said})


def certificate_payload(vault: str, request_record: Record, done_record: Record) -> str:
    """The payload of the certificate of a request, from the records that it was accepted and that it is done."""
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
    if "clone_of" in done_record.body:
        fields["clone_of"] = _require_match(_CLONE_OF, done_record.body["clone_of"])
    if request_record.kind == "clone":
        fields["clone"] = _require_match(_UUID, body["clone"])
    if "receipts" in body:
        fields |= receipt_fields(_require_match(_HASH, body["receipts"]), fold_case=done_record.body["fold_case"])
    if body["in_certificate"]:
        [caller] = body["callers"] or [dict.fromkeys(("reference", "actor"), "")]  # several callers are never named
        fields |= {name: caller[name] for name in ("reference", "actor") if caller[name]}
    return statement_payload(vault, request_record.request, str(body["time"]), fields)


def receipt_fields(root: str, *, fold_case: bool) -> dict[str, Any]:
    """What a payload says about receipts: the root of their tree, and whether ids were taken in one case."""
    return {"receipts": root, **({"fold_case": True} if fold_case else {})}


def statement_payload(vault: str, request: int, time: str, fields: Mapping[str, Any]) -> str:
    """The payload of anything that a vault signs: whose word it is, as of which request and when, and these fields."""
    try:
        seconds = int(datetime.fromisoformat(time).timestamp())
    except (ValueError, OverflowError, OSError):
        raise _foreign_record_error() from None
    said = {"version": VERSION, "iss": issuer(vault), "jti": f"{vault}/{request}", "iat": seconds}
    return canonical_json({**said, "request": request, **fields})


def issuer(vault: str) -> str:
    """Whose word a statement is."""
    return f"expunge vault {vault}"


def state_commitment(salt: str, digest: str) -> str:
    """A commitment to a state: worthless without the salt, which is destroyed with the state."""
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(digest)).hexdigest()


def canonical_json(fields: Mapping[str, Any]) -> str:
    """A payload in its one form."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _require_match(pattern: re.Pattern[str], value: object) -> str:
    """A text of this pattern: nobody's words are signed."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise _foreign_record_error()


def _foreign_record_error() -> InvalidFile:
    return InvalidFile("the ledger has a record that no vault writes: it was changed; put the newest ledger back")


# MERGED committed: What the ledger says that a state is: a state that was loaded is compared with it.


def check_state_commitment(manifest: Manifest, records: Sequence[Record], digest: str) -> None:
    """Refuse a state with this digest if the ledger says that the manifest's request, once done, led to another."""
    done = records_of_kind(records, DONE).get(manifest.request)
    if done is None:
        return
    said = done.body["commitment"], done.body["schema"], done.body["fold_case"], done.body.get("clone_of", "")
    about = manifest.about
    if said != (state_commitment(manifest.salt, digest), manifest.schema.sum, about.fold_case, about.clone_of):
        raise InvalidFile(
            f"the folder is damaged, or the ledger was changed: the state is not the one that request "
            f"{manifest.request} led to, as the ledger tells; put a copy of the folder back"
        )
