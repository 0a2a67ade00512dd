"""Staging: a folder in which files are gathered before they are moved to their places. What remains in it is wiped.

Backups, restores and clones are built in one. The builder holds a lock that ends with its process, so the next builder
at the same path knows that the contents are those of a killed process, and wipes them.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InvalidFile, VaultBusy
from . import files

COPY_CHUNK_BYTES = 2**20
_MIN_FREE_BYTES = 2**20  # left free on a disk
_SECRET_SUFFIXES = (".key", ".queue", "key", "queue")


@contextmanager
def open_staging_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder that no other process uses; wipe what is left in it at the end."""
    with _lock_folder(path) as fd:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidFile(f"{path} belongs to another user, or is open to others: remove it")
        _empty_folder(path)
        files.sync_folder(path.parent)
        try:
            yield path
        finally:
            with suppress(OSError):  # the next builder wipes what cannot be wiped now
                if _is_same_folder(fd, path):
                    remove_securely(path)
                    files.sync_folder(path.parent)


@contextmanager
def _lock_folder(path: Path) -> Iterator[int]:
    while True:  # until the locked folder is the one at this path
        with suppress(FileExistsError):
            files.system.mkdir(path)
        try:
            fd = files.system.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise InvalidFile(f"{path} is not a folder: remove it") from error
            raise
        try:
            files.system.lock(fd)
            if _is_same_folder(fd, path):
                yield fd
                return
        except BlockingIOError:
            raise VaultBusy(f"another process is writing to {path}; try again when it is done") from None
        finally:
            os.close(fd)


def _is_same_folder(fd: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    return False


def remove_securely(path: Path) -> None:
    """Remove a folder or a file; overwrite files that may contain rows or keys first."""
    status = os.lstat(path)
    in_vault = path.parent.suffix == ".vault" or path.parent.name == "vault"
    if stat.S_ISDIR(status.st_mode):
        _empty_folder(path)
        files.system.rmdir(path)
    elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and (in_vault or path.name.endswith(_SECRET_SUFFIXES)):
        files.wipe(path)
    else:
        files.system.unlink(path)


def _empty_folder(path: Path) -> None:
    for name in files.system.names(path):
        remove_securely(path / name)


def copy_ranges(source: files.Location, target: Path, ranges: Iterable[tuple[int, int]]) -> int:
    """Copy ranges of bytes to the same offsets of another file, not synced; return where the last one really ended.

    The source may have been truncated or wiped meanwhile.
    """
    end = 0
    with files.open_file(source) as read, files.open_file(target, os.O_WRONLY | os.O_CREAT) as written:
        for start, stop in ranges:
            end = start
            while end < stop and (part := files.system.read(read, min(COPY_CHUNK_BYTES, stop - end), end)):
                files.write_all(written, part, end)
                end += len(part)
    return end


def copy_verified(source: Path, target: Path, size: int, sha256: str) -> None:
    """Copy a whole file, synced; refuse it if it does not have this length and hash."""
    hashed, done = hashlib.sha256(), 0
    with files.open_file(source) as read, files.open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as written:
        while done <= size and (part := files.system.read(read, COPY_CHUNK_BYTES, done)):
            hashed.update(part)
            files.write_all(written, part, done)
            done += len(part)
        files.sync(written)
    if (done, hashed.hexdigest()) != (size, sha256):
        raise InvalidFile(f"{source} is damaged: it is not the file that was backed up")


def sync_and_hash(path: Path) -> tuple[int, str]:
    """Sync a file; return its length and its SHA-256, read back."""
    hashed, done = hashlib.sha256(), 0
    with files.open_file(path) as fd:
        files.sync(fd)
        while part := files.system.read(fd, COPY_CHUNK_BYTES, done):
            hashed.update(part)
            done += len(part)
    return done, hashed.hexdigest()


def check_space(folder: Path, needed: int) -> None:
    """Raise an error if a disk does not have room for ``needed`` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed + _MIN_FREE_BYTES:
        text = f"not enough space: {needed:,} bytes are needed and {free:,} are free"
        raise OSError(errno.ENOSPC, text, str(folder))


def os_error_details(error: Exception) -> tuple[int, str]:
    """Return errno and text of an `OSError`, or of the one that caused this error, to report it for another path."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError):
        return cause.errno or errno.EIO, cause.strerror or str(cause)
    return errno.EIO, str(error)
