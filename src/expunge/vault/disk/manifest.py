"""The manifest: which files hold the vault's state, and as of which request.

The manifest and each learner have two files, called pages: one is current, and the other, the *spare*, is empty. Every
request writes its manifest into the spare. The small file `current` says which page is current (`folder`): changing it
is the commit. The previous page, which holds fingerprints of the old state, is then wiped and becomes the spare of the
next request, so no name in the folder changes. Every other file that the manifest does not name is a leftover. Without
the manifest's salt, the commitment in a certificate reveals nothing; the salt is destroyed with the manifest.
"""

import hashlib
import json
import math
import os
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

from ...errors import InvalidFile
from ..ledger.records import Position

UInt64 = NewType("UInt64", int)  # unsigned, up to 2**64 - 1


def matches_type(value: Any, type_: Any) -> bool:
    """Return whether a value has this type: a dataclass, tuple, union or plain type.

    Whole numbers must not be negative. A float may be written as a whole number, and must be finite. The types of a
    class are checked because a file can hold anything.
    """
    inside = get_args(type_)
    if get_origin(type_) is tuple:
        return type(value) is tuple and all(matches_type(item, inside[0]) for item in value)
    if isinstance(type_, UnionType):
        return any(matches_type(value, option) for option in inside)
    if type_ is float:
        return isinstance(value, int | float) and type(value) is not bool and abs(value) <= sys.float_info.max
    if type_ is int or type_ is UInt64:
        return type(value) is int and 0 <= value < 2 ** (63 if type_ is int else 64)
    if type(value) is not type_:
        return False
    types = _field_types(type_)  # type: ignore[arg-type]  # classes are hashable
    return all(matches_type(getattr(value, name), types[name]) for name in types)


@cache
def _field_types(type_: Any) -> dict[str, Any]:
    """Return the fields of a class and their types; a plain type has none."""
    return get_type_hints(type_) if is_dataclass(type_) else {}


VERSION = 11
MAX_MANIFEST_BYTES = 2**26  # larger than any manifest
_NO_SUM = b'"sum":""'
_LEARNER_NAME = re.compile(r"learner\.\d+\.\d+\.[01]")


@dataclass(frozen=True)
class ImmutableFile:
    """A file that never changes, and the SHA-256 of its content."""

    name: str
    sum: str


@dataclass(frozen=True)
class LearnerFile:
    """The file of a learner: its weights, then its moments. ``sum`` is the digest of the moments."""

    name: str
    sum: str
    weights: str  # SHA-256 of the weights' part of the file
    rows: int
    coded_rows: int

    @property
    def spare(self) -> str:
        """The learner's other page."""
        return f"{self.name[:-1]}{1 - int(self.name[-1])}"


@dataclass(frozen=True)
class StoredExtent:
    """The current bounds of the inputs or targets, and how many rows lie on each bound."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    at_low: tuple[int, ...]
    at_high: tuple[int, ...]
    unit: bool


@dataclass(frozen=True)
class RowSegment:
    """A file of rows, and its number of entries."""

    name: str
    count: int


@dataclass(frozen=True)
class PeopleSegment:
    """A segment of people: its number of entries, and which of ``parts`` equal ranges of hashes it covers."""

    name: str
    count: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Planning:
    """How a plan chooses the settings from the rows of a vault, and at whose rows it looked.

    There is no list of people: those whom it looked at are those with the smallest keyed hashes.

    Attributes
    ----------
    seed : int
        The seed of the features and the code; the key of the hashes follows from it.
    quick : bool
        Whether the search takes seconds rather than minutes.
    forget_ms : float or None
        The longest time to forget one row, as predicted from counts of operations.
    max_features : int
        The largest number of cosines to try.
    declared : str
        The settings that the plan does not choose, as JSON.
    largest_hash, people : int
        The largest hash of the people whose rows it looked at, and how many they were; 0 people if there were too few
        rows for a plan.
    drawn : int
        The row numbers given out then: rows with larger numbers came later.
    rows : int
        The number of rows then; it predicted costs by the power of two in it.
    gone : int
        How many of these rows were erased since.
    schema : str
        The checksum of the schema with which it scaled them.
    error : float or None
        The mean squared error on its validation rows, over the target's variance.
    open : int
        How many erasures and corrections since were of people who had a part in the choice: it looked at their rows,
        or too few of the rows are left for the same power of two.
    """

    seed: int = 0
    quick: bool = True
    forget_ms: float | None = 5.0
    max_features: int = 600
    declared: str = "{}"
    largest_hash: UInt64 = UInt64(0)
    people: int = 0
    drawn: int = 0
    rows: int = 0
    gone: int = 0
    schema: str = ""
    error: float | None = None
    open: int = 0


@dataclass(frozen=True)
class ModelSummary:
    """Facts about a model that can be shown without loading it."""

    targets: tuple[str, ...]
    columns: tuple[str, ...]  # columns that the inputs are computed from
    inputs: tuple[str, ...]
    shards: int
    learners: int
    alpha: float
    features: str
    scales: str
    target_scales: str
    outside: str
    observed_bounds: bool
    fold_case: bool  # whether ids that differ only in case are the same id
    clone_of: str = ""  # the source vault and its request at that time: UUID/number


@dataclass(frozen=True)
class Manifest:
    """The state of a vault after a request."""

    vault: str
    request: int  # the newest request that is carried out
    page: int  # 0 or 1: which of the two files it is in
    training: int  # the request that chose the settings and dealt the slots: a training, or a replan
    before: Position  # where the ledger's record of `request` begins
    record: str  # hash of that record
    drawn: int  # slots assigned so far
    rows: int
    slots_sum: UInt64  # sum of the slots that have a row
    owners: int  # ids that have rows
    erased: int  # ids that were erased and not readmitted
    salt: str
    keys: tuple[str, ...]  # keys that signed before this request, the newest first
    schema: ImmutableFile
    blueprint: ImmutableFile
    learners: tuple[LearnerFile, ...]
    segments: tuple[RowSegment, ...]  # the rows, in order of arrival
    batches: tuple[int, ...]  # first row number of each batch: with the key, these determine the slots
    people: tuple[PeopleSegment, ...]
    inputs: StoredExtent
    targets: StoredExtent
    stage: ImmutableFile | None  # corrected rows, until they are written to their slots
    about: ModelSummary
    planning: Planning | None  # None: the settings were declared, or planned on a separate table

    @property
    def charter(self) -> tuple[ImmutableFile, ImmutableFile]:
        """The files of the schema and the blueprint."""
        return self.schema, self.blueprint

    @property
    def seal(self) -> bytes:
        """The bytes that are mixed into the checksums of this vault's rows and people."""
        return uuid.UUID(self.vault).bytes

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"manifest.{self.page}"

    @property
    def spare(self) -> str:
        """The name of the manifest's other page."""
        return f"manifest.{1 - self.page}"

    @property
    def live_file(self) -> str:
        """The name of the file that says which slots have a row."""
        return f"live.{self.training}"

    @property
    def file_names(self) -> set[str]:
        """The names of all files of the state, without the stage: it is a leftover once its rows are in their slots."""
        files = (self.schema, self.blueprint)
        learners, rows, people = (
            {part.name for part in parts} for parts in (self.learners, self.segments, self.people)
        )
        return {file.name for file in files} | learners | rows | people | {self.live_file, self.name}

    @property
    def spares(self) -> set[str]:
        """The names of the pages that are not live; these files are empty or missing."""
        return {self.spare, *(learner.spare for learner in self.learners)}

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON with a checksum."""
        fields = {"format": "expunge vault", "version": VERSION, **vars(self), "sum": ""}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False, default=vars)
        content = text.encode()
        before, after = content.rsplit(_NO_SUM, 1)  # no text inside contains this: its quotes would be escaped
        return b'%b"sum":"%b"%b' % (before, hashlib.sha256(content).hexdigest().encode(), after)

    @classmethod
    def from_bytes(cls, data: bytes, path: os.PathLike[str]) -> "Manifest":
        """Parse a manifest; refuse anything else."""
        try:
            content = json.loads(data)
            del content["sum"]
            if content.pop("format") != "expunge vault":
                raise InvalidFile(f"{path} is not the manifest of a vault")
            if (version := content.pop("version")) != VERSION:
                raise InvalidFile(
                    f"{path} has version {version!r}; this release reads version {VERSION} only: "
                    "use the release that made it, or train the vault again"
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
    planning = None if fields["planning"] is None else Planning(**fields["planning"])
    manifest = Manifest(**{**fields, "about": ModelSummary(**about), "planning": planning})
    staged = {manifest.stage.name} if manifest.stage else set()
    if any(
        Path(name).name != name or not (name.isascii() and name.isprintable()) for name in manifest.file_names | staged
    ):
        raise ValueError("a file name is not a plain name in the folder")
    _check_manifest(manifest)
    return manifest


def _check_manifest(manifest: Manifest) -> None:
    """Refuse fields that have a wrong type, or contradict each other."""
    if not matches_type(manifest, Manifest):
        raise ValueError("a field has a value of the wrong type")
    if manifest.page > 1 or not all(_LEARNER_NAME.fullmatch(learner.name) for learner in manifest.learners):
        raise ValueError("a page is neither 0 nor 1")
    for text in (manifest.salt, *(learner.sum for learner in manifest.learners)):
        bytes.fromhex(text)
    for side in (manifest.inputs, manifest.targets):
        if len({len(side.low), len(side.high), len(side.at_low), len(side.at_high)}) > 1:
            raise ValueError("lower and upper bounds differ in number")
        if not all(math.isfinite(high - low) for low, high in zip(side.low, side.high, strict=True)):
            raise ValueError("bounds are too far apart")
    if sum(segment.count for segment in manifest.segments) != manifest.drawn or not manifest.segments:
        raise ValueError("the segments do not add up to the number of rows")
    if manifest.batches[:1] != (0,) or list(manifest.batches) != sorted({*manifest.batches, 0}):
        raise ValueError("batches are not in order")
    if any(batch.part >= batch.parts for batch in manifest.people):
        raise ValueError("a part is out of range")
    if not 0 < manifest.about.learners == len(manifest.learners):
        raise ValueError("the number of learners is wrong")
