"""The index of a ledger: how far it was verified, and where the records of each request are.

A ledger grows for years, and nobody should read all of it to answer a question about one request. The index reads each
record once, checks the chain of hashes, and remembers where the chain ended and three places per request: its own
record, the one that says that it is done, and its signature. After that only what was appended since is read.

A *checkpoint* beside the ledger saves this, so that opening a vault does not read its history either. It is derived
data: authenticated with a key that follows from the vault's, written without a sync, and dropped if it does not fit. It
has two files. ``pages`` holds the places of 1,024 requests per page and is only appended to; a page is read when one
of its requests is asked for. ``checkpoint`` holds everything else, the tags of the pages included.

A record that is read by its place is compared with the tag that it had when the chain was verified. What nobody asks
for is not read again: a change of an old record is found when that record is used, or by ``verify``, which reads all.
"""

import hashlib
import hmac
import json
import os
import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, overload

from ...errors import InvalidFile, MissingData
from ...saving import files
from ...saving.ownership import SiblingPath
from . import locks
from .ledger import Ledger
from .records import DONE, KEY, LEDGER, SIGNATURE, START, LoggedRequest, Position, Record, make_logged_request

PAGE_REQUESTS = 1024  # requests per page
CHECKPOINT_STEP_BYTES = 2**14  # bytes by which a ledger grows between two checkpoints
_MAGIC = b"expunge ledger index 1\n"
_WORDS_PER_REQUEST = (
    6  # words per request: offset and tag of its record, of the one that it is done, and of its signature
)
_WORD_BYTES = 8
_MAC_BYTES, _PAGE_TAG_BYTES, _LENGTH_BYTES = 32, 16, 4
_MAX_CHECKPOINT_BYTES = 2**30
_FIRST_READ_BYTES = 4096  # bytes that are read of a record at first


@dataclass
class _IndexState:
    """What the records up to a position say."""

    position: Position = START
    last: tuple[int, int] = (0, 0)  # offset and tag of the last record
    records: int = 0
    vault: str = ""
    newest: int = 0  # the number of the newest request
    keys: list[str] = field(default_factory=list)  # that sign for the vault, the newest first
    introductions: list[tuple[int, int]] = field(default_factory=list)  # offset and tag of the records of keys
    unsigned: dict[int, bool] = field(default_factory=dict)  # requests without a certificate -> whether they are done
    restoring: dict[int, int] = field(default_factory=dict)  # restores that are not done -> since which request
    restores: list[tuple[int, int]] = field(default_factory=list)  # (since, number) of those that are
    pages: list[str] = field(default_factory=list)  # the tags of the pages, in hexadecimal
    places: "array[int]" = field(default_factory=lambda: array("Q"))  # of the requests after those in the pages

    def state_of(self, number: int, *, signed: bool) -> str:
        """Return the state of a request, as in `LoggedRequest`."""
        if signed:
            return "certified"
        if self.unsigned.get(number) and not any(since < number < restore for since, restore in self.restores):
            return "done"
        restored = max((restore for _, restore in self.restores), default=0)
        return "restored" if number < restored else "accepted"


class LedgerIndex:
    """What one process has verified of a ledger. Threads may share it."""

    def __init__(self, ledger: Ledger, folder: SiblingPath, key: bytes) -> None:
        self._ledger, self._folder, self._key = ledger, folder, key
        self._lock = threading.RLock()
        self._state = _IndexState()
        self._stamp: object = None
        self._cached_page: tuple[int, array[int]] | None = None  # the page that was read last
        self._saved_offset = -1  # how far the checkpoint reaches; -1 before anybody looked
        locks.reset_on_fork(self)

    def reset_after_fork(self) -> None:
        """In a child process: threads that held the lock are not there, and may have learned half a record."""
        self._lock = threading.RLock()
        self._forget()

    # Questions; each reads first what was appended since the last

    @property
    def vault(self) -> str:
        """The vault that the ledger belongs to, empty if it has no record yet."""
        return self._refresh().vault

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that sign for the vault, the newest first."""
        return tuple(self._refresh().keys)

    @property
    def newest(self) -> int:
        """The number of the newest request, 0 if there is none."""
        return self._refresh().newest

    @property
    def head(self) -> tuple[Position, int, int]:
        """Return where the ledger ends, how many records it has, and the number of its newest request."""
        learned = self._refresh()
        return learned.position, learned.records, learned.newest

    @property
    def uncertified(self) -> int:
        """How many requests are done and wait for their certificate."""
        with self._lock:  # another thread may learn of further requests meanwhile
            learned = self._refresh()
            return sum(learned.state_of(number, signed=False) == "done" for number in learned.unsigned)

    def read_key_records(self) -> list[Record]:
        """Return the records of the vault's keys, the newest first."""
        with self._open_refreshed() as fd:
            return [self._read_record_at(fd, *place) for place in reversed(self._state.introductions)]

    def read_request_record(self, number: int) -> Record | None:
        """Return the record that asks for a request."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            return None if places is None else self._read_record_at(fd, places[0], places[1])

    def read_done_record(self, number: int) -> Record | None:
        """Return the record that a request is done."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            return None if places is None or not places[2] else self._read_record_at(fd, places[2], places[3])

    def read_request(self, number: int) -> LoggedRequest | None:
        """Return a request as the ledger tells it."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            if places is None:
                return None
            signature = self._read_record_at(fd, places[4], places[5]) if places[4] else None
            state = self._state.state_of(number, signed=signature is not None)
            return make_logged_request(self._read_record_at(fd, places[0], places[1]), signature, state)

    def read_requests(self, numbers: Iterable[int]) -> Iterator[LoggedRequest]:
        """Yield the requests with these numbers; those that are not there are left out."""
        for number in numbers:
            if (found := self.read_request(number)) is not None:
                yield found

    # Reading

    def _refresh(self) -> _IndexState:
        with self._lock:
            try:
                fresh = self._stamp is not None and self._ledger.stamp() == self._stamp
            except FileNotFoundError:
                fresh = False
            if not fresh:
                with self._open_refreshed():
                    pass
            return self._state

    @contextmanager
    def _open_refreshed(self) -> Iterator[int]:
        """Read what was appended, and keep the ledger open for questions about single records."""
        with self._lock, ExitStack() as stack:
            try:
                fd = stack.enter_context(files.open_file(self._ledger.path))
            except FileNotFoundError:
                raise MissingData(f"{self._ledger.path} is not there: the vault was removed") from None
            found = os.fstat(fd)
            stamp = found.st_ino, found.st_size, found.st_mtime_ns
            if stamp != self._stamp:
                self._stamp = None
                if self._state.position == START or not self._is_continued(fd, self._state):
                    self._restart(self._load_checkpoint(fd) or _IndexState())
                self._read_appended(fd)
                self._stamp = stamp
            yield fd

    def _restart(self, learned: _IndexState) -> None:
        self._state, self._cached_page, self._saved_offset = learned, None, learned.position.offset

    def _forget(self) -> None:
        """Start from the checkpoint at the next question."""
        self._restart(_IndexState())
        self._stamp, self._saved_offset = None, -1

    def _read_appended(self, fd: int) -> None:
        try:
            for record in self._ledger.iterate(self._state.position, fd=fd):
                self._apply_record(self._state, record)
        except BaseException:  # an interrupt may come within `_learn`: half a record must not count
            self._forget()
            raise

    def _is_continued(self, fd: int, learned: _IndexState) -> bool:
        """Whether the last record that was verified is where it was."""
        offset, tag = learned.last
        line = files.read_open_file(fd, self._ledger.path, offset=offset, stop=learned.position.offset)
        return offset + len(line) == learned.position.offset and self._compute_tag(line) == tag

    def _apply_record(self, learned: _IndexState, record: Record) -> None:
        offset = learned.position.offset
        place = offset, self._compute_tag(record.line)
        if learned.position == START and record.kind == LEDGER:
            learned.vault = str(record.body["vault"])
        elif record.kind == KEY:
            learned.keys.insert(0, str(record.body["x"]))
            learned.introductions.append(place)
        elif record.is_request and record.request == learned.newest + 1:
            learned.newest = record.request
            learned.places.extend((*place, 0, 0, 0, 0))
            learned.unsigned[record.request] = False
            if record.kind == "restore":
                since = record.body.get("since")
                if type(since) is not int:
                    raise InvalidFile(f"{self._ledger.path} was changed: the record at byte {offset:,} is no restore")
                learned.restoring[record.request] = since
        elif record.kind in (DONE, SIGNATURE) and record.request in learned.unsigned:
            self._apply_completion(learned, record, place)
        else:
            raise InvalidFile(
                f"{self._ledger.path} was changed: the record at byte {offset:,} does not follow from those before it"
            )
        learned.position, learned.last, learned.records = record.end, place, learned.records + 1

    def _apply_completion(self, learned: _IndexState, record: Record, place: tuple[int, int]) -> None:
        """Learn that a request is done, or its signature."""
        number = record.request
        at = (number - 1 - PAGE_REQUESTS * len(learned.pages)) * _WORDS_PER_REQUEST + (2 if record.kind == DONE else 4)
        learned.places[at], learned.places[at + 1] = place
        if record.kind == SIGNATURE:
            del learned.unsigned[number]
        else:
            learned.unsigned[number] = True
            if number in learned.restoring:
                learned.restores.append((learned.restoring.pop(number), number))

    def _compute_tag(self, line: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(line, key=self._key, digest_size=_WORD_BYTES).digest(), "little")

    def _read_record_at(self, fd: int, offset: int, tag: int) -> Record:
        """Return a record that was verified before, by its place."""
        line, size = b"", _FIRST_READ_BYTES
        while not line.endswith(b"\n"):
            data = files.read_open_file(fd, self._ledger.path, offset=offset, stop=offset + size)
            line, ended, _ = data.partition(b"\n")
            line += ended
            if not ended and len(data) < size:
                break
            size *= 16
        if self._compute_tag(line) != tag:
            raise InvalidFile(f"{self._ledger.path} was changed at byte {offset:,}: expunge verify says where")
        body = json.loads(line)
        hashed = str(body.pop("hash"))
        return Record(body, line, Position(offset + len(line), hashed))

    # The places of requests

    def _find_places(self, fd: int, number: int) -> Sequence[int] | None:
        learned = self._state
        if not 1 <= number <= learned.newest:
            return None
        page, k = divmod(number - 1, PAGE_REQUESTS)
        places = learned.places
        if page >= len(learned.pages):
            k = number - 1 - PAGE_REQUESTS * len(learned.pages)
        elif (found := self._read_page(page)) is not None:
            places = found
        else:  # somebody changed the page, or removed it: read the whole ledger again
            self._restart(_IndexState())
            self._read_appended(fd)
            return self._find_places(fd, number)
        return places[k * _WORDS_PER_REQUEST : (k + 1) * _WORDS_PER_REQUEST]

    def _read_page(self, page: int) -> "array[int] | None":
        if self._cached_page is not None and self._cached_page[0] == page:
            return self._cached_page[1]
        size = PAGE_REQUESTS * _WORDS_PER_REQUEST * _WORD_BYTES
        try:
            data = files.read(self._folder / "pages", offset=page * size, stop=(page + 1) * size)
        except (OSError, InvalidFile):
            return None
        if self._compute_page_tag(data) != self._state.pages[page]:
            return None
        self._cached_page = page, _words_from_bytes(data)
        return self._cached_page[1]

    def _compute_page_tag(self, data: bytes) -> str:
        return hashlib.blake2b(data, key=self._key, digest_size=_PAGE_TAG_BYTES).hexdigest()

    # The checkpoint

    def save_if_due(self, offset: int) -> None:
        """Write a checkpoint if the ledger, which ends at this offset, has grown enough; for the writer alone."""
        with self._lock:
            try:
                if self._saved_offset < 0:
                    self._refresh()
                if offset - self._saved_offset >= CHECKPOINT_STEP_BYTES:
                    self._save_checkpoint(self._refresh())
            except (OSError, InvalidFile):  # derived data: without it the ledger is read
                pass
            except BaseException:  # an interrupt may come between a page and the places that moved into it
                self._forget()
                raise

    def _save_checkpoint(self, learned: _IndexState) -> None:
        files.make_folder(self._folder, for_group=self._folder.for_group, synced=False)
        self._seal_pages(learned)
        fields = asdict(learned)
        fields["places"] = None
        described = json.dumps(fields).encode()
        data = _MAGIC + len(described).to_bytes(_LENGTH_BYTES, "little") + described + _words_to_bytes(learned.places)
        path = self._folder / "checkpoint"
        draft = files.draft_path(path)
        with suppress(FileNotFoundError):
            files.system.unlink(draft)
        with files.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            files.write_parts(fd, [data, self._compute_mac(data)])
        files.system.rename(draft, path)
        self._saved_offset = learned.position.offset

    def _seal_pages(self, learned: _IndexState) -> None:
        """Move the places of requests that will not change any more into pages."""
        size = PAGE_REQUESTS * _WORDS_PER_REQUEST
        while len(learned.places) >= size + _WORDS_PER_REQUEST:
            first = PAGE_REQUESTS * len(learned.pages) + 1
            unsigned = [number for number in learned.unsigned if first <= number < first + PAGE_REQUESTS]
            if any(learned.state_of(number, signed=False) != "restored" for number in unsigned):
                return
            data = _words_to_bytes(learned.places[:size])
            with files.open_file(self._folder / "pages", os.O_WRONLY | os.O_CREAT) as fd:
                files.write_all(fd, data, len(learned.pages) * len(data))
            learned.pages.append(self._compute_page_tag(data))
            del learned.places[:size]
            for number in unsigned:
                del learned.unsigned[number]  # a restore carried it out, and no signature can follow

    def _load_checkpoint(self, fd: int) -> _IndexState | None:
        """Return what the checkpoint says, if it is there, ours, and fits the ledger."""
        try:
            data = files.read(self._folder / "checkpoint", max_bytes=_MAX_CHECKPOINT_BYTES)
        except (OSError, InvalidFile):
            return None
        data, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if not data.startswith(_MAGIC) or not hmac.compare_digest(self._compute_mac(data), mac):
            return None
        start = len(_MAGIC) + _LENGTH_BYTES
        stop = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        fields: dict[str, Any] = json.loads(data[start:stop])
        learned = _IndexState(
            **fields
            | {
                "position": Position(**fields["position"]),
                "last": tuple(fields["last"]),
                "introductions": [tuple(place) for place in fields["introductions"]],
                "restores": [tuple(restore) for restore in fields["restores"]],
                "unsigned": {int(number): done for number, done in fields["unsigned"].items()},
                "restoring": {int(number): since for number, since in fields["restoring"].items()},
                "places": _words_from_bytes(data[stop:]),
            }
        )
        return learned if self._is_continued(fd, learned) else None

    def _compute_mac(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=_MAC_BYTES).digest()


class RequestLog(Sequence[LoggedRequest]):
    """The requests of a vault, the oldest first, each read from the ledger when it is asked for."""

    def __init__(self, index: LedgerIndex) -> None:
        self._index, self._count = index, index.newest

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, k: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, k: slice) -> list[LoggedRequest]: ...
    def __getitem__(self, k: int | slice) -> LoggedRequest | list[LoggedRequest]:
        if isinstance(k, slice):
            return list(self._index.read_requests(range(1, self._count + 1)[k]))
        found = self._index.read_request(range(1, self._count + 1)[k])
        assert found is not None  # numbers up to the newest are there
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    def __repr__(self) -> str:
        return f"<{self._count} requests>"


def _words_from_bytes(data: bytes) -> "array[int]":
    words = array("Q")
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _words_to_bytes(words: "array[int]") -> bytes:
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()
