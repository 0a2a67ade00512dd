"""Staging: a folder in which files are gathered before they appear in their places, and which is wiped otherwise.

Backups, restores and clones are built in one. Whoever builds it holds a lock on it that ends with the process, so the
next one to build at the same place knows that what it finds was left by a process that was killed, and wipes it.
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

COPY_CHUNK_BYTES = 2**20  # bytes that are copied at once
_MIN_FREE_BYTES = 2**20  # bytes that should be left on a disk
_SECRET_SUFFIXES = (".key", ".queue", "key", "queue")


@contextmanager
def open_staging_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder that nobody else builds in; what is left in it at the end is wiped."""
    with _lock_folder(path) as fd:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise InvalidFile(f"{path} belongs to another user, or is open to others: remove it")
        _empty_folder(path)
        files.sync_folder(path.parent)
        try:
            yield path
        finally:
            with suppress(OSError):  # what cannot be wiped now is wiped by whoever builds here next
                if _is_same_folder(fd, path):
                    remove_securely(path)
                    files.sync_folder(path.parent)


@contextmanager
def _lock_folder(path: Path) -> Iterator[int]:
    while True:  # until what was locked is what is there
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
    """Remove a folder or a file; whatever may hold rows or keys is overwritten first."""
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode):
        _empty_folder(path)
        files.system.rmdir(path)
    elif stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and _is_secret(path):
        files.wipe(path)
    else:
        files.system.unlink(path)


def _is_secret(path: Path) -> bool:
    return path.parent.suffix == ".vault" or path.parent.name == "vault" or path.name.endswith(_SECRET_SUFFIXES)


def _empty_folder(path: Path) -> None:
    for name in files.system.names(path):
        remove_securely(path / name)


def copy_ranges(source: Path, target: Path, ranges: Iterable[tuple[int, int]]) -> int:
    """Copy ranges of bytes to the same places of another file, not synced; return where the last one really ended.

    The source may be shorter than it was, if somebody cut or wiped it meanwhile.
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
    """Copy a whole file that must have this length and hash, synced."""
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
    """Make a file last; return its length and its SHA-256, read back."""
    hashed, done = hashlib.sha256(), 0
    with files.open_file(path) as fd:
        files.sync(fd)
        while part := files.system.read(fd, COPY_CHUNK_BYTES, done):
            hashed.update(part)
            done += len(part)
    return done, hashed.hexdigest()


def check_space(folder: Path, needed: int) -> None:
    """Refuse to begin what will not fit."""
    free = shutil.disk_usage(folder).free
    if free < needed + _MIN_FREE_BYTES:
        text = f"not enough space: {needed:,} bytes are needed and {free:,} are free"
        raise OSError(errno.ENOSPC, text, str(folder))
