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
from ...saving.own import Beside, VaultFolder
from ..ledger.records import LIST, Record

_MARK = re.compile(r"listing\.\d+")
_NAME = re.compile(r"\d{6,}-[0-9a-f]{64}")


class Lists:
    """The files of a vault, one per long request."""

    def __init__(self, folder: Beside, vault: VaultFolder) -> None:
        self._folder, self._vault = folder, vault
        self._made: str | None = None  # for a request that is not accepted yet

    def write(self, request: int, name: str, parts: Sequence[Data]) -> None:
        """Keep the lists of a request, as a draft, synced; one that is there and whole is another copy's, and stays."""
        path, self._made = self._folder / name, None
        files.make_folder(self._folder, for_group=self._folder.for_group)
        files.sync_folder(self._folder.parent)  # who made it may have ended before its name was synced
        if path.exists() and _sum(files.read(path)) == name.partition("-")[2]:
            return files.sync_folder(self._folder)
        files.create(self._vault / f"listing.{request}", name.encode())
        files.sync_folder(self._vault)
        draft, self._made = files.draft_of(path), name
        files.wipe_draft(draft)
        files.create(draft, *parts)
        return files.sync_folder(self._folder)

    def discard(self) -> None:
        """Wipe what was made for a request that is not accepted."""
        made, self._made = self._made, None
        self._wipe([] if made is None else [made])

    def keep(self, names: Sequence[str]) -> None:
        """Give drafts their names, for good: their requests are accepted."""
        self._made = None
        for name in self.drafts(names):
            files.system.rename(files.draft_of(self._folder / name), self._folder / name)
        if names:
            files.sync_folder(self._folder)

    def drafts(self, names: Iterable[str]) -> list[str]:
        """Those of which there is a draft."""
        return [name for name in names if files.is_draft(files.draft_of(self._folder / name))]

    def wipe_marked(self) -> None:
        """Wipe the drafts that marks in the folder name, once those of accepted requests have their names."""
        self._wipe(self._marked())

    def _marked(self) -> list[str]:
        """What the marks in the folder name. One that a crash cut short names nothing: there is no draft yet."""
        marks = [self._vault / name for name in files.names(self._vault) if _MARK.fullmatch(name)]
        said = [files.read(mark, stop=200).decode("ascii", "replace") for mark in marks]
        return [name for name in said if _NAME.fullmatch(name)]

    def _wipe(self, names: Iterable[str]) -> None:
        with suppress(InvalidFile, PermissionError, NotADirectoryError):  # in a folder that is not ours is nothing
            for name in self.drafts(names):
                files.wipe(files.draft_of(self._folder / name))
                files.sync_folder(self._folder)

    def read(self, name: str, size: int) -> bytes:
        """The lists of a request, checked."""
        path = self._folder / name
        data = self._bytes(path, size)
        if len(data) != size or _sum(data) != name.partition("-")[2]:
            raise InvalidFile(f"{path} is damaged: it is not the list that the ledger tells of; put it back as it was")
        return data

    def _bytes(self, path: Path, size: int) -> bytes:
        for place in (path, files.draft_of(path)):  # a draft, if a crash came before it had its name
            with suppress(FileNotFoundError):
                return files.read(place, most=size)
        raise InvalidFile(f"{path} is not there: the ledger needs it to tell whom the request is about; put it back")


def list_name(request: int, sum_: str) -> str:
    """The name of the file of a request's lists, whose SHA-256 this is."""
    return f"{request:06}-{sum_}"


def names_of(records: Iterable[Record]) -> list[str]:
    """The files of lists that belong to the requests in these records."""
    names = [list_name(record.request, str(record.body[LIST])) for record in records if LIST in record.body]
    if not all(map(_NAME.fullmatch, names)):
        raise InvalidFile("the ledger is damaged: a record names a list as no vault does")
    return names


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
