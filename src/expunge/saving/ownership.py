"""Ownership: files in a vault, or beside it, belong to its owner, and no other user can change them.

In a folder that others can write to, an attacker could place a ledger that he keeps writing to, or a key that he knows.
The type of a path says which owners and permissions are allowed there. `files` checks the descriptor that it opened,
not the name: nothing can be swapped in between check and use.
"""

import os
import shlex
import stat
from functools import cached_property, lru_cache
from pathlib import Path, PosixPath
from typing import ClassVar

from ..errors import InvalidFile


class GuardedPath(PosixPath):
    """A path whose file must have the right owner, and must not be writable by others."""

    forbidden: ClassVar[int] = 0o022  # permissions that must not be set

    def __repr__(self) -> str:
        return f"PosixPath({str(self)!r})"

    def check(self, status: os.stat_result, *, mine: bool = False) -> None:
        """Refuse a file that is not ours (with ``mine``: not this user's), or that others can write to."""
        if stat.S_ISLNK(status.st_mode):
            raise InvalidFile(
                f"{self} is a symbolic link; a vault follows no links: put the file or folder itself there"
            )
        if status.st_uid != os.geteuid() and (mine or status.st_uid not in self.allowed_owners()):
            problem, command = "belongs to another user", f"chown {os.geteuid()}"
        elif status.st_mode & self.forbidden & 0o022:
            problem, command = "can be written to by others", "chmod go-w"
        elif status.st_mode & self.forbidden:
            problem, command = "can be read by others", "chmod go="
        else:
            return
        fix = f"{command} {shlex.quote(str(self))}"
        raise InvalidFile(f"{self} {problem}: remove it, or if you trust its contents: {fix}")

    def check_existing(self, *, mine: bool = False) -> None:
        """Check the file at this path, if it exists."""
        if (status := _stat_if_exists(self)) is not None:
            self.check(status, mine=mine)

    def allowed_owners(self) -> set[int]:
        """Return the users besides this one who may own the file: the owner of the vault."""
        status = _stat_if_exists(self.base)
        return set() if status is None else {status.st_uid}

    @property
    def base(self) -> Path:
        """The folder whose owner and mode the file must have."""
        return self.parent

    @property
    def for_group(self) -> bool:
        """Whether new files are readable by the group of the vault, as its folder is."""
        status = _stat_if_exists(self.base)
        return status is not None and bool(status.st_mode & stat.S_IRGRP)


class VaultFolder(GuardedPath):
    """The folder of a vault. Its owner is the owner of the vault."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # no folder itself
        return _contained_path(str(self), os.fspath(name))

    @property
    def base(self) -> Path:
        return self


class SiblingPath(GuardedPath):
    """A file or folder beside the folder of a vault: the ledger, keys, certificates."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # no folder itself
        return _contained_path(str(self), os.fspath(name))

    @property
    def base(self) -> Path:
        return Path(self.with_name(self.name.removesuffix(".new"))).with_suffix(".vault")


class PrivateSiblingPath(SiblingPath):
    """A file beside a vault that only the owner can read: a private key, the service's files."""

    forbidden = 0o077

    @property
    def for_group(self) -> bool:
        return False


class ContainedPath(GuardedPath):
    """A file in a vault's folder, or in a folder beside it."""

    @cached_property
    def folder_path(self) -> str:
        """The path of the folder that contains the file."""
        return os.path.dirname(self)

    def check_folder(self, status: os.stat_result) -> None:
        """Refuse a containing folder that is not ours, or that others can write to."""
        if status.st_uid != os.geteuid() or status.st_mode & self.forbidden:  # the quick check comes first
            folder = VaultFolder(self.parent) if self.parent.suffix == ".vault" else SiblingPath(self.parent)
            folder.check(status)


class ExternalKeyPath(GuardedPath):
    """A private key at any path that the user named.

    Secrets that are mounted into a container are links to files of root that others may read. So links are followed;
    files that others can write to, or that belong to a third user, are refused.
    """

    def allowed_owners(self) -> set[int]:
        return {0}


@lru_cache(maxsize=256)  # a request uses the same few paths again and again, and pathlib is slow
def _contained_path(folder: str, name: str) -> ContainedPath:
    return ContainedPath(os.path.join(folder, name))


def _stat_if_exists(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
