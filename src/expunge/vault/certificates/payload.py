"""What a vault signs: the payloads of certificates and of its other statements. They name nobody.

A payload is computed, always, from the ledger's records of a request and of its end: nothing is signed because somebody
wrote it somewhere. The commitment to the new state is SHA-256(salt || digest). The salt is in the manifest and is
destroyed with it, so that an older certificate reveals nothing about who left.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ... import __version__
from ...errors import InvalidFile
from ..disk.manifest import Manifest
from ..ledger.records import DONE, Position, Record, compose

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
_STATE_OF = re.compile(rf"{_UUID.pattern}/[1-9][0-9]{{0,11}}")
_SOFTWARE = re.compile(r"expunge [0-9A-Za-z.+-]{1,40}")


def done_record(after: Position, request: int, manifest: Manifest, digest: str) -> Record:
    """The record that a request is done: what its certificate says and its own record does not."""
    said = {"commitment": commitment(manifest.salt, digest), "schema": manifest.schema.sum, "software": SOFTWARE}
    if manifest.about.clone_of:
        said["clone_of"] = manifest.about.clone_of
    return compose(after, {"kind": DONE, "request": request, "fold_case": manifest.about.fold_case, **said})


def certificate_payload(vault: str, asked: Record, done: Record) -> str:
    """The payload of the certificate of a request, from the records that it was accepted and that it is done."""
    body = asked.body
    fields = {
        "kind": asked.kind,
        "rows": body["rows"],
        "people": body["people"],
        "epoch": asked.request,
        "commitment": _fitting(_HASH, done.body["commitment"]),
        "previous": asked.end.hash,
        "schema": _fitting(_HASH, done.body["schema"]),
        "software": _fitting(_SOFTWARE, done.body["software"]),
        "not_covered": list(NOT_COVERED[VERSION]),
    }
    if "clone_of" in done.body:
        fields["clone_of"] = _fitting(_STATE_OF, done.body["clone_of"])
    if asked.kind == "clone":
        fields["clone"] = _fitting(_UUID, body["clone"])
    if "receipts" in body:
        fields |= receipts_fields(_fitting(_HASH, body["receipts"]), fold_case=done.body["fold_case"])
    if body["in_certificate"]:
        [caller] = body["callers"] or [dict.fromkeys(("reference", "actor"), "")]  # several callers are never named
        fields |= {name: caller[name] for name in ("reference", "actor") if caller[name]}
    return statement(vault, asked.request, str(body["time"]), fields)


def receipts_fields(root: str, *, fold_case: bool) -> dict[str, Any]:
    """What a payload says about receipts: the root of their tree, and whether ids were taken in one case."""
    return {"receipts": root, **({"fold_case": True} if fold_case else {})}


def statement(vault: str, request: int, time: str, fields: Mapping[str, Any]) -> str:
    """The payload of anything that a vault signs: whose word it is, as of which request and when, and these fields."""
    try:
        seconds = int(datetime.fromisoformat(time).timestamp())
    except (ValueError, OverflowError, OSError):
        raise _odd() from None
    said = {"version": VERSION, "iss": issuer(vault), "jti": f"{vault}/{request}", "iat": seconds}
    return payload_text({**said, "request": request, **fields})


def issuer(vault: str) -> str:
    """Whose word a statement is."""
    return f"expunge vault {vault}"


def commitment(salt: str, digest: str) -> str:
    """A commitment to a state: worthless without the salt, which is destroyed with the state."""
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(digest)).hexdigest()


def payload_text(fields: Mapping[str, Any]) -> str:
    """A payload in its one form."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _fitting(pattern: re.Pattern[str], value: object) -> str:
    """A text of this pattern: nobody's words are signed."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise _odd()


def _odd() -> InvalidFile:
    return InvalidFile("the ledger has a record that no vault writes: it was changed; put the newest ledger back")
