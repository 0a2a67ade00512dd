"""Recovery: finish what was accepted, remove what was not, bring an old copy of the folder up to date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidFile
from ..saving import files
from .certificates.committed import check_committed
from .certificates.keyring import known_keys
from .certificates.waiting import waiting
from .condition import check_vault
from .disk.lists import names_of
from .disk.manifest import Manifest
from .ledger.records import DONE, SIGNATURE, START, Record, of_kind
from .requests import Train, request_of
from .requests.lost import Lost
from .requests.restore import Restore

if TYPE_CHECKING:
    from .writer import Writer


def recover(writer: "Writer") -> None:
    """Bring folder and ledger together, under the lock."""
    manifest = writer.folder.current()
    check_vault(writer.folder, manifest, writer.identity.vault)
    records = _tail(writer, manifest)
    _settle_keys(writer)
    requests = [record for record in records if record.is_request]
    done = of_kind(records, DONE)
    ahead = [record for record in requests if manifest is None or record.request > manifest.request]
    if ahead:
        newest = ahead[-1]
        prepared = None if len(ahead) > 1 or newest.request in done else writer.folder.prepared(newest.request)
        if prepared is None or prepared.record != newest.end.hash:
            return _catch_up(writer, manifest, records, ahead)
        manifest = prepared
    if manifest is None:  # a first training that was never accepted
        _settle_lists(writer, records)
        return writer.folder.wipe_all_but(None)
    newest = next(record for record in requests if record.request == manifest.request)
    # Before anything is changed: a newer release may know what this one does not.
    request = request_of(newest, writer.lists)
    writer.notary.waiting = waiting(records)
    _settle_lists(writer, records)
    if newest.request not in done:
        writer.ledger.settle()  # who wrote that it is accepted may have ended before it was synced
        writer.folder.commit(manifest)  # again: after a failed sync nothing that is read back can be trusted
        files.sync_folder(writer.folder.path)  # `current` itself may be new
        writer.finish(newest, request, writer.load(manifest))
    else:
        vault = writer.load(manifest)
        if writer.folder.leftovers(manifest):  # of a crash; or this is a copy that was made half way
            request.overwrite(vault, newest.request)
        writer.check_rows(vault)
        check_committed(manifest, records, vault.state.ensemble.digest())
    writer.tidy()
    return writer.notary.sign_waiting(manifest, writer.now.state.ensemble.digest())


def _settle_keys(writer: "Writer") -> None:
    """Finish or undo a change of the key that was stopped half way."""
    if writer.notary.left_behind:
        writer.ledger.settle()  # the record of the new key may never have reached the disk
    writer.notary.settle()


def _settle_lists(writer: "Writer", records: Sequence[Record]) -> None:
    """Give the lists of accepted requests their names, and wipe drafts of requests that were not accepted."""
    done = of_kind(records, DONE)
    if names := names_of(record for record in records if record.request not in done):
        writer.ledger.settle()  # the acceptance may never have reached the disk, and then the list has to be a draft
        writer.lists.keep(names)
    writer.lists.wipe_marked()


def _catch_up(writer: "Writer", manifest: Manifest | None, records: Sequence[Record], ahead: Sequence[Record]) -> None:
    """Bring an old copy of the folder to where the ledger is, as far as it can be."""
    if manifest is None or any(record.kind == Train.kind for record in ahead):
        raise InvalidFile(
            f"{writer.places.vault} is older than the training that {writer.places.ledger} knows, or was emptied: "
            "put a newer copy of the folder back"
        )
    own, *missed = [(record.request, request_of(record, writer.lists)) for record in (records[0], *ahead)]
    _settle_lists(writer, records)
    vault = writer.load(manifest)
    own[1].overwrite(vault, manifest.request)  # the copy may have been made half way
    writer.check_rows(vault)
    check_committed(manifest, records, vault.state.ensemble.digest())
    writer.tidy()
    writer.notary.waiting = _vouched_waiting(manifest, records)
    done = of_kind(records, DONE)
    lost = Lost(vault.rows.live)
    for number, request in missed:
        request.replay(lost, number, done=number in done)
    # Who was erased by a request that nobody finished, or certified, is erased by this one.
    uncertified = {record.request for record in ahead} - of_kind(records, SIGNATURE).keys()
    lost.bury = {one: writer.newest + 1 if by in uncertified else by for one, by in lost.bury.items()}
    with writer.preparing():
        plan = Restore.plan(writer.site, lost)
    writer.perform(plan)


def _vouched_waiting(manifest: Manifest, records: Sequence[Record]) -> list[int]:
    """The requests that wait for the key as far as an old copy of the folder can vouch for them.

    What came after the copy only the ledger tells, and who can write to that would have anything signed.
    """
    known = [record for record in records if not (record.is_request and record.request > manifest.request)]
    return [number for number in waiting(known) if number <= manifest.request]


def _tail(writer: "Writer", manifest: Manifest | None) -> list[Record]:
    """The ledger from the manifest's request on; a torn record is cut off."""
    ledger = writer.ledger
    start = START if manifest is None else manifest.before
    records, torn = ledger.read(start)
    if manifest is not None and (not records or records[0].end.hash != manifest.record):
        raise InvalidFile(
            f"{ledger.path} does not know request {manifest.request}, which the folder has carried out: "
            "it is older than the folder, or another vault's; put the newest ledger back"
        )
    asked = [record.request for record in records if record.is_request]
    first = 1 if manifest is None else manifest.request
    if asked != list(range(first, first + len(asked))):
        raise InvalidFile(f"{ledger.path} was changed: requests are missing, doubled or out of order")
    if any(record.kind == DONE and record.request not in asked for record in records):
        raise InvalidFile(f"{ledger.path} was changed: it says that requests are done which nobody asked for")
    writer.newest = max((record.request for record in records if record.is_request), default=0)
    ledger.tip = records[-1].end if records else start
    writer.notary.known = known_keys(() if manifest is None else manifest.keys, records)
    ledger.trust(start)
    if torn:
        ledger.cut()
    return records
