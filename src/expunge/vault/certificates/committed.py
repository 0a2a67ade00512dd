"""What the ledger says that a state is: a state that was loaded is compared with it."""

from collections.abc import Sequence

from ...errors import InvalidFile
from ..disk.folder import Folder
from ..disk.manifest import Manifest
from ..ledger.records import DONE, Record
from .payload import commitment, payload_fields


def committed(records: Sequence[Record], request: int) -> str | None:
    """The commitment to the state after a request; None as long as it is not done."""
    done = next((record for record in records if record.kind == DONE and record.request == request), None)
    if done is None:
        return None
    try:
        return str(payload_fields(str(done.body["payload"]))["commitment"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidFile(f"the ledger is damaged: what it says of request {request} being done") from None


def check_committed(folder: Folder, manifest: Manifest, records: Sequence[Record], digest: str) -> None:
    """Refuse a state with this digest if the ledger says that another was reached."""
    said = committed(records, manifest.request)
    if said is not None and said != commitment(manifest.salt, digest):
        raise InvalidFile(
            f"{folder.path} is damaged, or its ledger is: the state is not the one that request {manifest.request} "
            "led to; put a copy of the folder back"
        )
