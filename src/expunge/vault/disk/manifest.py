"""The manifest: which files are the vault's state, as of which request.

Manifests and learners have two pages each, files of which one counts; the other is the *spare*, which is empty. Every
request writes a manifest into the spare. The tiny file `current` says which page counts (`pointers`): to change that is
the commit. Then the page before, which holds fingerprints of the old state, is wiped: it is the spare of the next
request, and no name in the folder has changed. Everything else in the folder is a leftover. The salt makes the
commitment in a certificate worthless to whoever does not have this manifest, and goes with it.
"""

import hashlib
import json
import math
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

from ...errors import InvalidFile
from ..ledger.records import Position

# MERGED fields: Fields: whether what a file held has the types that a class declares. A file may hold anything.


UInt64 = NewType("UInt64", int)  # of 64 bits


def matches_type(value: Any, type_: Any) -> bool:
    """Return whether a value is of this type: a dataclass, tuple, union or plain type; whole numbers are not negative.

    A float may be written as a whole number, and is finite.
    """
    inside = get_args(type_)
    if get_origin(type_) is tuple:
        return type(value) is tuple and all(matches_type(one, inside[0]) for one in value)
    if isinstance(type_, UnionType):
        return any(matches_type(value, one) for one in inside)
    if type_ is float:
        return isinstance(value, int | float) and type(value) is not bool and abs(value) <= sys.float_info.max
    if type_ is int or type_ is UInt64:
        return type(value) is int and 0 <= value < 2 ** (63 if type_ is int else 64)
    if type(value) is not type_:
        return False
    return all(matches_type(getattr(value, name), one) for name, one in _hints(type_).items())


def _read_hints(type_: Any) -> dict[str, Any]:
    """The fields of a class and their types; a plain type has none."""
    return get_type_hints(type_) if is_dataclass(type_) else {}


_hints: Callable[[Any], dict[str, Any]] = cache(_read_hints)


VERSION = 9
MAX_MANIFEST_BYTES = 2**26  # more than any manifest has
_NO_SUM = b'"sum":""'
_LEARNER_NAME = re.compile(r"learner\.\d+\.\d+\.[01]")


@dataclass(frozen=True)
class ImmutableFile:
    """A file that never changes, and the SHA-256 of its content."""

    name: str
    sum: str


@dataclass(frozen=True)
class LearnerFile:
    """The file of a learner: its weights, and then its moments. ``sum`` is the moments' digest."""

    name: str
    sum: str
    weights: str  # the SHA-256 of their part of the file
    rows: int
    coded_rows: int

    @property
    def spare(self) -> str:
        """The other page of the learner."""
        return f"{self.name[:-1]}{1 - int(self.name[-1])}"


@dataclass(frozen=True)
class StoredExtent:
    """The bounds in force of inputs or targets, and how many rows lie on each."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    at_low: tuple[int, ...]
    at_high: tuple[int, ...]
    unit: bool


@dataclass(frozen=True)
class RowSegment:
    """A file of rows, and the number of its entries."""

    name: str
    count: int


@dataclass(frozen=True)
class PeopleSegment:
    """A segment of people: the number of its entries, and which of how many equal ranges of hashes it has."""

    name: str
    count: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class ModelSummary:
    """What people ask about a model, so that they need not wait for the rest to be loaded."""

    targets: tuple[str, ...]
    columns: tuple[str, ...]  # that the inputs come from
    inputs: tuple[str, ...]
    shards: int
    learners: int
    alpha: float
    features: str
    scales: str
    target_scales: str
    outside: str
    observed_bounds: bool
    fold_case: bool  # whether ids that differ only in case are the same
    clone_of: str = ""  # the vault that it is a clone of, and the request that this was at: UUID/number


@dataclass(frozen=True)
class Manifest:
    """The state of a vault after a request."""

    vault: str
    request: int  # the newest that is carried out
    page: int  # 0 or 1: which of the two files it is in
    training: int  # the request that trained the model
    before: Position  # where the ledger's record of that request begins
    record: str  # that record's hash
    drawn: int  # slots given out so far
    rows: int
    slots_sum: UInt64  # of the slots that have a row
    owners: int  # ids that have rows
    erased: int  # ids that are erased and not readmitted
    salt: str
    keys: tuple[str, ...]  # that signed for the vault before this request, the newest first
    schema: ImmutableFile
    blueprint: ImmutableFile
    learners: tuple[LearnerFile, ...]
    segments: tuple[RowSegment, ...]  # the rows, in the order in which they came
    batches: tuple[int, ...]  # the number of the first row of each batch: the slots follow from these and the key
    people: tuple[PeopleSegment, ...]
    inputs: StoredExtent
    targets: StoredExtent
    stage: ImmutableFile | None  # corrected rows, until they are in their slots
    about: ModelSummary

    @property
    def charter(self) -> tuple[ImmutableFile, ImmutableFile]:
        """The files of the schema and of the blueprint."""
        return self.schema, self.blueprint

    @property
    def seal(self) -> bytes:
        """What is mixed into the checksums of this vault's rows and people."""
        return uuid.UUID(self.vault).bytes

    @property
    def name(self) -> str:
        """The file that it is in."""
        return manifest_name(self.page)

    @property
    def spare(self) -> str:
        """The other page of the manifest."""
        return manifest_name(1 - self.page)

    @property
    def live_file(self) -> str:
        """The file that says which slots have a row."""
        return f"live.{self.training}"

    @property
    def file_names(self) -> set[str]:
        """Every file that is part of the state, but for the stage, which is not once the rows are in their slots."""
        files = (self.schema, self.blueprint)
        learners, rows, people = (
            {part.name for part in parts} for parts in (self.learners, self.segments, self.people)
        )
        return {file.name for file in files} | learners | rows | people | {self.live_file, self.name}

    @property
    def spares(self) -> set[str]:
        """The pages that do not count: if they are there, they are empty."""
        return {self.spare, *(learner.spare for learner in self.learners)}

    def to_bytes(self) -> bytes:
        """As JSON, with a checksum."""
        content = _canonical_json({"format": "expunge vault", "version": VERSION, **vars(self), "sum": ""})
        before, after = content.rsplit(_NO_SUM, 1)  # no text within is such: its quotes would be escaped
        return b'%b"sum":"%b"%b' % (before, hashlib.sha256(content).hexdigest().encode(), after)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> "Manifest":
        """Read a manifest; anything that is not one is refused."""
        try:
            content = json.loads(data)
            del content["sum"]
            if content.pop("format") != "expunge vault":
                raise InvalidFile(f"{path} is not the manifest of a vault")
            if (version := content.pop("version")) != VERSION:
                raise InvalidFile(
                    f"{path} has version {version!r}; this release reads version {VERSION} only: "
                    "use the release that made it, or train the vault anew"
                )
            manifest = _decode_manifest(content)
            whole = manifest.to_bytes() == data
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidFile):
                raise
            raise InvalidFile(f"{path} is damaged, or not the manifest of a vault") from error
        if not whole:
            raise InvalidFile(f"{path} is damaged: it fails its checksum")
        return manifest


def manifest_name(page: int) -> str:
    """The file that is a page of the manifest."""
    return f"manifest.{page}"


def _decode_manifest(content: Mapping[str, Any]) -> Manifest:
    fields = dict(content)
    fields["vault"] = str(uuid.UUID(fields["vault"]))
    fields["before"] = Position(**fields["before"])
    for name in ("schema", "blueprint", "stage"):
        fields[name] = None if fields[name] is None else ImmutableFile(**fields[name])
    fields["keys"] = tuple(map(str, fields["keys"]))
    fields["learners"] = tuple(LearnerFile(**learner) for learner in fields["learners"])
    fields["segments"] = tuple(RowSegment(**batch) for batch in fields["segments"])
    fields["batches"] = tuple(fields["batches"])
    fields["people"] = tuple(PeopleSegment(**batch) for batch in fields["people"])
    for name in ("inputs", "targets"):
        unit = fields[name].pop("unit")
        fields[name] = StoredExtent(**{k: tuple(v) for k, v in fields[name].items()}, unit=unit)
    about: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields["about"].items()
    }
    manifest = Manifest(**{**fields, "about": ModelSummary(**about)})
    staged = {manifest.stage.name} if manifest.stage else set()
    if any(
        Path(name).name != name or not (name.isascii() and name.isprintable()) for name in manifest.file_names | staged
    ):
        raise ValueError("a name is a file in the folder, never a path out of it")
    _check_manifest(manifest)
    return manifest


def _check_manifest(manifest: Manifest) -> None:
    """Refuse fields of other types, or that do not fit each other."""
    if not matches_type(manifest, Manifest):
        raise ValueError("a field has a value of another type")
    if manifest.page > 1 or not all(_LEARNER_NAME.fullmatch(learner.name) for learner in manifest.learners):
        raise ValueError("there are two pages of everything")
    for text in (manifest.salt, *(learner.sum for learner in manifest.learners)):
        bytes.fromhex(text)
    for side in (manifest.inputs, manifest.targets):
        if len({len(side.low), len(side.high), len(side.at_low), len(side.at_high)}) > 1:
            raise ValueError("a side has as many lower as upper bounds")
        if not all(math.isfinite(high - low) for low, high in zip(side.low, side.high, strict=True)):
            raise ValueError("bounds are too far apart")
    if sum(segment.count for segment in manifest.segments) != manifest.drawn or not manifest.segments:
        raise ValueError("there are other rows than it says")
    if manifest.batches[:1] != (0,) or list(manifest.batches) != sorted({*manifest.batches, 0}):
        raise ValueError("batches come one after the other")
    if any(batch.part >= batch.parts for batch in manifest.people):
        raise ValueError("a part is one of so many")
    if not 0 < manifest.about.learners == len(manifest.learners):
        raise ValueError("there are other learners than it says")


def _canonical_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=vars).encode()
