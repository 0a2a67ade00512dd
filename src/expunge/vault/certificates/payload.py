"""What a certificate says: the request, its counts, and a commitment to the new state. It names nobody.

The commitment is SHA-256(salt || digest). The salt is in the manifest and is destroyed with it, so that an older
certificate reveals nothing about who left.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ... import __version__
from ..disk.manifest import Manifest
from ..ledger.records import Record

NOT_COVERED = (
    "copies of the data outside the vault: its source, exports, backups of the folder or of the ledger",
    "blocks that the file system or the disk keeps below the files",
    "predictions and reports that were made from the model before",
)


def payload_of(record: Record, manifest: Manifest, digest: str) -> str:
    """The payload of the certificate of a request that led to this state."""
    return payload_text(
        {
            "iss": f"expunge vault {manifest.vault}",
            "jti": f"{manifest.vault}/{manifest.request}",
            "iat": int(datetime.fromisoformat(record.body["time"]).timestamp()),
            "kind": record.kind,
            "request": record.request,
            "rows": record.body["rows"],
            "people": record.body["people"],
            "epoch": manifest.request,
            "commitment": commitment(manifest.salt, digest),
            "previous": record.end.hash,
            "schema": manifest.schema.sum,
            "software": f"expunge {__version__}",
            "not_covered": list(NOT_COVERED),
        }
    )


def commitment(salt: str, digest: str) -> str:
    """A commitment to a state: worthless without the salt, which is destroyed with the state."""
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(digest)).hexdigest()


def payload_text(fields: Mapping[str, Any]) -> str:
    """A payload in its one form."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def payload_fields(text: str) -> dict[str, Any]:
    """The inverse of `payload_text`."""
    fields: dict[str, Any] = json.loads(text)
    return fields
