"""The status of a vault: what is in it, from its manifest and its ledger's index, without loading its model."""

from contextlib import suppress
from pathlib import Path

from ..errors import InvalidFile
from .condition import another_vault, index_of, read_condition
from .disk.folder import Folder, Places
from .disk.manifest import Manifest
from .ledger.index import LedgerIndex
from .ledger.ledger import Ledger
from .receipts import Status


def glance(path: str | Path) -> Status | None:
    """Return the status of a vault without opening it; None if something is to be finished, or wrong: then open it."""
    places = Places.of(path)
    folder, ledger = Folder(places.vault), Ledger(places.ledger)
    if not places.ledger.exists() or (condition := read_condition(folder, ledger)) is None:
        return None
    manifest, identity = condition.manifest, folder.identity()
    if not condition.settled or condition.waiting:
        return None
    if folder.leftovers(manifest) or ledger.vault() != identity.vault:
        return None
    found = status_of(places, manifest, index_of(places, identity))
    return found if folder.current() == manifest else None


def status_of(places: Places, manifest: Manifest, index: LedgerIndex) -> Status:
    """Return what is in a vault, as of this manifest."""
    if index.vault != manifest.vault:
        raise another_vault(Folder(places.vault))
    about, trained = manifest.about, index.asked(manifest.training)
    if trained is None:
        raise InvalidFile(f"{places.ledger} lacks request {manifest.training}, which trained the vault")
    return Status(
        vault=manifest.vault,
        rows=manifest.rows,
        people=manifest.owners,
        erased_ids=manifest.erased,
        requests=index.newest,
        uncertified=index.uncertified,
        trained=str(trained.body["time"]),
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
        planned=str(trained.body.get("planned", "")),
        compared=str(trained.body.get("compared", "")),
        observed_bounds=about.observed_bounds,
        clone_of=about.clone_of,
        bytes=_count_bytes(places.vault),
    )


def _count_bytes(folder: Path) -> int:
    """Return the length of all files in a folder together; a writer may wipe some meanwhile."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total
