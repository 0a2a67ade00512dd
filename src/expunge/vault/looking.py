"""Looking: what a vault's files say without loading its model, and whether something is left to be finished."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import InvalidFile
from .certificates.waiting import waiting
from .disk.folder import Folder, Places, VaultIdentity
from .disk.manifest import Manifest
from .ledger.history import history
from .ledger.ledger import Ledger
from .ledger.records import DONE, Record
from .receipts import Status


def pending(manifest: Manifest, records: Sequence[Record], torn: bool) -> bool:
    """Whether the ledger, from the manifest's request on, says more than the manifest has carried out."""
    newest = max((record.request for record in records if record.is_request), default=manifest.request)
    strange = not records or records[0].end.hash != manifest.record  # who wants to finish that says what is wrong
    return torn or strange or newest > manifest.request


def finished(manifest: Manifest, records: Sequence[Record]) -> bool:
    """Whether the manifest's own request is done, down to its certificate's payload."""
    return any(record.kind == DONE and record.request == manifest.request for record in records)


def check_identity(folder: Folder, ledger: Ledger, identity: VaultIdentity) -> None:
    """Refuse a folder or a ledger that is not this vault's any more; a ledger without a first line is nobody's."""
    if folder.identity() != identity or ledger.vault() not in (None, identity.vault):
        raise another_vault(folder)


def check_vault(folder: Folder, manifest: Manifest | None, vault: str) -> None:
    """Refuse a manifest of another vault."""
    if manifest is not None and manifest.vault != vault:
        raise another_vault(folder)


def another_vault(folder: Folder) -> InvalidFile:
    """What to say where another vault is than the one that was opened."""
    return InvalidFile(
        f"{folder.path} is another vault than the one that was opened there, or files of two are mixed: open it anew"
    )


def own_records(places: Places, vault: str) -> list[Record]:
    """All records of the ledger, which must be this vault's."""
    records, _ = Ledger(places.ledger).read()
    if records and records[0].body.get("vault") != vault:
        raise another_vault(Folder(places.vault))
    return records


def glance(path: str | Path) -> Status | None:
    """The status of a vault, or None if there is something to be finished, or wrong: then open it."""
    places = Places.of(path)
    folder, ledger = Folder(places.vault), Ledger(places.ledger)
    if not places.ledger.exists() or (manifest := folder.current()) is None:
        return None
    records, torn = ledger.read(manifest.before)
    if pending(manifest, records, torn) or not finished(manifest, records) or waiting(records):
        return None
    if folder.leftovers(manifest) or ledger.vault() != folder.identity().vault:
        return None
    found = status_of(places, manifest)
    return found if folder.current() == manifest else None


def status_of(places: Places, manifest: Manifest) -> Status:
    """What is in a vault, as of this manifest."""
    records, about = own_records(places, manifest.vault), manifest.about
    requests = history(records)
    trained = [request.time for request in requests if request.number == manifest.training]
    if not trained:
        raise InvalidFile(f"{places.ledger} lacks request {manifest.training}, which trained the vault")
    return Status(
        vault=manifest.vault,
        rows=manifest.rows,
        people=manifest.owners,
        erased_ids=manifest.erased,
        requests=len(requests),
        uncertified=sum(request.state == "done" for request in requests),
        trained=trained[0],
        targets=about.targets,
        columns=about.columns,
        inputs=about.inputs,
        shards=about.shards,
        learners=about.learners,
        rate=about.shards / about.learners,
        alpha=about.alpha,
        features=about.features,
        scales=about.scales,
        target_scales=about.target_scales,
        outside=about.outside,
        planned=_planned(records, manifest.training),
        observed_bounds=about.observed_bounds,
        bytes=_bytes_in(places.vault),
    )


def _planned(records: Sequence[Record], training: int) -> str:
    """What a plan promised of the model when it was trained."""
    said = [record.body.get("planned") for record in records if record.is_request and record.request == training]
    return str(said[0]) if said and isinstance(said[0], str) else ""


def _bytes_in(folder: Path) -> int:
    """How long its files are together; a writer may wipe some meanwhile."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total
