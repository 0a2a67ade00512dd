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
from typing import Any

import numpy as np

from .. import tables
from ..encoding.encoder import Encoder
from ..encoding.placement import Placement
from ..errors import ClusterFailed, ExpungeError
from ..exact.moments import Moments
from ..learning.blueprint import Blueprint
from ..learning.rules import add_moments, sum_moments
from ..saving import files
from ..saving.archive import Archive
from ..saving.files import VaultDir, VaultFile
from ..saving.format import load_blueprint
from ..saving.ownership import VaultFolder
from ..stores.bits import Bits
from ..stores.change import Change
from ..tables import Piece, Schema
from ..vault.certificates.commitments import Commitments
from ..vault.disk.folder import Folder
from ..vault.disk.manifest import ImmutableFile, PeopleSegment, RowSegment
from ..vault.disk.rowfile import RowFile, RowLayout
from ..vault.disk.runs import RunCollector, RunFile, merge_range
from ..vault.disk.segments import segment_bytes
from ..vault.disk.snapshot import OwnershipCount, count_owned_rows, find_row_damage, load_people
from ..vault.requests.intake import Intake, IntakeSummary
from ..versions import versions


@dataclass(frozen=True)
class VaultFingerprint:
    """What a worker must see and be, or its answer would be about another vault, or in other bits."""

    folder: str
    manifest_digest: str  # the SHA-256 of the manifest that counts; none before the first training
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def from_folder(cls, folder: Folder) -> "VaultFingerprint":
        """What the process that asks sees."""
        return cls(str(folder.path), _digest_manifest(folder), tuple(versions().items()))

    @property
    def path(self) -> VaultFolder:
        """The folder of the vault."""
        return VaultFolder(self.folder)

    def check(self) -> None:
        """Refuse a worker with other versions, and a folder of that name that is another, or a copy."""
        if different := [
            f"{name} {WORKER_VERSIONS[name]} instead of {it}"
            for name, it in self.versions
            if WORKER_VERSIONS[name] != it
        ]:
            raise ClusterFailed(f"a worker has other versions than who asked: {', '.join(different)}; install the same")
        if _digest_manifest(Folder(self.path)) != self.manifest_digest:
            raise ClusterFailed(
                f"{self.folder} is another vault, or another state of it, for a worker than for who asked: it must "
                "lie on a file system that all workers share"
            )


WORKER_VERSIONS = versions()  # of this process


def _digest_manifest(folder: Folder) -> str:
    """A hash of the manifest that counts."""
    manifest = folder.read_current_manifest() if folder.path.is_dir() else None
    return "" if manifest is None else hashlib.sha256(manifest.to_bytes()).hexdigest()


@dataclass(frozen=True)
class TaskRequest:
    """The request that tasks write files for."""

    fingerprint: VaultFingerprint
    number: int
    token: str

    @property
    def folder(self) -> VaultDir:
        """The folder of the vault."""
        return VaultDir(self.fingerprint.path)

    @property
    def token_file(self) -> VaultFile:
        """The file that has the token, as long as the request is prepared."""
        return self.folder / f"training.{self.number}"

    def check_token(self) -> None:
        """Refuse to go on for a request that is not being prepared any more."""
        with suppress(FileNotFoundError):
            if files.read(self.token_file, max_bytes=100) == self.token.encode():
                return
        raise ClusterFailed(f"{self.folder} is not, or no longer, the folder of the vault that asked")

    @contextmanager
    def attempt(self, name: str) -> Iterator[str]:
        """Yield a name for a new file that nobody else has; what fails, or is not wanted any more, is wiped."""
        self.fingerprint.check()
        self.check_token()
        mine = f"{name}.{self.number}.{secrets.randbits(62)}"
        try:
            yield mine
            self.check_token()
        except BaseException:
            with suppress(OSError, ExpungeError):
                for one in self.folder.names():
                    if one == mine or one.startswith(f"{mine}."):
                        files.wipe(self.folder / one)
            raise


@dataclass(frozen=True)
class IntakeOrder:
    """How a table is taken in."""

    schema: ImmutableFile
    blueprint: ImmutableFile
    people: tuple[PeopleSegment, ...]  # before these rows
    first_row: int  # the number of the first row
    with_commitments: bool  # whether there are to be receipts
    clip: bool


@dataclass(frozen=True)
class StoredPieces:
    """Pieces of a table that were taken in: names and counts of files, and what there is to tell."""

    summary: IntakeSummary
    segment: RowSegment
    runs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class RefusedPieces:
    """Pieces of a table that cannot be taken: what is wrong with each, or None."""

    errors: tuple[ExpungeError | None, ...]


def store_pieces(request: TaskRequest, order: IntakeOrder, pieces: Sequence[Piece]) -> StoredPieces | RefusedPieces:
    """Write the rows of neighbouring pieces of a table, and whose they are, into files of their own, synced."""
    keep_freed_memory()
    folder = Folder(request.fingerprint.path)
    identity = folder.read_identity()
    schema, blueprint = _read_definition(folder, order.schema, order.blueprint)
    people = load_people(folder, order.people, identity.seal)
    commitments = Commitments(identity.key, identity.vault, request.number) if order.with_commitments else None
    with request.attempt("rows") as rows, request.attempt("owners") as owners:
        gathering, first = RunCollector(request.folder, owners, request.check_token), order.first_row + pieces[0].before
        intake = Intake(
            identity,
            schema,
            blueprint,
            people,
            first,
            gathering,
            commitments,
            order.clip,
            check_process=request.check_token,
        )
        errors = tuple(_store_piece(intake, request.folder / rows, piece, schema) for piece in pieces)
        if any(error is not None for error in errors):
            files.wipe(request.folder / rows)
            return RefusedPieces(errors)
        gathering.flush()
        request.folder.sync()
        runs = tuple((run.file.name, run.count) for run in gathering.runs)
        return StoredPieces(intake.summary, RowSegment(rows, intake.summary.rows), runs)


def _store_piece(intake: Intake, path: VaultFile, piece: Piece, schema: Schema) -> ExpungeError | None:
    """Take a piece in, or say what is wrong with it: then the others are read as well, to count."""
    try:
        for _ in intake.write_rows(
            path, tables.read_piece(piece, schema, targets=True, ids=True), wipe_on_failure=True
        ):
            pass
    except ClusterFailed:
        raise
    except ExpungeError as error:
        return error
    return None


@dataclass(frozen=True)
class MergeOrder:
    """What is merged into new segments of people."""

    runs: tuple[tuple[str, int], ...]
    dealt: Placement
    before: tuple[PeopleSegment, ...]
    kept: tuple[PeopleSegment, ...]
    only_erased: bool
    parts: int


def merge_part(request: TaskRequest, order: MergeOrder, part: int) -> tuple[PeopleSegment, int, int, int]:
    """Write the segment of one range of hashes, synced; and how many people come, were known, and are erased."""
    keep_freed_memory()
    folder = Folder(request.fingerprint.path)
    seal = folder.read_identity().seal
    runs = [RunFile(request.folder / name, count) for name, count in order.runs]
    before, kept = (load_people(folder, owners, seal) for owners in (order.before, order.kept))
    with request.attempt("people") as name:
        found = merge_range(runs, order.dealt, before, kept, part, order.parts, only_erased=order.only_erased)
        files.create_if(request.check_token, request.folder / name, *segment_bytes(found.hashes, found.slots, seal))
        request.folder.sync()
    return PeopleSegment(name, len(found.slots), part, order.parts), found.people, found.known, found.erased


def sum_stripes(
    fingerprint: VaultFingerprint,
    layout: RowLayout,
    encoder: Encoder,
    stripes: tuple[int, int],
    live: bytes,
    change: Change | None,
) -> list[tuple[Any, int, int]]:
    """The moments of every learner over stripes whose slots in use are ``live``, eight to a byte."""
    keep_freed_memory()
    fingerprint.check()
    bits, first = Bits.zeros(layout.slots), stripes[0] * encoder.code.shards // 8
    bits.packed[first : first + len(live)] = np.frombuffer(live, dtype=np.uint8)
    return pack_moments(sum_moments(encoder, RowFile(layout, bits), range(*stripes), change))


def find_damaged_rows(fingerprint: VaultFingerprint, layout: RowLayout, numbers: tuple[int, int]) -> str | None:
    """What is wrong with rows of these numbers."""
    keep_freed_memory()
    fingerprint.check()
    return find_row_damage(RowFile.open(layout), range(*numbers))


def count_owned(
    fingerprint: VaultFingerprint, owners: tuple[PeopleSegment, ...], part: int, parts: int, seal: bytes
) -> OwnershipCount:
    """Count the entries of one range of hashes."""
    keep_freed_memory()
    fingerprint.check()
    return count_owned_rows(load_people(Folder(fingerprint.path), owners, seal), part, parts, seal)


def pack_layout(layout: RowLayout) -> RowLayout:
    """Return a layout to be sent, without what its placement has cached."""
    return replace(layout, dealt=replace(layout.dealt))


def add_packed_moments(parts: Sequence[list[tuple[Any, int, int]]]) -> list[tuple[Any, int, int]]:
    """The moments of the stripes of all parts."""
    return pack_moments(add_moments([unpack_moments(part) for part in parts]))


def pack_moments(moments: Sequence[Moments]) -> list[tuple[Any, int, int]]:
    """Moments as arrays and counts, to be sent."""
    return [(one.limbs, one.rows, one.coded_rows) for one in moments]


def unpack_moments(parts: Sequence[tuple[Any, int, int]]) -> list[Moments]:
    """The inverse of `as_plain`."""
    return [Moments(*part) for part in parts]


def can_use_folder(request: TaskRequest) -> bool:
    """Whether a worker sees the folder of the vault, and may write to it."""
    try:
        with request.attempt("owners") as name:
            files.create(request.folder / name)
            files.wipe(request.folder / name)
    except (OSError, ExpungeError):
        return False
    return True


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory, which Dask's nanny tells it not to: our blocks would be three times slower.

    M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt; elsewhere there is nothing to undo.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 * 2**20)
        mallopt(-1, 128 * 2**20)


def _read_definition(folder: Folder, schema: ImmutableFile, blueprint: ImmutableFile) -> tuple[Schema, Blueprint]:
    """Read and check the schema and the blueprint of a request."""
    with Archive(BytesIO(folder.read(blueprint)), name=blueprint.name) as archive:
        return Schema.from_json(folder.read(schema).decode()), load_blueprint(archive)
