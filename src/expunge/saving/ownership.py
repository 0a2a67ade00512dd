"""Own files: what lies in a vault, or beside it, is ours, and nobody else can change it.

A folder that others can write to is a place for traps: a ledger that somebody goes on writing, a key that he knows. The
type of a path says what is asked of what lies there. `files` asks it of every descriptor that it opens, and not of
the name: nothing can be put in its place between the look and the use.
"""

import os
import shlex
import stat
from functools import cached_property, lru_cache
from pathlib import Path, PosixPath
from typing import ClassVar

from ..errors import InvalidFile


class GuardedPath(PosixPath):
    """A path at which only files of the right owner are taken, that others cannot write to."""

    forbidden: ClassVar[int] = 0o022  # none of these permissions may be there

    def __repr__(self) -> str:
        return f"PosixPath({str(self)!r})"

    def check(self, found: os.stat_result, *, mine: bool = False) -> None:
        """Refuse what was found here if it is not ours (with ``mine``: this user's), or if others can write to it."""
        if stat.S_ISLNK(found.st_mode):
            raise InvalidFile(
                f"{self} is a symbolic link; a vault follows no links: put the file or folder itself there"
            )
        if found.st_uid != os.geteuid() and (mine or found.st_uid not in self.allowed_owners()):
            wrong, command = "belongs to another user", f"chown {os.geteuid()}"
        elif found.st_mode & self.forbidden & 0o022:
            wrong, command = "can be written to by others", "chmod go-w"
        elif found.st_mode & self.forbidden:
            wrong, command = "can be read by others", "chmod go="
        else:
            return
        way_out = f"{command} {shlex.quote(str(self))}"
        raise InvalidFile(f"{self} {wrong}: remove it, or if you trust what it holds: {way_out}")

    def check_existing(self, *, mine: bool = False) -> None:
        """Check what has this name, before it is used; nothing there is fine."""
        if (found := _stat_if_exists(self)) is not None:
            self.check(found, mine=mine)

    def allowed_owners(self) -> set[int]:
        """Who else may own what lies here, besides this user: whoever owns the vault."""
        found = _stat_if_exists(self.base)
        return set() if found is None else {found.st_uid}

    @property
    def base(self) -> Path:
        """The folder whose owner and mode are those of what lies here."""
        return self.parent

    @property
    def for_group(self) -> bool:
        """Whether what is made here is for the group of the vault to read, as its folder is."""
        found = _stat_if_exists(self.base)
        return found is not None and bool(found.st_mode & stat.S_IRGRP)


class VaultFolder(GuardedPath):
    """The folder of a vault. Whoever owns it owns the vault."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # no folder itself
        return _contained_path(str(self), os.fspath(name))

    @property
    def base(self) -> Path:
        return self


class SiblingPath(GuardedPath):
    """What lies beside the folder of a vault: the ledger, keys, and folders of files to hand out."""

    def __truediv__(self, name: str | os.PathLike[str]) -> "ContainedPath":  # type: ignore[override]  # no folder itself
        return _contained_path(str(self), os.fspath(name))

    @property
    def base(self) -> Path:
        return Path(self.with_name(self.name.removesuffix(".new"))).with_suffix(".vault")


class PrivateSiblingPath(SiblingPath):
    """What lies beside a vault for its owner alone, whoever may read the rest: a private key, the service's files."""

    forbidden = 0o077

    @property
    def for_group(self) -> bool:
        return False


class ContainedPath(GuardedPath):
    """A file in a vault's folder, or in a folder beside it."""

    @cached_property
    def folder_path(self) -> str:
        """The path of the folder that it lies in."""
        return os.path.dirname(self)

    def check_folder(self, found: os.stat_result) -> None:
        """Refuse the folder that it lies in unless that is ours, and only ours to write to."""
        if found.st_uid != os.geteuid() or found.st_mode & self.forbidden:  # else there is nothing to ask
            folder = VaultFolder(self.parent) if self.parent.suffix == ".vault" else SiblingPath(self.parent)
            folder.check(found)


class ExternalKeyPath(GuardedPath):
    """A private key that was named, wherever it lies.

    Secrets that are mounted into a container are links to files of root that others may read. So links are followed;
    what others can write to, or what belongs to a third user, is refused.
    """

    def allowed_owners(self) -> set[int]:
        return {0}


@lru_cache(maxsize=256)  # a request names the same few files again and again, and pathlib takes its time
def _contained_path(folder: str, name: str) -> ContainedPath:
    return ContainedPath(os.path.join(folder, name))


def _stat_if_exists(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
