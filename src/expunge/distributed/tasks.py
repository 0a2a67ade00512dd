"""Tasks: what workers do with the files of a vault. Each is a pure function of files and ranges.

A task returns names, counts and sums, never a row or an id. Every attempt writes files under names of its own. So a
task may run twice, because its worker was lost or seemed to be, without harm: the files of the attempt that does not
count are wiped like all leftovers. The token shows that the request is still being prepared: without it a worker that
was cut off stops, and wipes what it wrote.
"""

import ctypes
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
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
from ..vault.disk.manifest import ImmutableFile, PeopleSegment, Planning, RowSegment
from ..vault.disk.people import segment_bytes
from ..vault.disk.rowfile import RowFile, RowLayout
from ..vault.disk.runs import RunCollector, RunFile, merge_range
from ..vault.disk.snapshot import OwnershipCount, count_owned_rows, find_row_damage, load_people
from ..vault.requests.intake import Intake, IntakeSummary
from ..versions import versions


@dataclass(frozen=True)
class VaultFingerprint:
    """The vault's state and the versions that a worker must have: with others the result could differ."""

    folder: str
    manifest_digest: str  # SHA-256 of the current manifest; "" before the first training
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def from_folder(cls, folder: Folder) -> "VaultFingerprint":
        """Return the fingerprint of a vault as this process sees it."""
        return cls(str(folder.path), _digest_manifest(folder), tuple(versions().items()))

    @property
    def path(self) -> VaultFolder:
        """The folder of the vault."""
        return VaultFolder(self.folder)

    def check(self) -> None:
        """Refuse to work with different versions, or on a different vault or state in the same folder."""
        compare_versions(WORKER_VERSIONS, dict(self.versions))
        if _digest_manifest(Folder(self.path)) != self.manifest_digest:
            raise ClusterFailed(
                f"a worker sees a different vault in {self.folder}, or another state of it: the folder must lie on a "
                "file system that all workers share"
            )


WORKER_VERSIONS = versions()  # of this process


def compare_versions(actual: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuse a worker whose versions differ from those of the process that gives it tasks."""
    different = [name for name in expected if actual.get(name) != expected[name]]
    if different:
        details = ", ".join(f"{name} {actual.get(name)} instead of {expected[name]}" for name in different)
        raise ClusterFailed(
            f"the versions of a worker and the calling process differ: {details}; install the same versions"
        )


def _digest_manifest(folder: Folder) -> str:
    """Return the SHA-256 of the current manifest, or "" if there is none."""
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
        """The file that holds the token while the request is being prepared."""
        return self.folder / f"training.{self.number}"

    def check_token(self) -> None:
        """Raise an error if the request is no longer being prepared."""
        with suppress(FileNotFoundError):
            if files.read(self.token_file, max_bytes=100) == self.token.encode():
                return
        raise ClusterFailed(
            f"a worker finds no sign of this request in {self.folder}: it has ended, or the folder is not the vault's"
        )

    @contextmanager
    def attempt(self, name: str) -> Iterator[str]:
        """Yield a unique name for a new file; wipe the file if this fails, or if the request is over."""
        self.fingerprint.check()
        self.check_token()
        unique_name = f"{name}.{self.number}.{secrets.randbits(62)}"
        try:
            yield unique_name
            self.check_token()
        except BaseException:
            with suppress(OSError, ExpungeError):
                for file_name in self.folder.names():
                    if file_name == unique_name or file_name.startswith(f"{unique_name}."):
                        files.wipe(self.folder / file_name)
            raise


@dataclass(frozen=True)
class IntakeOrder:
    """How the rows of a table are checked and stored."""

    schema: ImmutableFile
    blueprint: ImmutableFile
    people: tuple[PeopleSegment, ...]  # before these rows
    first_row: int  # the number of the first row
    planning: Planning | None  # how a plan ranks people
    with_commitments: bool  # whether receipts will be issued
    clip: bool


@dataclass(frozen=True)
class StoredPieces:
    """Pieces of a table that were stored: names and counts of files, and a summary."""

    summary: IntakeSummary
    segment: RowSegment
    runs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class RefusedPieces:
    """Pieces of a table that were refused: the error of each, or None."""

    errors: tuple[ExpungeError | None, ...]


def store_pieces(request: TaskRequest, order: IntakeOrder, pieces: Sequence[Piece]) -> StoredPieces | RefusedPieces:
    """Write the rows of neighbouring pieces of a table, and their owners, into new files, synced."""
    keep_freed_memory()
    folder = Folder(request.fingerprint.path)
    identity = folder.read_identity()
    schema, blueprint = _read_definition(folder, order.schema, order.blueprint)
    people = load_people(folder, order.people, identity.seal)
    commitments = Commitments(identity.key, identity.vault, request.number) if order.with_commitments else None
    with request.attempt("rows") as rows, request.attempt("owners") as owners:
        collector = RunCollector(request.folder, owners, request.check_token)
        intake = Intake(
            identity,
            schema,
            blueprint,
            people,
            order.first_row + pieces[0].before,
            collector,
            order.planning,
            commitments,
            order.clip,
            check_process=request.check_token,
        )
        errors = tuple(_store_piece(intake, request.folder / rows, piece, schema) for piece in pieces)
        if any(error is not None for error in errors):
            files.wipe(request.folder / rows)
            return RefusedPieces(errors)
        collector.flush()
        request.folder.sync()
        runs = tuple((run.file.name, run.count) for run in collector.runs)
        return StoredPieces(intake.summary, RowSegment(rows, intake.summary.rows), runs)


def _store_piece(intake: Intake, path: VaultFile, piece: Piece, schema: Schema) -> ExpungeError | None:
    """Store a piece, or return its error: the other pieces are then still read, to count invalid rows."""
    try:
        parts = tables.read_piece(piece, schema, targets=True, ids=True)
        for _ in intake.write_rows(path, parts, wipe_on_failure=True):
            pass
    except ClusterFailed:
        raise
    except ExpungeError as error:
        return error
    return None


@dataclass(frozen=True)
class MergeOrder:
    """The files that are merged into new segments of people."""

    runs: tuple[tuple[str, int], ...]
    dealt: Placement
    before: tuple[PeopleSegment, ...]
    kept: tuple[PeopleSegment, ...]
    only_erased: bool
    parts: int


def merge_part(request: TaskRequest, order: MergeOrder, part: int) -> tuple[PeopleSegment, int, int, int]:
    """Write the segment of one range of hashes, synced; also return the counts of new, known and erased people."""
    keep_freed_memory()
    folder = Folder(request.fingerprint.path)
    seal = folder.read_identity().seal
    runs = [RunFile(request.folder / name, count) for name, count in order.runs]
    before, kept = (load_people(folder, owners, seal) for owners in (order.before, order.kept))
    with request.attempt("people") as name:
        merged = merge_range(runs, order.dealt, before, kept, part, order.parts, only_erased=order.only_erased)
        files.create_if(request.check_token, request.folder / name, *segment_bytes(merged.hashes, merged.slots, seal))
        request.folder.sync()
    return PeopleSegment(name, len(merged.slots), part, order.parts), merged.people, merged.known, merged.erased


def sum_stripes(
    fingerprint: VaultFingerprint,
    layout: RowLayout,
    encoder: Encoder,
    stripes: tuple[int, int],
    live: bytes,
    change: Change | None,
) -> list[tuple[Any, int, int]]:
    """Return every learner's moments over stripes; ``live`` holds one bit per slot, set if the slot is in use."""
    keep_freed_memory()
    fingerprint.check()
    bits, first = Bits.zeros(layout.slots), stripes[0] * encoder.code.shards // 8
    bits.packed[first : first + len(live)] = np.frombuffer(live, dtype=np.uint8)
    return pack_moments(sum_moments(encoder, RowFile(layout, bits), range(*stripes), change))


def find_damaged_rows(fingerprint: VaultFingerprint, layout: RowLayout, numbers: tuple[int, int]) -> str | None:
    """Return what is wrong with the rows of these numbers, or None."""
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
    """Add the moments of all parts."""
    return pack_moments(add_moments([unpack_moments(part) for part in parts]))


def pack_moments(moments: Sequence[Moments]) -> list[tuple[Any, int, int]]:
    """Return moments as arrays and counts, for sending."""
    return [(each.limbs, each.rows, each.coded_rows) for each in moments]


def unpack_moments(parts: Sequence[tuple[Any, int, int]]) -> list[Moments]:
    """Undo `pack_moments`."""
    return [Moments(*part) for part in parts]


def can_use_folder(request: TaskRequest) -> bool:
    """Return whether a worker sees the folder of the vault, and can write to it."""
    try:
        with request.attempt("owners") as name:
            files.create(request.folder / name)
            files.wipe(request.folder / name)
    except (OSError, ExpungeError):
        return False
    return True


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory: with Dask's own setting our blocks are three times slower.

    Sets M_MMAP_THRESHOLD and M_TRIM_THRESHOLD with glibc's mallopt; other C libraries need nothing.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 * 2**20)
        mallopt(-1, 128 * 2**20)


def _read_definition(folder: Folder, schema: ImmutableFile, blueprint: ImmutableFile) -> tuple[Schema, Blueprint]:
    """Read and check the schema and the blueprint of a request."""
    with Archive(BytesIO(folder.read(blueprint)), name=blueprint.name) as archive:
        return Schema.from_json(folder.read(schema).decode()), load_blueprint(archive)
