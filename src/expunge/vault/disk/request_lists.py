"""Lists: the slots and people of long requests, in binary files beside the ledger.

The record of a long request holds the SHA-256 of this file instead of the lists, so the ledger's chain of hashes covers
it. The file is written and synced before the request is accepted: from then on the ledger and its lists suffice to
carry the request out, also on an old copy of the folder.

Until its request is accepted, a list is a *draft*: a mark in the vault's folder (`listing.N`) names it, so that crash
recovery knows what to wipe. Only drafts that a mark names are ever wiped. If an older copy of folder and ledger is put
back, it therefore cannot destroy newer lists: they are no longer drafts, or the older folder does not name them.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...errors import InvalidFile
from ...saving import files
from ...saving.files import Data, VaultDir, VaultFile
from ...saving.ownership import SiblingPath
from ..ledger.records import LIST, Record

_MARK_NAME = re.compile(r"listing\.\d+")
_LIST_NAME = re.compile(r"\d{6,}-[0-9a-f]{64}")


class RequestLists:
    """The list files of a vault, one per long request."""

    def __init__(self, folder: SiblingPath, vault: VaultDir) -> None:
        self._folder, self._vault = VaultDir(folder), vault
        self._pending: str | None = None  # name of the list of a request that is not accepted yet

    def write(self, request: int, name: str, parts: Sequence[Data]) -> None:
        """Write the lists of a request as a draft, synced; a complete file of that name is another copy's and stays."""
        path, self._pending = self._folder / name, None
        self._folder.make()
        files.sync_folder(self._folder.path.parent)  # its maker may have ended before its name was synced
        if path.exists() and _sha256(files.read(path)) == name.partition("-")[2]:
            return self._folder.sync()
        files.create(self._vault / f"listing.{request}", name.encode())
        self._vault.sync()
        draft, self._pending = files.draft_path(path), name
        files.wipe_draft(draft)
        files.create(draft, *parts)
        return self._folder.sync()

    def discard(self) -> None:
        """Wipe the draft of a request that was not accepted."""
        name, self._pending = self._pending, None
        self._wipe_drafts([] if name is None else [name])

    def keep(self, names: Sequence[str]) -> None:
        """Rename drafts to their final names, durably: their requests are accepted."""
        self._pending = None
        for name in self.find_drafts(names):
            files.rename(files.draft_path(self._folder / name), self._folder / name)
        if names:
            self._folder.sync()

    def find_drafts(self, names: Iterable[str]) -> list[str]:
        """Return the names whose draft file exists."""
        return [name for name in names if files.is_draft(files.draft_path(self._folder / name))]

    def wipe_marked_drafts(self) -> None:
        """Wipe the drafts that marks name; call it after the drafts of accepted requests were renamed."""
        marks = [self._vault / name for name in self._vault.names() if _MARK_NAME.fullmatch(name)]
        names = [files.read(mark, stop=200).decode("ascii", "replace") for mark in marks]
        # A mark that a crash cut short names no list: its draft does not exist yet.
        self._wipe_drafts(name for name in names if _LIST_NAME.fullmatch(name))

    def _wipe_drafts(self, names: Iterable[str]) -> None:
        with suppress(InvalidFile, PermissionError, NotADirectoryError):  # a foreign folder has no draft of ours
            for name in self.find_drafts(names):
                files.wipe(files.draft_path(self._folder / name))
                self._folder.sync()

    def read(self, name: str, size: int) -> bytes:
        """Read the lists of a request, and verify them."""
        path = self._folder / name
        data = self._read_bytes(path, size)
        if len(data) != size or _sha256(data) != name.partition("-")[2]:
            raise InvalidFile(f"{path} is damaged: it does not match the ledger; restore the original file")
        return data

    def _read_bytes(self, path: VaultFile, size: int) -> bytes:
        for file in (path, files.draft_path(path)):  # still a draft if a crash came before it was renamed
            with suppress(FileNotFoundError):
                return files.read(file, max_bytes=size)
        raise InvalidFile(f"{path} is missing: it lists the people of a request in the ledger; restore it")


def list_file_name(request: int, sha256: str) -> str:
    """Return the name of the file with a request's lists, which have this SHA-256."""
    return f"{request:06}-{sha256}"


def list_file_names(records: Iterable[Record]) -> list[str]:
    """Return the names of the list files of the requests in these records."""
    names = [list_file_name(record.request, str(record.body[LIST])) for record in records if LIST in record.body]
    if not all(map(_LIST_NAME.fullmatch, names)):
        raise InvalidFile("the ledger is damaged: a record has an invalid list name")
    return names


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
