"""Ownership: files in a vault, or beside it, belong to its owner, and nobody else can change them.

A folder that others can write to is open to attack: they could continue the ledger, or put a key there that they know.
The type of a path says who may own what lies there, and which permissions are refused. `files` checks the descriptor
of every file that it opens, not its name: nothing can be swapped between the check and the use.
"""

import os
import shlex
import stat
from pathlib import Path, PosixPath
from typing import ClassVar

from ..errors import InvalidFile


def check_owner(path: str, status: os.stat_result, *, owners: set[int], forbidden: int) -> None:
    """Refuse a link, a file or folder of any other owner, and one with forbidden permissions; say how to fix it."""
    if stat.S_ISLNK(status.st_mode):
        raise InvalidFile(f"{path} is a symbolic link; a vault follows no links: put the file or folder itself there")
    if status.st_uid not in owners:
        problem, command = "belongs to another user", f"chown {os.geteuid()}"
    elif status.st_mode & forbidden & 0o022:
        problem, command = "can be written to by others", "chmod go-w"
    elif status.st_mode & forbidden:
        problem, command = "can be read by others", "chmod go="
    else:
        return
    raise InvalidFile(f"{path} {problem}: remove it, or if you trust its contents: {command} {shlex.quote(path)}")


class GuardedPath(PosixPath):
    """A path whose file or folder must belong to this user or the vault's owner, and be writable by nobody else."""

    forbidden: ClassVar[int] = 0o022  # permissions that are refused

    def __repr__(self) -> str:
        return f"PosixPath({str(self)!r})"

    def check(self, status: os.stat_result, *, mine: bool = False) -> None:
        """Refuse a wrong owner (with ``mine``: any other user) and forbidden permissions of what was found here."""
        owners = {os.geteuid()}
        if status.st_uid not in owners and not mine:
            owners |= self.allowed_owners()
        check_owner(str(self), status, owners=owners, forbidden=self.forbidden)

    def check_existing(self, *, mine: bool = False) -> None:
        """Check what has this name, if anything has."""
        if (status := _stat_if_exists(self)) is not None:
            self.check(status, mine=mine)

    def allowed_owners(self) -> set[int]:
        """Return who may own this besides the current user: the owner of the vault."""
        status = _stat_if_exists(self.base)
        return set() if status is None else {status.st_uid}

    @property
    def base(self) -> Path:
        """The folder whose owner and mode apply to this path."""
        return self.parent

    @property
    def for_group(self) -> bool:
        """Whether what is created here is readable by the vault's group, as the vault's folder is."""
        status = _stat_if_exists(self.base)
        return status is not None and bool(status.st_mode & stat.S_IRGRP)


class VaultFolder(GuardedPath):
    """The folder of a vault. Its owner owns the vault."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # not a folder
        return ContainedPath(self, name)

    @property
    def base(self) -> Path:
        return self


class SiblingPath(GuardedPath):
    """A path beside a vault's folder: the ledger, keys, and folders of files to hand out."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # not a folder
        return ContainedPath(self, name)

    @property
    def base(self) -> Path:
        return Path(self.with_name(self.name.removesuffix(".new"))).with_suffix(".vault")


class PrivateSiblingPath(SiblingPath):
    """A path beside a vault for its owner alone, whatever a group may read: a private key, the service's files."""

    forbidden = 0o077

    @property
    def for_group(self) -> bool:
        return False


class ContainedPath(GuardedPath):
    """A file in a vault's folder, or in a folder beside it."""

    @property
    def folder(self) -> VaultFolder | SiblingPath:
        """The folder that it is in."""
        return VaultFolder(self.parent) if self.parent.suffix == ".vault" else SiblingPath(self.parent)


class ExternalKeyPath(GuardedPath):
    """A private key at a path that the user chose.

    Secrets mounted into a container are links to files of root that others may read. So links are followed here; a file
    that others can write to, or that belongs to a third user, is refused.
    """

    def allowed_owners(self) -> set[int]:
        return {0}


def _stat_if_exists(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
