"""Leaves: the commitments to everybody in a request, beside the ledger, so that a lost receipt can be issued again.

The root of the tree over them is in the ledger's record, so the file needs no checksum of its own, and without the
vault's key it tells nothing. A request of one person needs no file: whoever names the id has the only leaf.
"""

from collections.abc import Sequence
from pathlib import Path

from ...errors import InvalidFile
from ...saving import files

_BYTES = 32


class Leaves:
    """The files of a vault, one per request of several people."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, request: int, leaves: Sequence[bytes]) -> None:
        """Keep the leaves of a request, synced."""
        if len(leaves) < 2:
            return
        if not self._folder.is_dir():
            files.system.mkdir(self._folder)
            files.sync_folder(self._folder.parent)
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
        """Remove the leaves of a request that was not accepted, also those that are half written."""
        path = self._path(request)
        for one in (path, path.with_name(f"{path.name}.new")):
            if one.exists():
                files.wipe(one)

    def _path(self, request: int) -> Path:
        return self._folder / f"{request:06}"
