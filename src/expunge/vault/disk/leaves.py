"""Leaves: the commitments to everybody in a request, beside the ledger, so that a lost receipt can be issued again.

The root of the tree over them is in the ledger's record, so the file needs no checksum of its own, and without the
vault's key it tells nothing. A request of one person needs no file: whoever names the id has the only leaf.
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

    def write(self, request: int, leaves: Sequence[bytes]) -> None:
        """Keep the leaves of a request, synced."""
        if len(leaves) < 2:
            return
        files.make_folder(self._folder, for_group=self._folder.for_group)
        files.put(self._path(request), b"".join(leaves))

    def read(self, request: int) -> list[bytes]:
        """The leaves of a request of several people."""
        path = self._path(request)
        try:
            data = files.read(path)
        except FileNotFoundError:
            raise InvalidFile(f"{path} is not there: without it no receipt of request {request} can be made") from None
        return [data[k : k + _BYTES] for k in range(0, len(data), _BYTES)]

    def wipe(self, request: int) -> None:
        """Remove the leaves of a request that was not accepted, also those that are half written.

        In a folder that is not ours there are none, and nothing has to wait until it is gone.
        """
        path = self._path(request)
        with suppress(InvalidFile, PermissionError, NotADirectoryError):
            left = [one for one in (path, files.draft_of(path)) if files.is_draft(one)]
            for one in left:
                files.wipe(one)
            if left:
                files.sync_folder(self._folder)

    def _path(self, request: int) -> Path:
        return self._folder / f"{request:06}"
