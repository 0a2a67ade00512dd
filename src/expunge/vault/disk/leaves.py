"""Leaves: the commitments to everybody in a request, beside the ledger, so that a lost receipt can be issued again.

The root of the tree over them is in the ledger's record and in the file's name, so the file needs no checksum of its
own; without the vault's key it tells nothing. A request of one person needs no file: whoever names the id has the only
leaf. No file is ever replaced or removed by another request: an older copy of folder and ledger, put back, must not
destroy what belongs to the newer ones.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InvalidFile
from ...saving import files
from ...saving.own import Beside

_BYTES = 32


class Leaves:
    """The files of a vault, one per request of several people."""

    def __init__(self, folder: Beside) -> None:
        self._folder = folder
        self._made: Path | None = None  # for a request that is not accepted yet

    def write(self, request: int, root: str, leaves: Sequence[bytes]) -> None:
        """Keep the leaves of a request, synced."""
        if len(leaves) < 2:
            return
        files.make_folder(self._folder, for_group=self._folder.for_group)
        path = self._path(request, root)
        self._made = None if path.exists() else path
        files.put(path, b"".join(leaves))

    def keep(self) -> None:
        """The request is accepted."""
        self._made = None

    def discard(self) -> None:
        """Wipe what was made for a request that is not accepted, also what is half written."""
        path, self._made = self._made, None
        if path is not None:
            with suppress(InvalidFile, PermissionError, NotADirectoryError):  # in a folder that is not ours is nothing
                for one in filter(files.is_draft, (path, files.draft_of(path))):
                    files.wipe(one)
                files.sync_folder(self._folder)

    def read(self, request: int, root: str) -> list[bytes]:
        """The leaves of a request of several people."""
        path = self._path(request, root)
        try:
            data = files.read(path)
        except FileNotFoundError:
            raise InvalidFile(f"{path} is not there: without it no receipt of request {request} can be made") from None
        return [data[k : k + _BYTES] for k in range(0, len(data), _BYTES)]

    def _path(self, request: int, root: str) -> Path:
        return self._folder / f"{request:06}-{root[:16]}"
