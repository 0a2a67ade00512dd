"""What the ledger says that a state is: a state that was loaded is compared with it."""

from collections.abc import Sequence

from ...errors import InvalidFile
from ..disk.manifest import Manifest
from ..ledger.records import DONE, Record, of_kind
from .payload import commitment


def check_committed(manifest: Manifest, records: Sequence[Record], digest: str) -> None:
    """Refuse a state with this digest if the ledger says that the manifest's request, once done, led to another."""
    done = of_kind(records, DONE).get(manifest.request)
    if done is None:
        return
    said = done.body["commitment"], done.body["schema"], done.body["fold_case"], done.body.get("clone_of", "")
    about = manifest.about
    if said != (commitment(manifest.salt, digest), manifest.schema.sum, about.fold_case, about.clone_of):
        raise InvalidFile(
            f"the folder is damaged, or the ledger was changed: the state is not the one that request "
            f"{manifest.request} led to, as the ledger tells; put a copy of the folder back"
        )
