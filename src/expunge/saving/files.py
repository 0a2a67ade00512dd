"""Files: every operation on the disk, and how its result is made durable.

All operations go through `system`, a handful of thin methods, so that a test can replace it with a disk that fails,
forgets what was not synced, or counts. Nothing here follows a symbolic link or opens anything but regular files. A file
of a vault (`VaultFile`, or a `GuardedPath`) is checked when it is opened: its owner and its mode, by its descriptor.
"""

import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeVar

from ..errors import InvalidFile
from .ownership import ContainedPath, ExternalKeyPath, GuardedPath, check_owner

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Data: TypeAlias = bytes | memoryview

_ZEROS = memoryview(bytes(2**20))  # written at once
_MAX_OPEN_FILES = 16  # in a `SyncBatch`
_GROUP_FILE_MODE, _GROUP_FOLDER_MODE = 0o640, 0o2750  # 2: files made in it later belong to the same group
_WRITABLE_BY_OTHERS = 0o022
_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))  # where they exist


class SyncFailed(OSError):
    """A sync failed: what was written may be lost although it can still be read back. Reopen the vault."""


class VaultFile(NamedTuple):
    """A file in a folder of a vault: opened relative to that folder's descriptor, and checked when it is opened."""

    parent: "VaultDir"
    name: str

    def __fspath__(self) -> str:
        return os.path.join(self.parent.path, self.name)

    def __str__(self) -> str:
        return self.__fspath__()

    def with_name(self, name: str) -> "VaultFile":
        """Return another file in the same folder."""
        return VaultFile(self.parent, name)

    def exists(self) -> bool:
        """Return whether the file exists."""
        return os.path.exists(self)


Location: TypeAlias = Path | VaultFile
LocationT = TypeVar("LocationT", Path, VaultFile)


class System:
    """The operations themselves. ``folder`` is the descriptor of the folder that a name is in, if that is open."""

    def open(self, path: Location, flags: int, mode: int = 0o600, folder: int | None = None) -> int:
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
        os.lseek(fd, offset, os.SEEK_SET)  # models can be saved on other systems too; vaults cannot
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

    def rename(self, old: Location, new: Location, folder: int | None = None) -> None:
        if folder is None:
            os.replace(old, new)
        else:
            os.replace(old.name, new.name, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, path: Location, folder: int | None = None) -> None:
        os.unlink(path if folder is None else path.name, dir_fd=folder)

    def mkdir(self, path: Path) -> None:
        path.mkdir(mode=0o700)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def names(self, path: Path, folder: int | None = None) -> list[str]:
        return sorted(os.listdir(path if folder is None else folder))

    def map(self, fd: int, size: int) -> mmap.mmap:
        return mmap.mmap(fd, size, prot=mmap.PROT_READ)

    def lock(self, fd: int) -> None:
        import fcntl  # missing on some systems; only vaults lock

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, fd: int) -> None:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)


system = System()

_sync_pool: "tuple[int, ThreadPoolExecutor] | None" = None  # (process id, its threads for syncs)


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


class VaultDir:
    """A folder of a vault: the ``.vault`` folder, or one beside it. `dir / name` is a file in it.

    A request opens the folder once and keeps it open (`hold`): its files are then opened relative to that descriptor,
    so a folder that is swapped meanwhile is not followed. Without `hold`, each operation opens and checks the folder
    for itself. Threads hold it independently of each other.
    """

    def __init__(self, path: GuardedPath) -> None:
        self.path = path
        self.descriptors: dict[int, int] = {}  # by the threads that hold it

    def __truediv__(self, name: str) -> VaultFile:
        return VaultFile(self, name)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __reduce__(self) -> tuple[type["VaultDir"], tuple[GuardedPath]]:
        return VaultDir, (self.path,)

    @property
    def for_group(self) -> bool:
        """Whether the vault's group may read the folder; new files in it are then made readable for the group."""
        with suppress(FileNotFoundError):
            return bool(os.lstat(self.path).st_mode & stat.S_IRGRP)
        return False

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Keep the folder open for this thread, and yield whether it is open.

        If it cannot be opened or fails its check, the next operation on a file in it reports why.
        """
        thread = get_ident()
        if thread in self.descriptors:
            yield True
            return
        with ExitStack() as stack:
            with suppress(OSError, InvalidFile):
                self.descriptors[thread] = stack.enter_context(self.open())
                stack.callback(self.descriptors.pop, thread)
            yield thread in self.descriptors

    def open(self) -> AbstractContextManager[int]:
        """Return a context with the folder's descriptor: the one that this thread holds, or a new one."""
        held = self.descriptors.get(get_ident())
        return self._open_checked() if held is None else nullcontext(held)

    @contextmanager
    def _open_checked(self) -> Iterator[int]:
        try:
            fd = system.open_folder(self.path)
        except PermissionError:
            self.path.check_existing()  # says who owns it, and how to fix that
            raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise InvalidFile(
                    f"{self.path} is not a folder or is a symbolic link; a vault follows no links"
                ) from error
            raise
        try:
            self.path.check(os.fstat(fd))
            yield fd
        finally:
            _close(fd)

    def check(self, file: VaultFile, status: os.stat_result) -> None:
        """Refuse a file that belongs to neither this user nor the folder's owner, or that others can write to."""
        if status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS:  # a link has all permissions
            return
        with self.open() as fd:
            owner = os.fstat(fd).st_uid
        check_owner(str(file), status, owners={os.geteuid(), owner}, forbidden=_WRITABLE_BY_OTHERS)

    def make(self, *, for_group: bool | None = None, synced: bool = True) -> None:
        """Make the folder unless it exists, and check it.

        Its group can read a new folder if ``for_group`` says so; by default, if the group can read the vault. Without
        ``synced`` its name may be lost in a power cut: for derived data.
        """
        is_new = False
        with suppress(FileExistsError):
            if not self.path.is_dir():
                system.mkdir(self.path)
                is_new = True
        with self.open() as fd:
            if is_new and (self.path.for_group if for_group is None else for_group):
                system.chmod(fd, _GROUP_FOLDER_MODE)
        if is_new and synced:
            sync_folder(self.path.parent)

    def names(self) -> list[str]:
        """Return the names in the folder, sorted."""
        with self.open() as fd:
            return system.names(self.path, fd)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those of these names that are regular files; refuse a file of another owner."""
        sizes = {}
        with self.open() as folder:
            for name in names:
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    self.check(VaultFile(self, name), status)
                    if stat.S_ISREG(status.st_mode):
                        sizes[name] = status.st_size
        return sizes

    def check_sizes(self, expected: Mapping[str, int]) -> None:
        """Refuse files that are missing, or shorter: reading a mapped file beyond its end would kill the process."""
        sizes = self.sizes(expected)
        for name, size in expected.items():
            if name not in sizes:
                raise InvalidFile(f"{self / name} is missing: the folder is incomplete")
            if sizes[name] < size:
                raise InvalidFile(f"{self / name} is cut short: {sizes[name]:,} bytes where {size:,} are expected")

    def sync(self) -> None:
        """Make new, renamed and removed names durable."""
        with self.open() as fd:
            sync(fd)


@contextmanager
def open_file(path: Location, flags: int = os.O_RDONLY, *, shared: bool = False) -> Iterator[int]:
    """Open a regular file and yield its descriptor.

    A new file is readable by its owner alone (or as its vault says); with ``shared`` the umask decides.
    """
    if isinstance(path, ContainedPath):
        path = VaultDir(path.folder) / path.name
    try:
        mode = 0o666 if shared else 0o600
        if isinstance(path, VaultFile):
            with path.parent.open() as folder:
                fd = system.open(path, flags, mode, folder)
        else:
            fd = system.open(path.resolve() if isinstance(path, ExternalKeyPath) else path, flags, mode)
    except OSError as error:
        error.filename = str(path)
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise InvalidFile(f"{path} is not a plain file; a vault follows no links") from error
        if isinstance(error, PermissionError):
            if isinstance(path, VaultFile):
                with suppress(FileNotFoundError):
                    path.parent.check(path, os.lstat(path))
            elif isinstance(path, GuardedPath):
                path.check_existing()
        if error.errno == errno.EROFS:  # callers treat it like any other lack of permission to write
            raise PermissionError(error.errno, error.strerror, error.filename) from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidFile(f"{path} is not a plain file")
        for_group = False
        if isinstance(path, VaultFile):
            path.parent.check(path, status)
            for_group = bool(flags & os.O_CREAT) and path.parent.for_group
        elif isinstance(path, GuardedPath):
            path.check(status)
            for_group = bool(flags & os.O_CREAT) and path.for_group
        if for_group and stat.S_IMODE(status.st_mode) != _GROUP_FILE_MODE:
            system.chmod(fd, _GROUP_FILE_MODE)
        yield fd
    finally:
        _close(fd)


def _close(fd: int) -> None:
    """Close a file. An error changes nothing: it is closed all the same, and durable data was synced before."""
    try:  # noqa: SIM105 - it is called often, and this is faster
        os.close(fd)
    except OSError:
        pass


def rename(old: Location, new: Location) -> None:
    """Rename a file, within its folder if that is a vault's. `sync_folder` makes it durable."""
    if isinstance(old, VaultFile):
        with old.parent.open() as folder:
            system.rename(old, new, folder)
    else:
        system.rename(old, new)


def unlink(path: Location) -> None:
    """Remove a file's name, without wiping it."""
    if isinstance(path, VaultFile):
        with path.parent.open() as folder:
            system.unlink(path, folder)
    else:
        system.unlink(path)


def read(path: Location, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None) -> bytes:
    """Return a file's bytes from ``offset`` up to ``stop``; refuse it if these are more than ``max_bytes``."""
    with open_file(path) as fd:
        return read_open_file(fd, path, offset=offset, max_bytes=max_bytes, stop=stop)


def read_open_file(
    fd: int, path: Location, *, offset: int = 0, max_bytes: int | None = None, stop: int | None = None
) -> bytes:
    """Do what `read` does, for an open file."""
    left = (os.fstat(fd).st_size if stop is None else min(stop, os.fstat(fd).st_size)) - offset
    if max_bytes is not None and left > max_bytes:
        raise InvalidFile(f"{path} has {left:,} bytes where at most {max_bytes:,} are expected")
    parts = []
    while left > 0 and (part := system.read(fd, left, offset)):
        parts.append(part)
        offset, left = offset + len(part), left - len(part)
    return b"".join(parts)


def map_file(path: Location, size: int) -> memoryview:
    """Map the first ``size`` bytes of a file, which must have them, as read-only memory."""
    with open_file(path) as fd:
        if os.fstat(fd).st_size < size:
            raise InvalidFile(f"{path} is cut short: {os.fstat(fd).st_size:,} bytes where {size:,} are expected")
        return memoryview(system.map(fd, size)) if size else memoryview(b"")


def write_parts(fd: int, parts: Iterable[Data]) -> None:
    """Write parts one after the other, starting at the beginning of a file."""
    offset = 0
    for part in parts:
        write_all(fd, part, offset)
        offset += memoryview(part).nbytes


def write_all(fd: int, data: Data, offset: int) -> None:
    """Write all of the data, in as many calls as it takes."""
    view = memoryview(data).cast("B")
    while len(view):
        written = system.write(fd, view, offset)
        offset, view = offset + written, view[written:]


def sync(fd: int) -> None:
    """Make what was written to a file or folder durable."""
    try:
        system.sync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, f"could not be synced: {error.strerror}") from error


def sync_several(fds: Sequence[int]) -> None:
    """Sync several open files, in parallel: that takes a disk about as long as one sync."""
    global _sync_pool
    tasks = list["Future[None]"]()
    if len(fds) > 1 and type(system) is System:  # a test disk sees one call at a time
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


def sync_folder(path: Path | VaultDir) -> None:
    """Make new, renamed and removed names durable."""
    if isinstance(path, VaultDir):
        return path.sync()
    if os.name != "posix":
        return None
    real = path.resolve() if path.is_symlink() else path  # callers may have reached the folder through a link
    fd = system.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sync(fd)
    finally:
        _close(fd)


def create(path: Location, *parts: Data) -> None:
    """Write a new file, and sync it unless it is empty; `sync_folder` makes its name durable."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        if parts:
            write_parts(fd, parts)
            sync(fd)


def create_named(path: VaultFile, *parts: Data) -> None:
    """Write a new file, and sync it and its name at the same time: a power cut may leave the name and half a file."""
    with path.parent.open() as folder, open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        write_parts(fd, parts)
        sync_several([fd, folder])


def create_if(check: Callable[[], None], path: Location, *parts: Data) -> None:
    """Write a new file, and sync it. If ``check`` then raises, zero it, even if its name was removed meanwhile."""
    with open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd, zero_on_error(fd):
        write_parts(fd, parts)
        sync(fd)
        check()


@contextmanager
def zero_on_error(fd: int) -> Iterator[None]:
    """Overwrite an open file with zeros if the body raises."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            zero_all(fd)
        raise


class SyncBatch:
    """Files that are written one after the other and synced together, at the latest when the batch ends.

    Use it in a ``with`` statement. If an error ends the batch, nothing more is synced.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._fds, self._cleared = list[int](), list[int]()
        self._created_in: Path | VaultDir | None = None  # the folder of files that had to be created

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self._sync()
                if self._created_in is not None:
                    sync_folder(self._created_in)

    def fill(self, path: Location, *parts: Data) -> None:
        """Write into an existing, empty file; if it is missing, it is created in its folder, which is synced last."""
        try:
            fd = self._add(path, os.O_WRONLY)
        except FileNotFoundError:
            fd, self._created_in = self._add(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), path.parent
        if os.fstat(fd).st_size:
            raise InvalidFile(f"{path} is not empty: open the vault again")
        write_parts(fd, parts)

    def clear(self, path: Location) -> None:
        """Overwrite a file with zeros and, once these are synced, truncate it: a power cut leaves at most zeros."""
        fd = self._add(path, os.O_WRONLY)
        _zero(fd, 0, os.fstat(fd).st_size)
        self._cleared.append(fd)

    def _add(self, path: Location, flags: int) -> int:
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


def put(path: LocationT, *parts: Data) -> None:
    """Write a file atomically and durably: afterwards it is complete, or as it was."""
    new = draft_path(path)
    wipe_draft(new)
    with replace_file(path, new) as replacement:
        write_parts(replacement.fd, parts)
        replacement.commit()


def draft_path(path: LocationT) -> LocationT:
    """Return where a file is written before it is renamed to its place."""
    return path.with_name(f"{path.name}.new")


def is_draft(path: Location) -> bool:
    """Return whether a draft exists. Links and second names of a file do not count: wiping one would wipe that file."""
    folder = path.parent.descriptors.get(get_ident()) if isinstance(path, VaultFile) else None
    try:
        status = os.stat(path if folder is None else path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def wipe_draft(path: Location) -> None:
    """Wipe a draft that an interrupted process left; refuse anything else of that name."""
    if is_draft(path):
        wipe(path)
    elif os.path.lexists(path):
        raise InvalidFile(f"{path} is a symbolic or hard link to another file: remove it")


@dataclass
class Replacement:
    """A file that is being written beside the one that it replaces."""

    fd: int
    _committed: bool = False

    def commit(self) -> None:
        """Sync the new file; `replace_file` renames it when its body ends."""
        sync(self.fd)
        self._committed = True


@contextmanager
def replace_file(path: LocationT, beside: LocationT, *, shared: bool = False) -> Iterator[Replacement]:
    """Yield a new file, written at ``beside``, that replaces ``path`` atomically and durably once it is committed.

    A file that is not committed is wiped.
    """
    created = renamed = False  # a file that existed before belongs to another process
    try:
        with open_file(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, shared=shared) as fd:
            created, new = True, Replacement(fd)
            yield new
        if new._committed:
            rename(beside, path)
            renamed = True
    finally:
        if created and not renamed:
            with suppress(OSError):
                wipe(beside)
            with suppress(OSError):  # if it could not be wiped, it is removed all the same
                if beside.exists():
                    unlink(beside)
    if renamed:
        sync_folder(path.parent)


def overwrite(path: Location, pieces: Iterable[tuple[int, Data]]) -> None:
    """Write pieces into a file, each at its offset, and sync it."""
    with open_file(path, os.O_WRONLY) as fd:
        for offset, data in pieces:
            write_all(fd, data, offset)
        sync(fd)


def resize(path: Location, size: int) -> None:
    """Cut a file, or lengthen it with zeros, and sync it. What is cut off is overwritten first."""
    with open_file(path, os.O_WRONLY) as fd:
        if size < (old_size := os.fstat(fd).st_size):
            _zero(fd, size, old_size)
            sync(fd)
        system.truncate(fd, size)
        sync(fd)


def lengthen(path: Location, start: int, size: int) -> None:
    """Lengthen a shorter file with zeros, allocate everything from ``start`` on, and sync it.

    On some file systems (tmpfs) reading a hole of a mapped file allocates memory, and the system kills the process if
    there is none left.
    """
    with open_file(path, os.O_WRONLY) as fd:
        if os.fstat(fd).st_size < size:
            system.truncate(fd, size)
        if start < size:
            try:
                system.reserve(fd, start, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
        sync(fd)


def wipe(path: Location) -> None:
    """Overwrite a file with zeros, sync it, and remove it, if it exists. `sync_folder` makes the removal durable."""
    with suppress(FileNotFoundError):
        with open_file(path, os.O_WRONLY) as fd:
            zero_all(fd)
        unlink(path)


def zero_all(fd: int) -> None:
    """Overwrite an open file with zeros, and sync it."""
    if size := os.fstat(fd).st_size:
        _zero(fd, 0, size)
        sync(fd)


def _zero(fd: int, start: int, stop: int) -> None:
    for offset in range(start, stop, len(_ZEROS)):
        write_all(fd, _ZEROS[: stop - offset], offset)
