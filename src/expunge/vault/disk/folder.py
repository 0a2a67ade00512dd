"""The folder of a vault: where its files are, which of them count, and how the others are removed.

The file `current` has two lines, one per page of the manifest, each naming the request that its page belongs to. The
page of the newer request counts. A commit overwrites the line of the other page in place: no rename, and no sync of the
folder. A write that was cut short leaves a line that fails its checksum; then the other line counts, as before. The
file holds only numbers, no secrets.
"""

import hashlib
import hmac
import json
import re
import secrets
import uuid
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from ...errors import InvalidFile, InvalidSetting
from ...saving import files
from ...saving.files import Data, Location, VaultDir
from ...saving.ownership import PrivateSiblingPath, SiblingPath, VaultFolder
from .manifest import MAX_MANIFEST_BYTES, ImmutableFile, Manifest

_POINTER_LINE = re.compile(rb"request ([1-9]\d{0,11}) [0-9a-f]{8} *")
_OLD_POINTER = re.compile(rb"manifest\.[1-9]\d*[\n ].*", re.DOTALL)  # before manifests had version 7
_POINTER_BYTES = 32
NO_POINTER = b" " * (_POINTER_BYTES - 1) + b"\n"


def pointer_line(request: int) -> bytes:
    """Return the line of `current` that names a request."""
    name = f"request {request}"
    return f"{name} {hashlib.sha256(name.encode()).hexdigest()[:8]}".ljust(_POINTER_BYTES - 1).encode() + b"\n"


def parse_pointers(data: bytes, path: Location) -> tuple[int, int]:
    """Return the requests that the two lines of `current` name, 0 for a line that names none."""
    if _OLD_POINTER.fullmatch(data):
        raise InvalidFile(f"{path} is of an older version: use the release that made it, or train the vault again")
    requests = _parse_pointer_line(data[:_POINTER_BYTES]), _parse_pointer_line(data[_POINTER_BYTES:])
    if not any(requests) or len(data) != 2 * _POINTER_BYTES:
        raise InvalidFile(f"{path} is damaged")
    return requests


def _parse_pointer_line(line: bytes) -> int:
    match = _POINTER_LINE.fullmatch(line[:-1])
    return int(match[1]) if match is not None and line == pointer_line(int(match[1])) else 0


_STATE_STEMS = "rows|live|people|schema|blueprint|learner|manifest"
_TEMPORARY_STEMS = "owners|stage|adding|listing|training"  # exist only while a request is prepared or carried out
_OWN_NAME = re.compile(rf"({_STATE_STEMS}|{_TEMPORARY_STEMS})(\.\d+)+|current\.new")
_KEY_BYTES = 32


@dataclass(frozen=True)
class VaultPaths:
    """The paths of a vault: its folder, and what lies beside it, so that an old copy of the folder cannot undo it."""

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
        """Return the paths of the vault at ``path``, which ends in ``.vault``."""
        vault = VaultFolder(path)
        if vault.suffix != ".vault" or vault.name == ".vault":
            raise InvalidSetting(f"a vault is a folder whose name ends in .vault, got {vault.name!r}")
        if vault.is_symlink():
            raise InvalidFile(f"{vault} is a symbolic link: name the folder itself, because its ledger is beside it")
        if vault.exists() and not vault.is_dir():
            raise InvalidFile(f"{vault} exists and is not a folder")
        key = PrivateSiblingPath(vault.with_suffix(".key"))
        ends = (".ledger", ".pub", ".certificates", ".leaves", ".lists", ".index")
        ledger, public, certificates, leaves, lists, index = (SiblingPath(vault.with_suffix(end)) for end in ends)
        return cls(vault, ledger, key, public, certificates, leaves, lists, index)

    def check(self) -> None:
        """Refuse files that others planted. Before the first training every file must belong to this user."""
        mine = not (self.vault / "current").exists()
        for field in fields(self):
            getattr(self, field.name).check_existing(mine=mine)


def queue_folder(vault: Path) -> PrivateSiblingPath:
    """Return the folder of a vault's service, beside the ledger."""
    return PrivateSiblingPath(vault.with_suffix(".queue"))


@dataclass(frozen=True)
class VaultIdentity:
    """The name of a vault, and the key with which its ids are hashed."""

    vault: str
    key: bytes

    @classmethod
    def generate(cls) -> "VaultIdentity":
        """Return the identity of a new vault."""
        return cls(str(uuid.uuid4()), secrets.token_bytes(_KEY_BYTES))

    @property
    def seal(self) -> bytes:
        """The bytes that are mixed into the checksums of this vault's rows and people."""
        return uuid.UUID(self.vault).bytes

    @property
    def sum(self) -> str:
        """A checksum: with a damaged key nobody would be found, and erased ids could return."""
        return hashlib.sha256(self.vault.encode() + self.key).hexdigest()

    def derive_key(self, purpose: str) -> bytes:
        """Return a 32-byte key for one purpose: HKDF-SHA256 (RFC 5869) of the vault's key, without a salt."""
        prk = hmac.digest(bytes(32), self.key, "sha256")
        return hmac.digest(prk, f"expunge {purpose}".encode() + b"\x01", "sha256")


class Folder:
    """The files in the folder of a vault. `dir` is the handle through which they are opened."""

    def __init__(self, path: Path) -> None:
        self.path = VaultFolder(path)
        self.dir = VaultDir(self.path)
        self._cached_identity: tuple[bytes, VaultIdentity] | None = None  # the file as last read, parsed

    def read_identity(self) -> VaultIdentity:
        """Read the identity of the vault."""
        file = self.dir / "identity.json"
        try:
            data = files.read(file, max_bytes=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise InvalidFile(f"{file} is missing: {self.path} is not a vault, or incomplete") from None
        if self._cached_identity is not None and self._cached_identity[0] == data:
            return self._cached_identity[1]
        try:
            content = json.loads(data)
            identity = VaultIdentity(str(uuid.UUID(content["vault"])), bytes.fromhex(content["key"]))
            if content["sum"] != identity.sum or len(identity.key) != _KEY_BYTES:
                raise ValueError("it fails its checksum")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidFile(f"{file} is damaged, or does not belong to a vault") from error
        self._cached_identity = data, identity
        return identity

    def write_identity(self, identity: VaultIdentity) -> None:
        """Write the identity of the vault, once."""
        content = {"vault": identity.vault, "key": identity.key.hex(), "sum": identity.sum}
        files.wipe(self.dir / "identity.json")
        files.create(self.dir / "identity.json", json.dumps(content).encode())
        self.dir.sync()

    def read_current_manifest(self) -> Manifest | None:
        """Return the live manifest; None if no training was ever finished."""
        while (pointer := self._read_current_pointer()) is not None:
            try:
                return self._read_manifest(*pointer)
            except InvalidFile:
                if self._read_current_pointer() == pointer:  # else a writer went on, and wiped the page being read
                    raise
        return None

    def _read_current_pointer(self) -> tuple[int, int] | None:
        """Return the page of the live manifest, and its request."""
        file = self.dir / "current"
        try:
            requests = parse_pointers(files.read(file, max_bytes=100), file)
        except FileNotFoundError:
            return None
        return requests.index(max(requests)), max(requests)

    def _read_manifest(self, page: int, request: int) -> Manifest:
        file = self.dir / f"manifest.{page}"
        try:
            data = files.read(file, max_bytes=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise InvalidFile(f"{self.path} is incomplete: current names {file.name}, which is missing") from None
        manifest = Manifest.from_bytes(data, file)
        if (manifest.page, manifest.request) != (page, request):
            raise InvalidFile(f"{file} is the manifest of another request")
        return manifest

    def read_prepared_manifest(self, request: int) -> Manifest | None:
        """Return the manifest of a request that was accepted but not committed, if it is there and complete."""
        for page in range(2):
            with suppress(FileNotFoundError, InvalidFile):
                return self._read_manifest(page, request)
        return None

    def commit(self, manifest: Manifest) -> None:
        """Make this manifest the live one."""
        file, line = self.dir / "current", pointer_line(manifest.request)
        try:
            files.overwrite(file, [(manifest.page * len(line), line)])
        except FileNotFoundError:
            files.put(file, *((line, NO_POINTER) if manifest.page == 0 else (NO_POINTER, line)))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, durably."""
        files.rename(self.dir / old, self.dir / new)
        self.dir.sync()

    def write(self, name: str, *parts: Data) -> ImmutableFile:
        """Write a new file that will never change, and sync it."""
        files.create(self.dir / name, *parts)
        return ImmutableFile(name, sha256_hex(*parts))

    def read(self, file: ImmutableFile, *, stop: int | None = None) -> bytes:
        """Read a file that never changes, or its bytes up to ``stop``, and verify its checksum."""
        data = self.read_unchecked(file.name, stop=stop)
        if hashlib.sha256(data).hexdigest() != file.sum:
            raise InvalidFile(f"{self.dir / file.name} is damaged: it fails its checksum")
        return data

    def read_unchecked(self, name: str, *, start: int = 0, stop: int | None = None) -> bytes:
        """Read a file that the state needs, or a part of it."""
        try:
            return files.read(self.dir / name, offset=start, stop=stop)
        except FileNotFoundError:
            raise InvalidFile(f"{self.dir / name} is missing: the folder is incomplete") from None

    def create_pages(self, name: str, spare: str, *parts: Data) -> None:
        """Write a first page, synced, and create its spare; the next sync of the folder makes the names durable."""
        files.create(self.dir / name, *parts)
        files.create(self.dir / spare)

    def wipe_all_but(self, manifest: Manifest | None) -> None:
        """Wipe all of the vault's own files that a manifest does not name, and remove them, except its spares.

        Files of other people are left alone.
        """
        leftovers = self.find_leftovers(manifest)
        if tokens := [name for name in leftovers if name.startswith("training.")]:
            for name in tokens:  # before the others are listed: a worker that finds no token writes no more
                files.wipe(self.dir / name)
            self.dir.sync()
            leftovers = self.find_leftovers(manifest)
        spares = set() if manifest is None else manifest.spares
        with files.SyncBatch() as batch:
            for name in spares.intersection(leftovers):
                batch.clear(self.dir / name)
        for name in leftovers:
            if name not in spares:
                files.wipe(self.dir / name)
        if not spares.issuperset(leftovers):
            self.dir.sync()

    def find_leftovers(self, manifest: Manifest | None) -> list[str]:
        """Return the vault's own files that a manifest does not name, except for empty spares."""
        own_names = [name for name in self.dir.names() if _OWN_NAME.fullmatch(name)]
        if manifest is None:
            return own_names
        named, spares = manifest.file_names, manifest.spares
        leftovers = [name for name in own_names if name not in named]
        sizes = self.dir.sizes(name for name in leftovers if name in spares)
        return [name for name in leftovers if sizes.get(name) != 0]


def sha256_hex(*parts: Data) -> str:
    """Return the SHA-256 of a file's parts."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()
