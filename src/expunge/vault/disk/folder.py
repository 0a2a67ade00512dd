"""The folder: where a vault's files are, which of them count, and how the rest is removed."""

import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from ...errors import InvalidFile, InvalidSetting
from ...saving import files
from ...saving.files import Data
from ...saving.ownership import PrivateSiblingPath, SiblingPath, VaultFolder
from .manifest import MAX_MANIFEST_BYTES, ImmutableFile, Manifest, manifest_name

# MERGED pointers: Pointers: the two lines of `current`, each of which names the request that a page of the manifest is of.
# MERGED pointers:
# MERGED pointers: The page of the newer request counts. A commit overwrites the line of the other page, in place: no rename, and no sync
# MERGED pointers: of the folder. A write that was cut short leaves a line that fails its checksum, and then the other counts as before.
# MERGED pointers: Only numbers are in it, no secrets.


_POINTER_LINE = re.compile(rb"request ([1-9]\d{0,11}) [0-9a-f]{8} *")
_OLD_POINTER = re.compile(rb"manifest\.[1-9]\d*[\n ].*", re.DOTALL)  # before manifests had version 7
_POINTER_BYTES = 32
NO_POINTER = b" " * (_POINTER_BYTES - 1) + b"\n"


def pointer_line(request: int) -> bytes:
    """The line that names a request."""
    name = f"request {request}"
    return f"{name} {hashlib.sha256(name.encode()).hexdigest()[:8]}".ljust(_POINTER_BYTES - 1).encode() + b"\n"


def parse_pointers(data: bytes, path: Path) -> tuple[int, int]:
    """The requests that the two lines name, 0 for a line that names none; if neither does, it is damaged."""
    if _OLD_POINTER.fullmatch(data):
        raise InvalidFile(f"{path} is of an older version: use the release that made it, or train the vault anew")
    found = _parse_pointer_line(data[:_POINTER_BYTES]), _parse_pointer_line(data[_POINTER_BYTES:])
    if not any(found) or len(data) != 2 * _POINTER_BYTES:
        raise InvalidFile(f"{path} is damaged")
    return found


def _parse_pointer_line(line: bytes) -> int:
    said = _POINTER_LINE.fullmatch(line[:-1])
    return int(said[1]) if said is not None and line == pointer_line(int(said[1])) else 0


_STATE_STEMS = "rows|live|people|schema|blueprint|learner|manifest"
_TEMPORARY_STEMS = "owners|stage|adding|listing|training"  # only while a request is prepared or carried out
_OWN_NAME = re.compile(rf"({_STATE_STEMS}|{_TEMPORARY_STEMS})(\.\d+)+|current\.new")
_KEY_BYTES = 32


@dataclass(frozen=True)
class VaultPaths:
    """The folder of a vault, and what lies beside it so that an old copy of the folder cannot roll it back."""

    vault: VaultFolder
    ledger: SiblingPath
    key: PrivateSiblingPath
    public: SiblingPath
    certificates: SiblingPath
    leaves: SiblingPath
    lists: SiblingPath
    index: SiblingPath

    @classmethod
    def from_path(cls, path: str | Path) -> "VaultPaths":
        """The places that belong to a path, which ends in ``.vault``."""
        vault = VaultFolder(path)
        if vault.suffix != ".vault" or vault.name == ".vault":
            raise InvalidSetting(f"a vault is a folder whose name ends in .vault, got {vault.name!r}")
        if vault.is_symlink():
            raise InvalidFile(f"{vault} is a symbolic link: name the folder itself, its ledger lies beside it")
        if vault.exists() and not vault.is_dir():
            raise InvalidFile(f"{vault} is there and is not a folder")
        key = PrivateSiblingPath(vault.with_suffix(".key"))
        ends = (".ledger", ".pub", ".certificates", ".leaves", ".lists", ".index")
        ledger, public, certificates, leaves, lists, index = (SiblingPath(vault.with_suffix(end)) for end in ends)
        return cls(vault, ledger, key, public, certificates, leaves, lists, index)

    def check(self) -> None:
        """Refuse what others planted. Before the first training all that is there must be this user's."""
        mine = not (self.vault / "current").exists()
        for field in fields(self):
            getattr(self, field.name).check_existing(mine=mine)


def queue_folder(vault: Path) -> PrivateSiblingPath:
    """Return the folder of the service in front of a vault, which lies beside its ledger."""
    return PrivateSiblingPath(vault.with_suffix(".queue"))


@dataclass(frozen=True)
class VaultIdentity:
    """The name of a vault, and the key of the hashes of its ids."""

    vault: str
    key: bytes

    @classmethod
    def generate(cls) -> "VaultIdentity":
        """A vault that did not exist before."""
        return cls(str(uuid.uuid4()), secrets.token_bytes(_KEY_BYTES))

    @property
    def seal(self) -> bytes:
        """What is mixed into the checksums of this vault's rows and people."""
        return uuid.UUID(self.vault).bytes

    @property
    def sum(self) -> str:
        """A checksum: with another key nobody would be found, and the erased could come back."""
        return hashlib.sha256(self.vault.encode() + self.key).hexdigest()

    def derive_key(self, purpose: str) -> bytes:
        """Return a 32-byte key for one purpose: HKDF-SHA256 (RFC 5869) of the vault's key, without a salt."""
        prk = hmac.digest(bytes(32), self.key, "sha256")
        return hmac.digest(prk, f"expunge {purpose}".encode() + b"\x01", "sha256")


class Folder:
    """The files of one vault."""

    def __init__(self, path: VaultFolder) -> None:
        self.path = path
        self._cached_identity: tuple[bytes, VaultIdentity] | None = None  # what was read last, and what it says

    def read_identity(self) -> VaultIdentity:
        """Read which vault it is."""
        path = self.path / "identity.json"
        try:
            data = files.read(path, max_bytes=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise InvalidFile(f"{path} is not there: {self.path} is not a vault, or incomplete") from None
        if self._cached_identity is not None and self._cached_identity[0] == data:
            return self._cached_identity[1]
        try:
            content = json.loads(data)
            found = VaultIdentity(str(uuid.UUID(content["vault"])), bytes.fromhex(content["key"]))
            if content["sum"] != found.sum or len(found.key) != _KEY_BYTES:
                raise ValueError("it fails its checksum")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidFile(f"{path} is damaged, or not of a vault") from error
        self._cached_identity = data, found
        return found

    def write_identity(self, identity: VaultIdentity) -> None:
        """Write which vault it is, once."""
        content = {"vault": identity.vault, "key": identity.key.hex(), "sum": identity.sum}
        files.wipe(self.path / "identity.json")
        files.create(self.path / "identity.json", json.dumps(content).encode())
        files.sync_folder(self.path)

    def read_current_manifest(self) -> Manifest | None:
        """The manifest that counts; None if no training was ever finished."""
        while (pointed := self._read_current_pointer()) is not None:
            try:
                return self._read_manifest(*pointed)
            except InvalidFile:
                if self._read_current_pointer() == pointed:  # else a writer went on, and wiped what was being read
                    raise
        return None

    def _read_current_pointer(self) -> tuple[int, int] | None:
        """The page of the manifest that counts, and the request that it is of."""
        path = self.path / "current"
        try:
            found = parse_pointers(files.read(path, max_bytes=100), path)
        except FileNotFoundError:
            return None
        return found.index(max(found)), max(found)

    def _read_manifest(self, page: int, request: int) -> Manifest:
        path = self.path / manifest_name(page)
        try:
            data = files.read(path, max_bytes=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise InvalidFile(f"{self.path} is incomplete: current names {path.name}, which is not there") from None
        manifest = Manifest.from_bytes(data, path)
        if (manifest.page, manifest.request) != (page, request):
            raise InvalidFile(f"{path} is the manifest of another request")
        return manifest

    def read_prepared_manifest(self, request: int) -> Manifest | None:
        """The manifest of a request that was accepted and has yet to be committed, if it is there and whole."""
        for page in range(2):
            with suppress(FileNotFoundError, InvalidFile):
                return self._read_manifest(page, request)
        return None

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the one that counts."""
        path, line = self.path / "current", pointer_line(manifest.request)
        try:
            files.overwrite(path, [(manifest.page * len(line), line)])
        except FileNotFoundError:
            files.put(path, *((line, NO_POINTER) if manifest.page == 0 else (NO_POINTER, line)))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, for good."""
        files.system.rename(self.path / old, self.path / new)
        files.sync_folder(self.path)

    def write(self, name: str, *parts: Data) -> ImmutableFile:
        """A new file that will never change, synced."""
        files.create(self.path / name, *parts)
        return ImmutableFile(name, sha256_hex(*parts))

    def read(self, file: ImmutableFile, *, stop: int | None = None) -> bytes:
        """The content of a file that never changes, checked; with ``stop`` that of its first part."""
        data = self.read_unchecked(file.name, stop=stop)
        if hashlib.sha256(data).hexdigest() != file.sum:
            raise InvalidFile(f"{self.path / file.name} is damaged: it fails its checksum")
        return data

    def read_unchecked(self, name: str, *, start: int = 0, stop: int | None = None) -> bytes:
        """The content of a file that the state needs, or a part of it."""
        try:
            return files.read(self.path / name, offset=start, stop=stop)
        except FileNotFoundError:
            raise InvalidFile(f"{self.path / name} is not there: the folder is incomplete") from None

    def create_pages(self, name: str, spare: str, *parts: Data) -> None:
        """Write the first page of something, synced, and make its spare; their names last with the next sync."""
        files.create(self.path / name, *parts)
        files.create(self.path / spare)

    @contextmanager
    def fill_spares(self) -> Iterator[Callable[..., None]]:
        """Yield a function that writes the spare page of something, ``fill(name, *parts)``; at the end all are synced.

        A spare that somebody removed is made again.
        """
        made = False

        def fill(name: str, *parts: Data) -> None:
            nonlocal made
            try:
                batch.fill(self.path / name, *parts)
            except FileNotFoundError:
                batch.create(self.path / name, *parts)
                made = True

        with files.SyncBatch() as batch:
            yield fill
        if made:
            files.sync_folder(self.path)

    def wipe_all_but(self, manifest: Manifest | None) -> None:
        """Wipe every file of ours that a manifest does not name, and remove all but its spares.

        Other people's files are left alone.
        """
        leftovers = self.find_leftovers(manifest)
        if tokens := [name for name in leftovers if name.startswith("training.")]:
            for name in tokens:  # before the rest is looked for: a worker that finds no token writes no more
                files.wipe(self.path / name)
            files.sync_folder(self.path)
            leftovers = self.find_leftovers(manifest)
        spares = set() if manifest is None else manifest.spares
        with files.SyncBatch() as batch:
            for name in spares.intersection(leftovers):
                batch.clear(self.path / name)
        for name in leftovers:
            if name not in spares:
                files.wipe(self.path / name)
        if not spares.issuperset(leftovers):
            files.sync_folder(self.path)

    def find_leftovers(self, manifest: Manifest | None) -> list[str]:
        """The files of ours that a manifest does not name, but for spares that are empty."""
        ours = [name for name in files.list_names(self.path) if _OWN_NAME.fullmatch(name)]
        if manifest is None:
            return ours
        names, spares = manifest.file_names, manifest.spares
        others = (name for name in ours if name not in names)
        return [name for name in others if name not in spares or not files.is_empty(self.path / name)]


def sha256_hex(*parts: Data) -> str:
    """The SHA-256 of a file's parts."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()
