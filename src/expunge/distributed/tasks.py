"""Tasks: what workers do with the files of a vault. Each is a pure function of files and ranges.

A task returns names, counts and sums, never a row or an id. A file that it writes has a name that no other attempt has:
a task that runs twice, because its worker was lost or only seemed to be, disturbs nobody, and the files of an attempt
that does not count are wiped like all leftovers. The token says that the request is still being prepared: without it a
worker that was cut off stops, and wipes what it wrote.
"""

import ctypes
import hashlib
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
from ..errors import ClusterFailed, ExpungeError
from ..exact.moments import Moments
from ..learning.blueprint import Blueprint
from ..learning.summing import added, moments_of
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
from ..vault.disk.manifest import File, Owners, RowSegment
from ..vault.disk.rowfile import Layout, RowFile
from ..vault.disk.runs import Gathering, WrittenRun, merged
from ..vault.disk.segments import segment_bytes
from ..vault.disk.snapshot import load_people
from ..vault.requests.intake import Intake, Taken
from ..vault.tables import Piece, Schema
from ..versions import versions


@dataclass(frozen=True)
class Sight:
    """What a worker must see and be, or its answer would be about another vault, or in other bits."""

    folder: str
    state: str  # the SHA-256 of the manifest that counts; none before the first training
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, folder: Folder) -> "Sight":
        """What the process that asks sees."""
        return cls(str(folder.path), _state(folder), tuple(versions().items()))

    @property
    def path(self) -> VaultFolder:
        """The folder of the vault."""
        return VaultFolder(self.folder)

    def check(self) -> None:
        """Refuse a worker with other versions, and a folder of that name that is another, or a copy."""
        if different := [f"{name} {there[name]} instead of {it}" for name, it in self.versions if there[name] != it]:
            raise ClusterFailed(f"a worker has other versions than who asked: {', '.join(different)}; install the same")
        if _state(Folder(self.path)) != self.state:
            raise ClusterFailed(
                f"{self.folder} is another vault, or another state of it, for a worker than for who asked: it must "
                "lie on a file system that all workers share"
            )


there = versions()  # of this process


def _state(folder: Folder) -> str:
    """A hash of the manifest that counts."""
    manifest = folder.current() if folder.path.is_dir() else None
    return "" if manifest is None else hashlib.sha256(manifest.to_bytes()).hexdigest()


@dataclass(frozen=True)
class Errand:
    """The request that tasks write files for."""

    sight: Sight
    number: int
    token: str

    @property
    def path(self) -> VaultFolder:
        """The folder of the vault."""
        return self.sight.path

    @property
    def token_file(self) -> Path:
        """The file that has the token, as long as the request is prepared."""
        return self.path / f"training.{self.number}"

    def check(self) -> None:
        """Refuse to go on for a request that is not being prepared any more."""
        with suppress(FileNotFoundError):
            if files.read(self.token_file, most=100) == self.token.encode():
                return
        raise ClusterFailed(f"{self.path} is not, or no longer, the folder of the vault that asked")

    @contextmanager
    def attempt(self, name: str) -> Iterator[str]:
        """Yield a name for a new file that nobody else has; what fails, or is not wanted any more, is wiped."""
        self.sight.check()
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
class TakenPieces:
    """Pieces of a table that were taken in: names and counts of files, and what there is to tell."""

    taken: Taken
    segment: RowSegment
    runs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Refused:
    """Pieces of a table that cannot be taken: what is wrong with each, or None."""

    errors: tuple[ExpungeError | None, ...]


def take_pieces(errand: Errand, order: Order, pieces: Sequence[Piece]) -> TakenPieces | Refused:
    """Write the rows of neighbouring pieces of a table, and whose they are, into files of their own, synced."""
    roomy_memory()
    folder = Folder(errand.path)
    identity = folder.identity()
    schema, blueprint = _charter(folder, order.schema, order.blueprint)
    people = load_people(folder, order.people, identity.seal)
    commitments = Commitments(identity.key, identity.vault, errand.number) if order.commits else None
    with errand.attempt("rows") as rows, errand.attempt("owners") as owners:
        gathering, first = Gathering(errand.path, owners, errand.check), order.first + pieces[0].before
        intake = Intake(
            identity, schema, blueprint, people, first, gathering, commitments, order.clip, check=errand.check
        )
        errors = tuple(_refusal(intake, errand.path / rows, piece, schema) for piece in pieces)
        if any(error is not None for error in errors):
            files.wipe(errand.path / rows)
            return Refused(errors)
        gathering.flush()
        files.sync_folder(errand.path)
        runs = tuple((run.path.name, run.count) for run in gathering.runs)
        return TakenPieces(intake.taken, RowSegment(rows, intake.taken.rows), runs)


def _refusal(intake: Intake, path: Path, piece: Piece, schema: Schema) -> ExpungeError | None:
    """Take a piece in, or say what is wrong with it: then the others are read as well, to count."""
    try:
        for _ in intake.take(path, tables.read_piece(piece, schema, targets=True, ids=True), own=True):
            pass
    except ClusterFailed:
        raise
    except ExpungeError as error:
        return error
    return None


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
    folder = Folder(errand.path)
    seal = folder.identity().seal
    runs = [WrittenRun(errand.path / name, count) for name, count in merging.runs]
    before, kept = (load_people(folder, owners, seal) for owners in (merging.before, merging.kept))
    with errand.attempt("people") as name:
        found = merged(runs, merging.dealt, before, kept, part, merging.parts, only_erased=merging.only_erased)
        files.create_if(errand.check, errand.path / name, *segment_bytes(found.hashes, found.slots, seal))
        files.sync_folder(errand.path)
    return Owners(name, len(found.slots), part, merging.parts), found.people, found.known, found.erased


def sum_stripes(
    sight: Sight, layout: Layout, encoder: Encoder, stripes: tuple[int, int], live: bytes, change: Change | None
) -> list[tuple[Any, int, int]]:
    """The moments of every learner over stripes whose slots in use are ``live``, eight to a byte."""
    roomy_memory()
    sight.check()
    bits, first = Bits.zeros(layout.slots), stripes[0] * encoder.code.shards // 8
    bits.packed[first : first + len(live)] = np.frombuffer(live, dtype=np.uint8)
    return as_plain(moments_of(encoder, RowFile(_guarded(layout), bits), range(*stripes), change))


def look_at_rows(sight: Sight, layout: Layout, numbers: tuple[int, int]) -> str | None:
    """What is wrong with rows of these numbers."""
    roomy_memory()
    sight.check()
    return wrong_in_rows(RowFile.open(_guarded(layout)), range(*numbers))


def count_owners(sight: Sight, owners: tuple[Owners, ...], part: int, parts: int, seal: bytes) -> Owned:
    """Count the entries of one range of hashes."""
    roomy_memory()
    sight.check()
    return owned_in(load_people(Folder(sight.path), owners, seal), part, parts, seal)


def plain(layout: Layout) -> Layout:
    """A layout to be sent: its folder is a plain path."""
    return replace(layout, folder=Path(str(layout.folder)), dealt=replace(layout.dealt))


def _guarded(layout: Layout) -> Layout:
    """A layout that was sent: what lies in its folder is checked."""
    return replace(layout, folder=VaultFolder(layout.folder))


def add_sums(parts: Sequence[list[tuple[Any, int, int]]]) -> list[tuple[Any, int, int]]:
    """The moments of the stripes of all parts."""
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


def _charter(folder: Folder, schema: File, blueprint: File) -> tuple[Schema, Blueprint]:
    """Read and check the schema and the blueprint of a request."""
    with Archive(BytesIO(folder.read(blueprint)), name=blueprint.name) as archive:
        return Schema.from_json(folder.read(schema).decode()), load_blueprint(archive)
