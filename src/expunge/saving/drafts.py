"""Drafts: a file that is to appear whole is written beside its place, under a name of its own.

Whoever writes a draft holds a lock on it until it is in its place. A process that is killed leaves its draft, and its
lock goes with it: so the next one that writes the same file finds it, and wipes it. Where there are no locks, drafts
are left alone.
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
    """Write a new file that takes another's place in one step, as `files.replacing` does; wipe what others left."""
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
        left = [path.parent / name for name in files.system.names(path.parent) if draft.fullmatch(name)]
        wiped = [one for one in left if _wipe_if_stale(one)]
        if wiped:
            files.sync_folder(path.parent)


def _lock_draft(fd: int, locked: ExitStack) -> bool:
    """Lock a draft that was just made, for as long as ``locked`` lasts; False if somebody who swept was faster."""
    locked.callback(os.close, os.dup(fd))  # a lock lasts as long as one of the file's numbers
    try:
        files.system.lock(fd)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody sweeps there
        return True
    return os.fstat(fd).st_nlink > 0


def _wipe_if_stale(draft: Path) -> bool:
    """Wipe a draft that nobody holds, if it is a plain file of ours that has no other name."""
    with suppress(OSError, InvalidFile), files.open_file(draft) as fd:
        files.system.lock(fd)
        found, named = os.fstat(fd), os.lstat(draft)
        if os.path.samestat(found, named) and found.st_uid == os.geteuid() and found.st_nlink == 1:
            files.wipe(draft)
            return True
    return False
