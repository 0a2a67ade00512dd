"""Files: every operation on the disk, and what it takes to make one last.

All of them go through `system`, a handful of thin methods, so that a test can put another in its place: one that fails,
or forgets what was not synced, or keeps count. Nothing here follows a symbolic link or opens anything but plain files.
What is opened at a guarded path (`own`) is checked before it is used.
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
_MAX_OPEN_FILES = 16  # files that are open at once
_GROUP_FILE_MODE, _GROUP_FOLDER_MODE = 0o640, 0o2750  # 2: what is made in it later is the same group's
_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))  # if there are


class SyncFailed(OSError):
    """What was written may be lost although it can still be read back: trust nothing, open the vault anew."""


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
        os.lseek(fd, offset, os.SEEK_SET)  # a saved model is written on other systems, too; a vault is not
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def reserve(self, fd: int, start: int, stop: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, start, stop - start)

    def sync(self, fd: int) -> None:
        if sys.platform == "darwin" and _sync_to_drive(fd):  # fsync leaves data in the drive's own cache there
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
        import fcntl  # not on every system; only a vault locks

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, fd: int) -> None:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)


system = System()

_sync_pool: "tuple[int, ThreadPoolExecutor] | None" = None  # the process that has threads for syncs, and these


class _OpenFolders(threading.local):
    """The folders that this thread keeps open, by their paths."""

    def __init__(self) -> None:
        self.folders: dict[str, int] = {}


_open_folders = _OpenFolders()


def _sync_to_drive(fd: int) -> bool:
    """Flush a file down to the medium, as Apple's F_FULLFSYNC does; False where the file system has no such call."""
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
    """Open a plain file for a while. A new one is its owner's alone, unless it is shared: then the umask decides."""
    fd = _open(path, flags, 0o666 if shared else 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidFile(f"{path} is not a plain file")
        if isinstance(path, GuardedPath):
            path.check(found)
            if flags & os.O_CREAT and path.for_group and stat.S_IMODE(found.st_mode) != _GROUP_FILE_MODE:
                system.chmod(fd, _GROUP_FILE_MODE)
        yield fd
    finally:
        _close(fd)


def _close(fd: int) -> None:
    """Close a file. An error changes nothing: it is closed all the same, and what must last was synced before."""
    try:  # noqa: SIM105 - it is called often, and this is faster
        os.close(fd)
    except OSError:
        pass


def _open(path: Path, flags: int, mode: int) -> int:
    """Open a file, in the folder that was checked if it is guarded."""
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
        if error.errno == errno.EROFS:  # to those who cannot write it is all the same why
            raise PermissionError(error.errno, error.strerror, error.filename) from error
        raise


def _open_folder(path: Path) -> int:
    try:
        return system.open_folder(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise InvalidFile(f"{path} is not a folder, or a symbolic link; a vault follows no links") from error
        raise


@contextmanager
def open_folder(path: GuardedPath) -> Iterator[int]:
    """Open a folder of a vault for a while."""
    try:
        fd = _open_folder(path)
    except PermissionError:
        path.check_existing()  # says whose it is, and what mends that
        raise
    try:
        path.check(os.fstat(fd))
        yield fd
    finally:
        _close(fd)


@contextmanager
def keep_folder_open(path: GuardedPath) -> Iterator[bool]:
    """Keep a folder of a vault open for a while: this thread opens files in it without another look at the folder.

    Yields whether it is. If it cannot be opened, or is not ours, then whoever opens a file in it says so.
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
    """Make a folder for its owner alone, or for its group to read as well; one that is there must be ours.

    Without ``synced`` its name may not last: for derived data.
    """
    made = False
    with suppress(FileExistsError):
        if not path.is_dir():
            system.mkdir(path)
            made = True
    with open_folder(path) as fd:
        if made and for_group:
            system.chmod(fd, _GROUP_FOLDER_MODE)
    if made and synced:
        sync_folder(path.parent)


def list_names(path: GuardedPath) -> list[str]:
    """The names in a folder of a vault."""
    if str(path) in _open_folders.folders:
        return system.names(path)
    with open_folder(path):
        return system.names(path)


def file_size(fd: int) -> int:
    """The length of an open file."""
    return os.fstat(fd).st_size


def read(path: Path, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None) -> bytes:
    """A file's bytes from ``offset`` on, up to ``stop``; more than ``most`` of them are refused."""
    with open_file(path) as fd:
        return read_open_file(fd, path, offset=offset, max_bytes=max_bytes, stop=stop)


def read_open_file(
    fd: int, path: Path, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None
) -> bytes:
    """The same of a file that is open."""
    left = (file_size(fd) if stop is None else min(stop, file_size(fd))) - offset
    if max_bytes is not None and left > max_bytes:
        raise InvalidFile(f"{path} has {left:,} bytes where at most {max_bytes:,} are expected")
    parts = []
    while left > 0 and (part := system.read(fd, left, offset)):
        parts.append(part)
        offset, left = offset + len(part), left - len(part)
    return b"".join(parts)


def check_size(path: Path, size: int) -> None:
    """Refuse a file that has fewer bytes than it had."""
    try:
        found = os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        raise InvalidFile(f"{path} is not there: the folder is incomplete") from None
    if found < size:
        raise InvalidFile(f"{path} is cut short: {found:,} bytes where {size:,} are expected")


def map_file(path: Path, size: int) -> memoryview:
    """The first ``size`` bytes of a file, which must have them, as memory that cannot be written to."""
    with open_file(path) as fd:
        if file_size(fd) < size:
            raise InvalidFile(f"{path} is cut short: {file_size(fd):,} bytes where {size:,} are expected")
        return memoryview(system.map(fd, size)) if size else memoryview(b"")


def write_parts(fd: int, parts: Iterable[Data]) -> None:
    """Write parts one after the other, from the beginning of a file."""
    offset = 0
    for part in parts:
        write_all(fd, part, offset)
        offset += memoryview(part).nbytes


def write_all(fd: int, data: Data, offset: int) -> None:
    """Write, however many calls it takes."""
    view = memoryview(data).cast("B")
    while len(view):
        written = system.write(fd, view, offset)
        offset, view = offset + written, view[written:]


def sync(fd: int) -> None:
    """Make what was written to a file or folder last."""
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
    """Make new, renamed and removed names last."""
    if os.name != "posix":
        return
    real = path.resolve() if path.is_symlink() else path  # a folder that files were put into by this name
    fd = system.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        _close(fd)


def create(path: Path, *parts: Data) -> None:
    """Write a new file, synced unless it is empty; its name lasts from the next `sync_folder` on."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        if parts:
            write_parts(fd, parts)
            sync(fd)


def create_if(check: Callable[[], None], path: Path, *parts: Data) -> None:
    """Write a new file, synced. If ``check`` then refuses, it holds zeros, even if it has lost its name meanwhile."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd, zero_on_error(fd):
        write_parts(fd, parts)
        sync(fd)
        check()


@contextmanager
def zero_on_error(fd: int) -> Iterator[None]:
    """Leave zeros in an open file if what is written to it is not wanted after all."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            zero_all(fd)
        raise


class SyncBatch:
    """Files that are written one after the other and synced together, at the latest when the batch ends.

    Used in a ``with`` statement. If an error ends it, what was not synced yet stays as it is.
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
        """Write into a file that is there and empty."""
        fd = self._add(path, os.O_WRONLY)
        if file_size(fd):
            raise InvalidFile(f"{path} is not empty: open the vault anew")
        write_parts(fd, parts)

    def create(self, path: Path, *parts: Data) -> None:
        """Write a new file; its name lasts from the next `sync_folder` on."""
        write_parts(self._add(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), parts)

    def clear(self, path: Path) -> None:
        """Overwrite a file with zeros and, once they are synced, make it empty.

        If a power cut undoes the last step, the zeros are there.
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
    """Write a file in one step, for good: it is there whole, or as it was."""
    new = draft_path(path)
    wipe_draft(new)
    with replace_file(path, new) as replacement:
        write_parts(replacement.fd, parts)
        replacement.commit()


def draft_path(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f"{path.name}.new")


def is_draft(path: Path) -> bool:
    """Whether a draft is there. A second name of a file, or a link, is none: who put it there wants that file wiped."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def wipe_draft(path: Path) -> None:
    """Wipe a draft that somebody who was stopped left; anything else of that name is refused."""
    if not os.path.lexists(path):
        return
    if is_draft(path):
        wipe(path)
    else:
        raise InvalidFile(f"{path} is a link, or a second name of another file: remove it")


@dataclass
class Replacement:
    """A file that is being written beside the one whose place it is to take."""

    fd: int
    _committed: bool = False

    def commit(self) -> None:
        """Sync it; it takes its place at the end of `replacing`."""
        sync(self.fd)
        self._committed = True


@contextmanager
def replace_file(path: Path, beside: Path, *, shared: bool = False) -> Iterator[Replacement]:
    """Write a new file that takes another's place in one step, for good; unless it is committed, it is wiped."""
    mine = placed = False  # a file that was there before is somebody else's
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
    """Wipe a file that is not needed; if it cannot be wiped, it goes all the same."""
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
    """Cut a file or lengthen it by zeros, and sync. What is cut off is overwritten first."""
    with open_file(path, os.O_WRONLY) as fd:
        if size < (had := file_size(fd)):
            _zero(fd, size, had)
            sync(fd)
        system.truncate(fd, size)
        sync(fd)


def lengthen(path: Path, start: int, size: int) -> None:
    """Lengthen a file by zeros if it is shorter, give all from ``start`` on a place on the disk, and sync.

    A hole in a file that is mapped needs room when it is read, on some file systems (tmpfs): where there is none left
    the system would end the process.
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
    """Overwrite a file with zeros, sync, and remove it; no file is fine. `sync_folder` makes that last."""
    with suppress(FileNotFoundError):
        with open_file(path, os.O_WRONLY) as fd:
            zero_all(fd)
        system.unlink(path)


def is_empty(path: Path) -> bool:
    """Whether a plain file is there that has no bytes; one that is not ours is refused."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if isinstance(path, GuardedPath):
        path.check(found)
    return stat.S_ISREG(found.st_mode) and not found.st_size


def zero_all(fd: int) -> None:
    """Overwrite an open file with zeros, and sync."""
    if size := file_size(fd):
        _zero(fd, 0, size)
        sync(fd)


def _zero(fd: int, start: int, stop: int) -> None:
    for offset in range(start, stop, len(_ZEROS)):
        write_all(fd, _ZEROS[: stop - offset], offset)
