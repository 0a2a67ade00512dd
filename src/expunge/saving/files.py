"""Files: every operation on the disk, made durable.

All operations go through `system`, a few thin methods that a test can replace: by a disk that fails, that forgets what
was not synced, or that counts. Nothing here follows a symbolic link or opens anything but plain files. A file at a
guarded path (see `ownership`) is checked before it is used.
"""

import errno
import mmap
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from ..errors import InvalidFile
from .ownership import ContainedPath, ExternalKeyPath, GuardedPath

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Data: TypeAlias = bytes | memoryview

_ZEROS = memoryview(bytes(2**20))  # written at once
_MAX_OPEN_FILES = 16  # open files in a batch
_GROUP_FILE_MODE, _GROUP_FOLDER_MODE = 0o640, 0o2750  # setgid: files made in the folder later have the same group
_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))  # where defined


class SyncFailed(OSError):
    """Data that was written may be lost although it can still be read back: open the vault again."""


class System:
    """The operations themselves."""

    def open(self, path: Path, flags: int, mode: int = 0o600, folder: int | None = None) -> int:
        return os.open(path if folder is None else path.name, flags | _FLAGS, mode, dir_fd=folder)

    def open_folder(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def read(self, fd: int, count: int, offset: int) -> bytes:
        return os.pread(fd, count, offset)

    def write(self, fd: int, data: Data, offset: int) -> int:
        if os.name == "posix":
            return os.pwrite(fd, data, offset)
        os.lseek(fd, offset, os.SEEK_SET)  # models can be saved on other systems as well; vaults cannot
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def reserve(self, fd: int, start: int, stop: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, start, stop - start)

    def sync(self, fd: int) -> None:
        if sys.platform == "darwin" and _sync_to_drive(fd):  # fsync leaves data in the drive's cache on macOS
            return
        os.fsync(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path) -> None:
        path.mkdir(mode=0o700)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def map(self, fd: int, size: int) -> mmap.mmap:
        return mmap.mmap(fd, size, prot=mmap.PROT_READ)

    def lock(self, fd: int) -> None:
        import fcntl  # not on every system, and only a vault locks

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, fd: int) -> None:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)


system = System()

_sync_pool: "tuple[int, ThreadPoolExecutor] | None" = None  # the process id, and its threads for syncs


class _OpenFolders(threading.local):
    """The folders that this thread keeps open, by path."""

    def __init__(self) -> None:
        self.folders: dict[str, int] = {}


_open_folders = _OpenFolders()


def _sync_to_drive(fd: int) -> bool:
    """Flush a file to the medium with Apple's F_FULLFSYNC; return False if the file system does not support it."""
    import fcntl

    try:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]  # only on Apple's systems
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            return False
        raise
    return True


@contextmanager
def open_file(path: Path, flags: int = os.O_RDONLY, *, shared: bool = False) -> Iterator[int]:
    """Open a plain file in a ``with`` statement. A new one is private, or ``shared`` as far as the umask allows."""
    fd = _open(path, flags, 0o666 if shared else 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidFile(f"{path} is not a plain file")
        if isinstance(path, GuardedPath):
            path.check(status)
            if flags & os.O_CREAT and path.for_group and stat.S_IMODE(status.st_mode) != _GROUP_FILE_MODE:
                system.chmod(fd, _GROUP_FILE_MODE)
        yield fd
    finally:
        _close(fd)


def _close(fd: int) -> None:
    """Close a file, ignoring errors: it is closed anyway, and data that must last was synced before."""
    try:  # noqa: SIM105 - called often, and this is faster
        os.close(fd)
    except OSError:
        pass


def _open(path: Path, flags: int, mode: int) -> int:
    """Open a file; a guarded one relative to its folder, which is checked."""
    try:
        if isinstance(path, ContainedPath):
            if (held := _open_folders.folders.get(path.folder_path)) is not None:
                return system.open(path, flags, mode, held)
            folder = _open_folder(path.parent)
            try:
                path.check_folder(os.fstat(folder))
                return system.open(path, flags, mode, folder)
            finally:
                _close(folder)
        return system.open(path.resolve() if isinstance(path, ExternalKeyPath) else path, flags, mode)
    except OSError as error:
        error.filename = str(path)
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise InvalidFile(f"{path} is not a plain file; a vault follows no links") from error
        if isinstance(path, GuardedPath) and isinstance(error, PermissionError):
            path.check_existing()
        if error.errno == errno.EROFS:  # callers treat all reasons for not writing alike
            raise PermissionError(error.errno, error.strerror, error.filename) from error
        raise


def _open_folder(path: Path) -> int:
    try:
        return system.open_folder(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise InvalidFile(f"{path} is not a folder or is a symbolic link; a vault follows no links") from error
        raise


@contextmanager
def open_folder(path: GuardedPath) -> Iterator[int]:
    """Open a folder of a vault in a ``with`` statement."""
    try:
        fd = _open_folder(path)
    except PermissionError:
        path.check_existing()  # raises an error with the owner and the fix
        raise
    try:
        path.check(os.fstat(fd))
        yield fd
    finally:
        _close(fd)


@contextmanager
def keep_folder_open(path: GuardedPath) -> Iterator[bool]:
    """Keep a folder of a vault open, so that this thread opens files in it without checking the folder again.

    Yields whether the folder is open. If it cannot be opened or fails the check, opening a file in it raises the error.
    """
    before = _open_folders.folders.get(str(path))
    with ExitStack() as opened_now:
        with suppress(OSError, InvalidFile):
            _open_folders.folders[str(path)] = opened_now.enter_context(open_folder(path))
        try:
            yield str(path) in _open_folders.folders
        finally:
            _open_folders.folders.pop(str(path), None)
            if before is not None:
                _open_folders.folders[str(path)] = before


def make_folder(path: GuardedPath, *, for_group: bool, synced: bool = True) -> None:
    """Make a folder for its owner alone, or readable by its group; an existing one must be ours.

    Without ``synced`` the new folder may be lost in a crash: for derived data.
    """
    is_new = False
    with suppress(FileExistsError):
        if not path.is_dir():
            system.mkdir(path)
            is_new = True
    with open_folder(path) as fd:
        if is_new and for_group:
            system.chmod(fd, _GROUP_FOLDER_MODE)
    if is_new and synced:
        sync_folder(path.parent)


def list_names(path: GuardedPath) -> list[str]:
    """Return the names in a folder of a vault."""
    if str(path) in _open_folders.folders:
        return system.names(path)
    with open_folder(path):
        return system.names(path)


def file_size(fd: int) -> int:
    """Return the length of an open file."""
    return os.fstat(fd).st_size


def read(path: Path, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None) -> bytes:
    """Read a file from ``offset`` to ``stop``; refuse more than ``max_bytes``."""
    with open_file(path) as fd:
        return read_open_file(fd, path, offset=offset, max_bytes=max_bytes, stop=stop)


def read_open_file(
    fd: int, path: Path, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None
) -> bytes:
    """Read an open file, as `read` does."""
    left = (file_size(fd) if stop is None else min(stop, file_size(fd))) - offset
    if max_bytes is not None and left > max_bytes:
        raise InvalidFile(f"{path} has {left:,} bytes where at most {max_bytes:,} are expected")
    parts = []
    while left > 0 and (part := system.read(fd, left, offset)):
        parts.append(part)
        offset, left = offset + len(part), left - len(part)
    return b"".join(parts)


def check_size(path: Path, size: int) -> None:
    """Refuse a file that is missing or shorter than ``size``."""
    try:
        actual = os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        raise InvalidFile(f"{path} is not there: the folder is incomplete") from None
    if actual < size:
        raise InvalidFile(f"{path} is cut short: {actual:,} bytes where {size:,} are expected")


def map_file(path: Path, size: int) -> memoryview:
    """Map the first ``size`` bytes of a file as read-only memory; refuse a shorter file."""
    with open_file(path) as fd:
        if file_size(fd) < size:
            raise InvalidFile(f"{path} is cut short: {file_size(fd):,} bytes where {size:,} are expected")
        return memoryview(system.map(fd, size)) if size else memoryview(b"")


def write_parts(fd: int, parts: Iterable[Data]) -> None:
    """Write parts one after the other, from the start of a file."""
    offset = 0
    for part in parts:
        write_all(fd, part, offset)
        offset += memoryview(part).nbytes


def write_all(fd: int, data: Data, offset: int) -> None:
    """Write all data at an offset, in as many calls as needed."""
    view = memoryview(data).cast("B")
    while len(view):
        written = system.write(fd, view, offset)
        offset, view = offset + written, view[written:]


def sync(fd: int) -> None:
    """Sync an open file or folder."""
    try:
        system.sync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, f"could not be synced: {error.strerror}") from error


def sync_several(fds: Sequence[int]) -> None:
    """Sync several open files, in parallel: that takes a disk about as long as one sync."""
    global _sync_pool
    tasks = list["Future[None]"]()
    if len(fds) > 1 and type(system) is System:  # a disk that stands in for the real one sees one call at a time
        from concurrent.futures import ThreadPoolExecutor, wait  # here: commands that only read do without threads

        try:
            if _sync_pool is None or _sync_pool[0] != os.getpid():  # a child has none of its parent's threads
                _sync_pool = os.getpid(), ThreadPoolExecutor(_MAX_OPEN_FILES, "expunge-sync")
            tasks = [_sync_pool[1].submit(sync, fd) for fd in fds]
            wait(tasks)
        except BaseException as error:
            # No thread can be started, or an interrupt: the files are closed next, and no thread may sync them then.
            pool, _sync_pool = _sync_pool, None
            if pool is not None:
                pool[1].shutdown(cancel_futures=True)  # waits for syncs that are running
            if not isinstance(error, RuntimeError):
                raise
    for fd, task in zip_longest(fds, tasks):
        if task is None or task.cancelled():  # cancelled by another thread that was interrupted
            sync(fd)
        else:
            task.result()


def sync_folder(path: Path) -> None:
    """Sync a folder, so that new, renamed and removed names last."""
    if os.name != "posix":
        return
    real = path.resolve() if path.is_symlink() else path  # a user may save a model through a link to a folder
    fd = system.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        _close(fd)


def create(path: Path, *parts: Data) -> None:
    """Write a new file, synced unless it is empty; the next `sync_folder` makes its name durable."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        if parts:
            write_parts(fd, parts)
            sync(fd)


def create_if(check: Callable[[], None], path: Path, *parts: Data) -> None:
    """Write a new file, synced. If ``check`` then fails, overwrite it with zeros, even if it was renamed meanwhile."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd, zero_on_error(fd):
        write_parts(fd, parts)
        sync(fd)
        check()


@contextmanager
def zero_on_error(fd: int) -> Iterator[None]:
    """Overwrite an open file with zeros if the ``with`` block fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            zero_all(fd)
        raise


class SyncBatch:
    """Files that are written one after the other and synced together, at the latest when the batch ends.

    Used in a ``with`` statement. If an error ends it, files that were not synced yet stay as they are.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._fds, self._cleared = list[int](), list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self._sync()

    def fill(self, path: Path, *parts: Data) -> None:
        """Write to an existing empty file."""
        fd = self._add(path, os.O_WRONLY)
        if file_size(fd):
            raise InvalidFile(f"{path} is not empty: open the vault again")
        write_parts(fd, parts)

    def create(self, path: Path, *parts: Data) -> None:
        """Write a new file; the next `sync_folder` makes its name durable."""
        write_parts(self._add(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), parts)

    def clear(self, path: Path) -> None:
        """Overwrite a file with zeros and, after they are synced, truncate it.

        If a power cut undoes the last step, the file still has only zeros.
        """
        fd = self._add(path, os.O_WRONLY)
        _zero(fd, 0, file_size(fd))
        self._cleared.append(fd)

    def _add(self, path: Path, flags: int) -> int:
        if len(self._fds) == _MAX_OPEN_FILES:
            self._sync()
        fd = self._open.enter_context(open_file(path, flags))
        self._fds.append(fd)
        return fd

    def _sync(self) -> None:
        sync_several(self._fds)
        for fd in self._cleared:
            system.truncate(fd, 0)
        self._fds.clear()
        self._cleared.clear()
        self._open.close()


def put(path: Path, *parts: Data) -> None:
    """Replace a file atomically and durably."""
    new = draft_path(path)
    wipe_draft(new)
    with replace_file(path, new) as replacement:
        write_parts(replacement.fd, parts)
        replacement.commit()


def draft_path(path: Path) -> Path:
    """Return the path of the draft that is written before it replaces a file."""
    return path.with_name(f"{path.name}.new")


def is_draft(path: Path) -> bool:
    """Whether a draft exists. A link to another file does not count: wiping it would destroy that file."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def wipe_draft(path: Path) -> None:
    """Wipe the draft of an interrupted process; refuse anything else of that name."""
    if not os.path.lexists(path):
        return
    if is_draft(path):
        wipe(path)
    else:
        raise InvalidFile(f"{path} is a symbolic or hard link to another file: remove it")


@dataclass
class Replacement:
    """A file that is being written beside the one it will replace."""

    fd: int
    _committed: bool = False

    def commit(self) -> None:
        """Sync the file; it takes its place at the end of `replace_file`."""
        sync(self.fd)
        self._committed = True


@contextmanager
def replace_file(path: Path, beside: Path, *, shared: bool = False) -> Iterator[Replacement]:
    """Write a new file that replaces another atomically and durably; if it is not committed, it is wiped."""
    mine = placed = False  # a file that already exists at ``beside`` belongs to another process
    try:
        with open_file(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, shared=shared) as fd:
            mine, new = True, Replacement(fd)
            yield new
        if new._committed:
            system.rename(beside, path)
            placed = True
    finally:
        if mine and not placed:
            _discard(beside)
    if placed:
        sync_folder(path.parent)


def _discard(path: Path) -> None:
    """Wipe a file that is not needed; if it cannot be wiped, remove it anyway."""
    with suppress(OSError):
        wipe(path)
    if path.exists():
        with suppress(OSError):
            system.unlink(path)


def overwrite(path: Path, pieces: Iterable[tuple[int, Data]]) -> None:
    """Write pieces into a file, each at its offset, and sync."""
    with open_file(path, os.O_WRONLY) as fd:
        for offset, data in pieces:
            write_all(fd, data, offset)
        sync(fd)


def resize(path: Path, size: int) -> None:
    """Truncate a file or extend it with zeros, and sync. A part that is cut off is overwritten first."""
    with open_file(path, os.O_WRONLY) as fd:
        if size < (old_size := file_size(fd)):
            _zero(fd, size, old_size)
            sync(fd)
        system.truncate(fd, size)
        sync(fd)


def lengthen(path: Path, start: int, size: int) -> None:
    """Extend a file with zeros up to ``size``, allocate disk space from ``start`` on, and sync.

    On some file systems (tmpfs) reading a hole in a mapped file allocates space: if none is left, the system would
    kill the process.
    """
    with open_file(path, os.O_WRONLY) as fd:
        if file_size(fd) < size:
            system.truncate(fd, size)
        if start < size:
            try:
                system.reserve(fd, start, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
        sync(fd)


def wipe(path: Path) -> None:
    """Overwrite a file with zeros, sync, and remove it, if it exists. `sync_folder` makes the removal durable."""
    with suppress(FileNotFoundError):
        with open_file(path, os.O_WRONLY) as fd:
            zero_all(fd)
        system.unlink(path)


def is_empty(path: Path) -> bool:
    """Whether a plain file exists and is empty; refuse a file that is not ours."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if isinstance(path, GuardedPath):
        path.check(status)
    return stat.S_ISREG(status.st_mode) and not status.st_size


def zero_all(fd: int) -> None:
    """Overwrite an open file with zeros, and sync."""
    if size := file_size(fd):
        _zero(fd, 0, size)
        sync(fd)


def _zero(fd: int, start: int, stop: int) -> None:
    for offset in range(start, stop, len(_ZEROS)):
        write_all(fd, _ZEROS[: stop - offset], offset)
