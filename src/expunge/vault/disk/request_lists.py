"""Lists: the slots and people of long requests, in binary files beside the ledger.

The record of such a request has the SHA-256 of its file in the place of the lists, so that the ledger's chain of hashes
covers it. The file is written and synced before the request is accepted: from then on the request can be carried out by
whoever has the ledger and its lists, also on an old copy of the folder.

Until its request is accepted a list is a *draft*, and a mark in the folder (`listing.N`) names it, so that whoever
recovers from a crash knows what to wipe. Only drafts that a mark names are ever wiped. So an older copy of folder and
ledger, put back, cannot destroy a list of the newer ones: that is no draft any more, or the older folder does not name
it.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InvalidFile
from ...saving import files
from ...saving.files import Data
from ...saving.ownership import SiblingPath, VaultFolder
from ..ledger.records import LIST, Record

_MARK_NAME = re.compile(r"listing\.\d+")
_LIST_NAME = re.compile(r"\d{6,}-[0-9a-f]{64}")


class RequestLists:
    """The files of a vault, one per long request."""

    def __init__(self, folder: SiblingPath, vault: VaultFolder) -> None:
        self._folder, self._vault = folder, vault
        self._pending: str | None = None  # for a request that is not accepted yet

    def write(self, request: int, name: str, parts: Sequence[Data]) -> None:
        """Keep the lists of a request, as a draft, synced; one that is there and whole is another copy's, and stays."""
        path, self._pending = self._folder / name, None
        files.make_folder(self._folder, for_group=self._folder.for_group)
        files.sync_folder(self._folder.parent)  # who made it may have ended before its name was synced
        if path.exists() and _sha256(files.read(path)) == name.partition("-")[2]:
            return files.sync_folder(self._folder)
        files.create(self._vault / f"listing.{request}", name.encode())
        files.sync_folder(self._vault)
        draft, self._pending = files.draft_path(path), name
        files.wipe_draft(draft)
        files.create(draft, *parts)
        return files.sync_folder(self._folder)

    def discard(self) -> None:
        """Wipe what was made for a request that is not accepted."""
        made, self._pending = self._pending, None
        self._wipe_drafts([] if made is None else [made])

    def keep(self, names: Sequence[str]) -> None:
        """Give drafts their names, for good: their requests are accepted."""
        self._pending = None
        for name in self.find_drafts(names):
            files.system.rename(files.draft_path(self._folder / name), self._folder / name)
        if names:
            files.sync_folder(self._folder)

    def find_drafts(self, names: Iterable[str]) -> list[str]:
        """Those of which there is a draft."""
        return [name for name in names if files.is_draft(files.draft_path(self._folder / name))]

    def wipe_marked_drafts(self) -> None:
        """Wipe the drafts that marks in the folder name, once those of accepted requests have their names."""
        self._wipe_drafts(self._read_marks())

    def _read_marks(self) -> list[str]:
        """What the marks in the folder name. One that a crash cut short names nothing: there is no draft yet."""
        marks = [self._vault / name for name in files.list_names(self._vault) if _MARK_NAME.fullmatch(name)]
        said = [files.read(mark, stop=200).decode("ascii", "replace") for mark in marks]
        return [name for name in said if _LIST_NAME.fullmatch(name)]

    def _wipe_drafts(self, names: Iterable[str]) -> None:
        with suppress(InvalidFile, PermissionError, NotADirectoryError):  # in a folder that is not ours is nothing
            for name in self.find_drafts(names):
                files.wipe(files.draft_path(self._folder / name))
                files.sync_folder(self._folder)

    def read(self, name: str, size: int) -> bytes:
        """The lists of a request, checked."""
        path = self._folder / name
        data = self._read_bytes(path, size)
        if len(data) != size or _sha256(data) != name.partition("-")[2]:
            raise InvalidFile(f"{path} is damaged: it is not the list that the ledger tells of; put it back as it was")
        return data

    def _read_bytes(self, path: Path, size: int) -> bytes:
        for place in (path, files.draft_path(path)):  # a draft, if a crash came before it had its name
            with suppress(FileNotFoundError):
                return files.read(place, max_bytes=size)
        raise InvalidFile(f"{path} is not there: the ledger needs it to tell whom the request is about; put it back")


def list_file_name(request: int, sha256: str) -> str:
    """The name of the file of a request's lists, whose SHA-256 this is."""
    return f"{request:06}-{sha256}"


def list_file_names(records: Iterable[Record]) -> list[str]:
    """The files of lists that belong to the requests in these records."""
    names = [list_file_name(record.request, str(record.body[LIST])) for record in records if LIST in record.body]
    if not all(map(_LIST_NAME.fullmatch, names)):
        raise InvalidFile("the ledger is damaged: a record names a list as no vault does")
    return names


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
