"""Backups: a consistent copy of a vault and of the files beside it, made while requests are answered.

Large files are copied without the vault's lock, in rounds, until little is missing. The last round holds the lock: it
copies what was added since, and the entries that requests changed in place since the first round, which the ledger
lists. So an erasure waits for milliseconds however large the vault is, and a row erased meanwhile is erased in the copy
as well.

A backup is a folder: ``vault/``, ``ledger``, ``pub``, ``certificates/``, ``leaves/``, ``lists/``, ``queue`` (of the
service), ``key`` on demand, and ``backup.json`` with the length and SHA-256 of each file. None of these names ends in
``.vault``: a backup can be restored, and cannot be opened or served by mistake.
"""

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidFile, InvalidSetting, MissingData
from ..saving import files
from ..saving.ownership import SiblingPath, VaultFolder
from ..saving.staging import check_space, copy_ranges, open_staging_folder, remove_securely, sync_and_hash
from .certificates.notary import current_time as time_now
from .certificates.payload import SOFTWARE, check_state_commitment
from .disk.folder import Folder, VaultPaths, queue_folder
from .disk.runs import count_parts
from .disk.snapshot import OwnershipCount, Snapshot, count_owned_rows, find_row_damage, load_moments, load_snapshot
from .ledger.records import START, Position, Record, parse_records
from .requests import Request, Restore, Train, read_request
from .writer import Writer

MANIFEST_NAME = "backup.json"
BACKUP_VERSION = 1
QUEUE_FILE, QUEUE_SUFFIXES = "queue.sqlite", ("-wal", "-shm", "-journal")  # the service's database and its logs
FOLDER_PATTERNS = {  # folders beside the vault, and the names of their files
    "certificates": re.compile(r"\d{6,}(-[0-9a-f]{8})?\.jws"),
    "leaves": re.compile(r"\d{6,}-[0-9a-f]{16}"),
    "lists": re.compile(r"\d{6,}-[0-9a-f]{64}"),
}
_FILE_PATTERN = re.compile(r"ledger|pub|key|queue|vault/(identity\.json|current|[a-z]+(\.\d+)+)")
_MAX_MANIFEST_BYTES = 2**30
_MAX_BYTES_UNDER_LOCK = 2**25  # with more to copy, another round without the lock is made
_MAX_ROUNDS = 8  # the last one is under the lock, however much is missing

LockVault = Callable[[], AbstractContextManager[Writer]]


@dataclass(frozen=True)
class Backup:
    """A backup, as its manifest describes it.

    Attributes
    ----------
    path : Path
        The folder.
    vault : str
        The vault's name, a UUID.
    request : int
        The newest request that it includes.
    time : str
        When it was made (ISO 8601, UTC).
    with_key : bool
        Whether the private key is in it.
    files : mapping of str to (int, str)
        The length and the SHA-256 of each file.
    note : str
        What the caller should know, such as that the service could not record the backup.
    """

    path: Path
    vault: str
    request: int
    time: str
    with_key: bool
    files: Mapping[str, tuple[int, str]] = field(repr=False)
    note: str = ""

    @property
    def size(self) -> int:
        """The total length of its files, in bytes."""
        return sum(size for size, _ in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the manifest: JSON with a checksum."""
        content = {
            "format": "expunge backup",
            "version": BACKUP_VERSION,
            "software": SOFTWARE,
            "vault": self.vault,
            "request": self.request,
            "time": self.time,
            "with_key": self.with_key,
            "files": self.files,
        }
        return _canonical_json({**content, "sum": hashlib.sha256(_canonical_json(content)).hexdigest()})

    @classmethod
    def read(cls, path: str | Path) -> "Backup":
        """Read the manifest of a backup; refuse anything else."""
        folder = Path(path)
        try:
            data = files.read(folder / MANIFEST_NAME, max_bytes=_MAX_MANIFEST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingData(f"no backup at {folder}: {MANIFEST_NAME} is missing") from None
        try:
            content = json.loads(data)
            checksum = content.pop("sum")
            if (
                content["format"] != "expunge backup"
                or hashlib.sha256(_canonical_json(content)).hexdigest() != checksum
            ):
                raise ValueError("it fails its checksum")
            if (version := content["version"]) != BACKUP_VERSION:
                raise InvalidFile(
                    f"{folder} is a backup of version {version!r}; this release reads version {BACKUP_VERSION} only"
                )
            entries = {str(name): (int(size), str(sha)) for name, (size, sha) in content["files"].items()}
            if not all(map(_is_valid_name, entries)) or not {"ledger", "vault/current"} <= entries.keys():
                raise ValueError("it names files that no backup has, or required ones are missing")
            request, with_key = content["request"], content["with_key"]
            if type(request) is not int or type(with_key) is not bool or any(size < 0 for size, _ in entries.values()):
                raise ValueError("a field has a value of the wrong type")
            return cls(folder, str(content["vault"]), request, str(content["time"]), with_key, entries)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise InvalidFile(f"{folder / MANIFEST_NAME} is damaged, or not of a backup") from error


def back_up(places: VaultPaths, lock_vault: LockVault, path: str | Path, *, with_key: bool) -> Backup:
    """Copy a vault into a new folder, which appears whole and checked, or not at all."""
    target = Path(path)
    _check_target(target, places)
    if with_key and not places.key.exists():
        raise InvalidSetting(f"{places.key} is missing: the key is elsewhere, back it up there")
    try:
        return _write_backup(places, lock_vault, target, with_key)
    except files.SyncFailed as error:  # of the copy: the vault itself is unchanged
        raise OSError(error.errno, error.strerror, str(target)) from None


def _write_backup(places: VaultPaths, lock_vault: LockVault, target: Path, with_key: bool) -> Backup:
    with open_staging_folder(target.with_name(f".{target.name}.partial")) as draft:
        copy = _VaultCopy(places, draft, with_key)
        copy.copy_all(lock_vault)
        entries = {name: sync_and_hash(draft / name) for name in sorted(copy.names)}
        check_copy(draft, target)
        backup = Backup(target, copy.vault, copy.request, time_now(), with_key, entries)
        files.create(draft / MANIFEST_NAME, backup.to_bytes())
        for folder in ("vault", *FOLDER_PATTERNS, ""):
            if (draft / folder).is_dir():
                files.sync_folder(draft / folder)
        _check_target(target, places)
        files.system.rename(draft, target)
        files.sync_folder(target.parent)
    return backup


def _check_target(target: Path, places: VaultPaths) -> None:
    """Refuse a path that exists, or that is inside the vault."""
    if os.path.lexists(target):
        raise InvalidSetting(f"{target} already exists: choose a new folder for the backup")
    if not target.parent.is_dir():
        raise InvalidSetting(f"{target} cannot be created: {target.parent} is not a folder")
    parent = target.parent.resolve()
    folders = [folder.resolve() for folder in (places.vault, places.certificates, places.leaves, places.lists)]
    if any(parent.is_relative_to(folder) for folder in folders):
        raise InvalidSetting(f"{target} is inside the vault: choose a folder outside, best on another disk")


@dataclass(frozen=True)
class _MissingRanges:
    """Bytes that are missing from a copy."""

    source: files.Location
    name: str  # in the backup
    ranges: Sequence[tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.ranges)


class _VaultCopy:
    """A copy of a vault in progress."""

    def __init__(self, places: VaultPaths, draft: Path, with_key: bool) -> None:
        self._places, self._draft, self._with_key = places, draft, with_key
        self._start: Position | None = None  # where the ledger ended before the first byte was copied
        self._copied_sizes = dict[str, int]()  # how much of each file was copied
        self._learner_sums = dict[str, str]()  # learners that were copied, and their checksums then
        self.vault, self.request = "", 0

    @property
    def names(self) -> Iterator[str]:
        """The files of the copy."""
        for path in self._draft.rglob("*"):
            if not path.is_dir():
                yield path.relative_to(self._draft).as_posix()

    def copy_all(self, lock_vault: LockVault) -> None:
        """Copy everything, the last round under the lock."""
        files.system.mkdir(self._draft / "vault")
        for left in reversed(range(_MAX_ROUNDS)):
            with lock_vault() as writer:
                tip = writer.ledger.tip
                if self._start is not None and self._is_outdated(writer):
                    self._discard()
                if self._start is None:
                    self._start = tip
                pieces = list(self._find_missing(writer.snapshot, tip))
                size = sum(piece.size for piece in pieces)
                check_space(self._draft, size)
                if size <= _MAX_BYTES_UNDER_LOCK or not left:
                    self._copy(pieces)
                    return self._finish(writer)
            with suppress(FileNotFoundError):  # a request replaced the file; the next round notices
                self._copy(pieces)
        raise AssertionError("the last round is final")

    def _requests_since(self, writer: Writer) -> list[Record]:
        assert self._start is not None
        records, _ = writer.ledger.read(self._start)
        return [record for record in records if record.is_request]

    def _is_outdated(self, writer: Writer) -> bool:
        """Return whether the copy is useless so far: the vault was trained again, or an old copy was put back."""
        return any(record.kind in (Train.kind, Restore.kind) for record in self._requests_since(writer))

    def _discard(self) -> None:
        for name in list(self.names):
            remove_securely(self._draft / name)
        self._start = None
        self._copied_sizes.clear()
        self._learner_sums.clear()

    def _find_missing(self, snapshot: Snapshot, tip: Position) -> Iterator[_MissingRanges]:
        """Yield the parts of files that were not copied yet. Learners are replaced, everything else here only grows."""
        vault, manifest, layout = self._places.vault, snapshot.manifest, snapshot.rows.layout
        for learner in manifest.learners:
            if self._learner_sums.get(learner.name) != learner.sum:
                self._copied_sizes.pop(f"vault/{learner.name}", None)
                self._learner_sums[learner.name] = learner.sum
        sizes = {segment.name: segment.count * layout.entry_bytes for segment in manifest.segments}
        sizes |= {segment.file.name: segment.size for segment in snapshot.people.segments}
        for name in (*(learner.name for learner in manifest.learners), *(file.name for file in manifest.charter)):
            sizes[name] = (vault / name).stat().st_size
        for name, size in sizes.items():
            yield from self._find_uncopied(vault / name, f"vault/{name}", size)
        yield from self._find_uncopied(self._places.ledger, "ledger", tip.offset)
        for folder in FOLDER_PATTERNS:
            beside = getattr(self._places, folder)
            for name in self._list_names(folder):
                if f"{folder}/{name}" not in self._copied_sizes:
                    yield from self._find_uncopied(beside / name, f"{folder}/{name}", (beside / name).stat().st_size)

    def _find_uncopied(self, source: Path, name: str, size: int) -> Iterator[_MissingRanges]:
        copied = self._copied_sizes.get(name)
        if copied is None or copied < size:
            yield _MissingRanges(source, name, [(copied or 0, size)])

    def _list_names(self, folder: str) -> list[str]:
        beside: SiblingPath = getattr(self._places, folder)
        names = files.VaultDir(beside).names() if beside.is_dir() else []
        return [name for name in names if FOLDER_PATTERNS[folder].fullmatch(name)]

    def _copy(self, pieces: Iterable[_MissingRanges]) -> None:
        for piece in pieces:
            target = self._draft / piece.name
            if not target.parent.is_dir():
                files.system.mkdir(target.parent)
            self._copied_sizes[piece.name] = copy_ranges(piece.source, target, piece.ranges)

    def _finish(self, writer: Writer) -> None:
        """Bring the copy to the current state, under the lock."""
        snapshot, places = writer.snapshot, self._places
        manifest, vault = snapshot.manifest, places.vault
        self.vault, self.request = manifest.vault, manifest.request
        requests = [read_request(record, writer.lists) for record in self._requests_since(writer)]
        self._copy(_find_changed_rows(snapshot, requests))
        self._copy(_find_changed_people(snapshot, requests))
        for name in (manifest.live_file, manifest.name, "current", "identity.json"):
            self._copy_whole(vault / name, f"vault/{name}")
        if places.public.exists():
            self._copy_whole(places.public, "pub")
        if self._with_key:
            self._copy_whole(places.key, "key")
        if (queue := copy_queue(vault)) is not None:
            with files.open_file(self._draft / "queue", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                files.write_all(fd, queue, 0)
        for name in manifest.spares:
            with suppress(FileNotFoundError):  # it may have been in use in the first round
                remove_securely(self._draft / "vault" / name)
            files.create(self._draft / "vault" / name)
        expected = {f"vault/{name}" for name in (*manifest.file_names, *manifest.spares, "current", "identity.json")}
        expected |= {"ledger", "pub", "key", "queue"}
        expected |= {f"{folder}/{name}" for folder in FOLDER_PATTERNS for name in self._list_names(folder)}
        for name in [name for name in self.names if name not in expected]:
            remove_securely(self._draft / name)

    def _copy_whole(self, source: Path, name: str) -> None:
        self._copy([_MissingRanges(source, name, [(0, source.stat().st_size)])])


def _find_changed_rows(snapshot: Snapshot, requests: Sequence[Request]) -> Iterator[_MissingRanges]:
    """Yield the entries of rows that requests overwrote."""
    layout, none = snapshot.rows.layout, np.empty(0, dtype=np.int64)
    rows = np.unique(np.concatenate([none, *(request.touched_entries[0] for request in requests)]))
    first, width = 0, layout.entry_bytes
    for k, segment in enumerate(layout.segments):
        entries = rows[(rows >= first) & (rows < first + segment.count)] - first
        if len(entries):
            ranges = [(entry * width, (entry + 1) * width) for entry in entries.tolist()]
            yield _MissingRanges(layout.segment_file(k), f"vault/{segment.name}", ranges)
        first += segment.count


def _find_changed_people(snapshot: Snapshot, requests: Sequence[Request]) -> Iterator[_MissingRanges]:
    """Yield the entries of people that requests overwrote."""
    none = np.empty((0, 2), dtype=np.uint64)
    entries = snapshot.people.find(np.concatenate([none, *(request.touched_entries[1] for request in requests)]))
    for k, segment in enumerate(snapshot.people.segments):
        places = np.unique(entries.place[entries.segment == k])
        if len(places):
            ranges = [segment.entry_byte_range(place) for place in places.tolist()]
            yield _MissingRanges(segment.file, f"vault/{segment.file.name}", ranges)


def copy_queue(vault: VaultFolder) -> bytes | None:
    """Return the service's database as of one transaction, as the bytes of a file; None if there is none."""
    folder = queue_folder(vault)
    if not os.path.lexists(folder / QUEUE_FILE):
        return None
    with files.VaultDir(folder).open():  # refuses a folder that others can enter
        for end in ("", *QUEUE_SUFFIXES):
            (folder / f"{QUEUE_FILE}{end}").check_existing()
    try:
        connection = sqlite3.connect(folder / QUEUE_FILE, timeout=30.0)
        with closing(connection) as source, closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            return copy.serialize()
    except sqlite3.DatabaseError as error:
        raise InvalidFile(f"{folder / QUEUE_FILE} cannot be copied: {error}") from None


def check_copy(copy: Path, target: Path) -> None:
    """Check a copy: rows, owners and moments pass their checksums, and match the ledger. Messages name ``target``."""
    folder = Folder(copy / "vault")
    manifest = folder.read_current_manifest()
    if manifest is None:
        raise InvalidFile(f"{target} has no state of a vault")
    path = copy / "ledger"
    before = manifest.before
    records, torn = parse_records(files.read(path, offset=before.offset), before, path)
    requests = [record for record in records if record.is_request]
    if torn or not requests or requests[0].end.hash != manifest.record or requests[-1].request != manifest.request:
        problem = "its ledger and its folder are at different requests"
    else:
        snapshot = load_snapshot(folder, manifest, None)
        check_state_commitment(manifest, records, snapshot.state.ensemble.digest())
        for learner in manifest.learners:
            load_moments(folder, learner, snapshot.state.ensemble.encoder)
        problem = _find_mismatch(snapshot) or ""
    if problem:
        raise InvalidFile(f"the copy for {target} is wrong: {problem}; run expunge verify on the vault")


def _find_mismatch(snapshot: Snapshot) -> str | None:
    manifest, rows, people = snapshot.manifest, snapshot.rows, snapshot.people
    if (rows.live.count(), rows.live_sum) != (manifest.rows, manifest.slots_sum):
        return "its rows are in other slots than its manifest says"
    damage = find_row_damage(rows, range(manifest.drawn))
    if damage is not None:
        return damage
    parts = count_parts(sum(segment.count for segment in people.segments))
    counts = [count_owned_rows(people, part, parts, manifest.seal) for part in range(parts)]
    owned = reduce(OwnershipCount.merge, counts)
    expected = manifest.rows, manifest.slots_sum, manifest.owners, manifest.erased
    if (owned.rows, owned.slots_sum, owned.owners, owned.erased) != expected:
        return "rows and their owners do not match"
    return None


def read_ledger(path: Path) -> tuple[list[Record], bool]:
    """Return all records of a ledger, and whether a torn one follows."""
    return parse_records(files.read(path), START, path)


def _is_valid_name(name: str) -> bool:
    folder, _, file = name.partition("/")
    return bool(
        _FILE_PATTERN.fullmatch(name) or (folder in FOLDER_PATTERNS and FOLDER_PATTERNS[folder].fullmatch(file))
    )


def _canonical_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
