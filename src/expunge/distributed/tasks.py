"""Tasks: what workers do with the files of a vault. Each is a pure function of files and ranges.

A task returns names, counts and sums, never a row or an id. A file that it writes has a name that no other attempt has:
a task that runs twice, because its worker was lost or only seemed to be, disturbs nobody, and the files of an attempt
that does not count are wiped like all leftovers. The token says that the request is still being prepared: without it a
worker that was cut off stops, and wipes what it wrote.
"""

import ctypes
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..encoding.encoder import Encoder
from ..encoding.placement import Dealt
from ..errors import ExpungeError, InvalidFile
from ..exact.moments import Moments
from ..learning.blueprint import Blueprint
from ..learning.summing import moments_of
from ..saving import files
from ..saving.archive import Archive
from ..saving.blueprints import load_blueprint
from ..saving.own import VaultFolder
from ..stores.bits import Bits
from ..stores.change import Change
from ..vault import tables
from ..vault.certificates.commitments import Commitments
from ..vault.checking import Owned, owned_in, wrong_in_rows
from ..vault.disk.folder import Folder
from ..vault.disk.manifest import Batch, File, Owners
from ..vault.disk.people import People
from ..vault.disk.rowfile import Layout, RowFile
from ..vault.disk.runs import Gathering, Run, merged
from ..vault.disk.segments import Segment, segment_bytes
from ..vault.requests.intake import Intake, Taken
from ..vault.tables import Schema


@dataclass(frozen=True)
class Errand:
    """The request that tasks are for."""

    folder: str
    number: int
    token: str

    @property
    def path(self) -> VaultFolder:
        """The folder of the vault."""
        return VaultFolder(self.folder)

    @property
    def token_file(self) -> Path:
        """The file that has the token, as long as the request is prepared."""
        return self.path / f"training.{self.number}"

    def check(self) -> None:
        """Refuse to go on for a request that is not being prepared any more, or in another folder of that name."""
        with suppress(FileNotFoundError):
            if files.read(self.token_file, most=100) == self.token.encode():
                return
        raise InvalidFile(f"{self.folder} is not, or no longer, the folder of the vault that asked")

    @contextmanager
    def attempt(self, name: str) -> Iterator[str]:
        """Yield a name for a new file that nobody else has; what fails, or is not wanted any more, is wiped."""
        self.check()
        mine = f"{name}.{self.number}.{secrets.randbits(62)}"
        try:
            yield mine
            self.check()
        except BaseException:
            with suppress(OSError, ExpungeError):
                for one in files.names(self.path):
                    if one == mine or one.startswith(f"{mine}."):
                        files.wipe(self.path / one)
            raise


@dataclass(frozen=True)
class Order:
    """How a table is taken in."""

    schema: File
    blueprint: File
    people: tuple[Owners, ...]  # before these rows
    first: int  # the number of the first row
    commits: bool  # whether there are to be receipts
    clip: bool


@dataclass(frozen=True)
class TakenPiece:
    """A piece of a table that was taken in: names and counts of files, and what there is to tell."""

    taken: Taken
    segment: Batch
    runs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Refused:
    """A piece of a table that cannot be taken, and why."""

    error: ExpungeError


def take_piece(errand: Errand, order: Order, piece: Any) -> TakenPiece | Refused:
    """Write the rows of a piece of a table, and whose they are, into files of their own, synced."""
    roomy_memory()
    folder = Folder(errand.path)
    identity = folder.identity()
    schema, blueprint = _charter(errand.folder, order.schema, order.blueprint)
    people = _people(errand.path, order.people, identity.seal)
    commitments = Commitments(identity.key, identity.vault, errand.number) if order.commits else None
    with errand.attempt("rows") as rows, errand.attempt("owners") as owners:
        gathering, first = Gathering(errand.path, owners), order.first + piece.before
        intake = Intake(
            identity, schema, blueprint, people, first, gathering, commitments, order.clip, check=errand.check
        )
        try:
            for _ in intake.take(errand.path / rows, tables.read_piece(piece, schema, targets=True, ids=True)):
                pass
        except ExpungeError as error:
            files.wipe(errand.path / rows)
            return Refused(error)
        gathering.flush()
        files.sync_folder(errand.path)
        return TakenPiece(intake.taken, Batch(rows, intake.taken.rows), tuple(gathering.runs))


@dataclass(frozen=True)
class Merging:
    """What is merged into new segments of people."""

    runs: tuple[tuple[str, int], ...]
    dealt: Dealt
    before: tuple[Owners, ...]
    kept: tuple[Owners, ...]
    only_erased: bool
    parts: int


def merge_part(errand: Errand, merging: Merging, part: int) -> tuple[Owners, int, int, int]:
    """Write the segment of one range of hashes, synced; and how many people come, were known, and are erased."""
    roomy_memory()
    seal = Folder(errand.path).identity().seal
    runs = [Run.read(errand.path / name, count) for name, count in merging.runs]
    before, kept = (_people(errand.path, owners, seal) for owners in (merging.before, merging.kept))
    with errand.attempt("people") as name:
        found = merged(runs, merging.dealt, before, kept, part, merging.parts, only_erased=merging.only_erased)
        files.create(errand.path / name, *segment_bytes(found.hashes, found.slots, seal))
        files.sync_folder(errand.path)
    return Owners(name, len(found.slots), part, merging.parts), found.people, found.known, found.erased


def sum_stripes(
    layout: Layout, encoder: Encoder, stripes: tuple[int, int], live: bytes, change: Change | None
) -> list[tuple[Any, int, int]]:
    """The moments of every learner over stripes whose slots in use are ``live``, eight to a byte."""
    roomy_memory()
    bits, first = Bits.zeros(layout.slots), stripes[0] * encoder.code.shards // 8
    bits.packed[first : first + len(live)] = np.frombuffer(live, dtype=np.uint8)
    return as_plain(moments_of(encoder, RowFile(_guarded(layout), bits), range(*stripes), change))


def look_at_rows(layout: Layout, numbers: tuple[int, int]) -> str | None:
    """What is wrong with rows of these numbers."""
    roomy_memory()
    return wrong_in_rows(RowFile.open(_guarded(layout)), range(*numbers))


def count_owners(folder: str, owners: tuple[Owners, ...], part: int, parts: int, seal: bytes) -> Owned:
    """Count the entries of one range of hashes."""
    roomy_memory()
    return owned_in(_people(VaultFolder(folder), owners, seal), part, parts, seal)


def plain(layout: Layout) -> Layout:
    """A layout to be sent: its folder is a plain path."""
    return replace(layout, folder=Path(str(layout.folder)), dealt=replace(layout.dealt))


def _guarded(layout: Layout) -> Layout:
    """A layout that was sent: what lies in its folder is checked."""
    return replace(layout, folder=VaultFolder(layout.folder))


def add_sums(parts: Sequence[list[tuple[Any, int, int]]]) -> list[tuple[Any, int, int]]:
    """The moments of the stripes of all parts."""
    from ..learning.summing import added

    return as_plain(added([from_plain(part) for part in parts]))


def as_plain(moments: Sequence[Moments]) -> list[tuple[Any, int, int]]:
    """Moments as arrays and counts, to be sent."""
    return [(one.limbs, one.rows, one.coded_rows) for one in moments]


def from_plain(parts: Sequence[tuple[Any, int, int]]) -> list[Moments]:
    """The inverse of `as_plain`."""
    return [Moments(*part) for part in parts]


def sees(errand: Errand) -> bool:
    """Whether a worker sees the folder of the vault, and may write to it."""
    try:
        errand.check()
        with errand.attempt("owners") as name:
            files.create(errand.path / name)
            files.wipe(errand.path / name)
    except (OSError, ExpungeError):
        return False
    return True


@cache
def roomy_memory() -> None:
    """Let the C library keep freed memory, which Dask's nanny tells it not to: our blocks would be three times slower.

    M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt; elsewhere there is nothing to undo.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 * 2**20)
        mallopt(-1, 128 * 2**20)


def _charter(folder: str, schema: File, blueprint: File) -> tuple[Schema, Blueprint]:
    """Read and check the schema and the blueprint of a request."""
    found = Folder(VaultFolder(folder))
    with Archive(BytesIO(found.read(blueprint)), name=blueprint.name) as archive:
        return Schema.from_json(found.read(schema).decode()), load_blueprint(archive)


def _people(folder: VaultFolder, owners: Sequence[Owners], seal: bytes) -> People:
    return People([Segment(folder / one.name, one.count, seal, one.part, one.parts) for one in owners])
