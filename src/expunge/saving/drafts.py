"""Drafts: a file that has to appear whole is written beside its place, under a name of its own.

The writer of a draft holds a lock on it until it is in its place. A process that is killed leaves its draft, but not
its lock: the next process that writes the same file finds the draft and wipes it. Without locks, drafts are left.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import InvalidFile
from . import files


@contextmanager
def open_draft(path: Path, *, shared: bool = False) -> Iterator[files.Replacement]:
    """Replace a file atomically, as `files.replace_file` does, and wipe drafts of killed processes."""
    wipe_stale_drafts(path)
    while True:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with ExitStack() as locked, files.replace_file(path, beside, shared=shared) as new:
            if os.name != "posix" or _lock_draft(new.fd, locked):
                yield new
                return


def wipe_stale_drafts(path: Path) -> None:
    """Wipe the drafts of a file whose writers have ended."""
    if os.name != "posix":
        return
    draft = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}")
    with suppress(OSError):
        drafts = [path.parent / name for name in files.system.names(path.parent) if draft.fullmatch(name)]
        if sum(map(_wipe_if_stale, drafts)):
            files.sync_folder(path.parent)


def _lock_draft(fd: int, locked: ExitStack) -> bool:
    """Lock a new draft for as long as ``locked`` lasts; return False if another process took it for a stale one."""
    locked.callback(os.close, os.dup(fd))  # a lock lasts as long as one of the file's descriptors
    try:
        files.system.lock(fd)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: no process wipes drafts there
        return True
    return os.fstat(fd).st_nlink > 0


def _wipe_if_stale(draft: Path) -> bool:
    """Wipe a draft without a lock, if it is a plain file of this user with no other name; return whether it was."""
    with suppress(OSError, InvalidFile), files.open_file(draft) as fd:
        files.system.lock(fd)
        status = os.fstat(fd)
        if os.path.samestat(status, os.lstat(draft)) and status.st_uid == os.geteuid() and status.st_nlink == 1:
            files.wipe(draft)
            return True
    return False
