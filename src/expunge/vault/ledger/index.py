"""The index of a ledger: how far it was verified, and where the records of each request are.

A ledger grows for years, and a question about one request should not read all of it. The index reads each record once,
checks the chain of hashes, and remembers where the chain ended and three places per request: its own record, the record
that it is done, and its signature. After that it reads only what was appended.

A *checkpoint* beside the ledger saves this, so that opening a vault does not read its history either. It is derived
data: authenticated with a key derived from the vault's, written without a sync, and ignored if it does not fit the
ledger. It has two files. ``pages`` holds the places of 1,024 requests per page and is only appended to; a page is read
when one of its requests is needed. ``checkpoint`` holds everything else, including the tags of the pages.

A record that is read by its place is compared with the tag that it had when the chain was verified. Other records are
not read again: a change of an old record is found when that record is used, or by ``verify``, which reads everything.
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
from ...saving.files import VaultDir
from ...saving.ownership import SiblingPath
from . import locks
from .ledger import Ledger, stamp_of
from .records import DONE, KEY, LEDGER, SIGNATURE, START, LoggedRequest, Position, Record, make_logged_request

PAGE_REQUESTS = 1024
CHECKPOINT_STEP_BYTES = 2**14  # growth of the ledger between two checkpoints
_MAGIC = b"expunge ledger index 1\n"
_WORDS_PER_REQUEST = 6  # offset and tag of its record, of the record that it is done, and of its signature
_WORD_BYTES = 8
_MAC_BYTES, _PAGE_TAG_BYTES, _LENGTH_BYTES = 32, 16, 4
_MAX_CHECKPOINT_BYTES = 2**30
_FIRST_READ_BYTES = 4096  # of a record whose length is not known


@dataclass
class _IndexState:
    """What is known from the records up to a position."""

    position: Position = START
    last: tuple[int, int] = (0, 0)  # offset and tag of the last record
    records: int = 0
    vault: str = ""
    newest: int = 0  # the number of the newest request
    keys: list[str] = field(default_factory=list)  # signing keys of the vault, the newest first
    introductions: list[tuple[int, int]] = field(default_factory=list)  # offset and tag of each record of a key
    unsigned: dict[int, bool] = field(default_factory=dict)  # request without a certificate -> whether it is done
    restoring: dict[int, int] = field(default_factory=dict)  # restore that is not done -> the request before it
    restores: list[tuple[int, int]] = field(default_factory=list)  # (since, number) of restores that are done
    pages: list[str] = field(default_factory=list)  # tags of the pages, in hexadecimal
    places: "array[int]" = field(default_factory=lambda: array("Q"))  # of the requests that are not in pages yet

    def state_of(self, number: int, *, signed: bool) -> str:
        """Return the state of a request, as in `LoggedRequest`."""
        if signed:
            return "certified"
        if self.unsigned.get(number) and not any(since < number < restore for since, restore in self.restores):
            return "done"
        restored = max((restore for _, restore in self.restores), default=0)
        return "restored" if number < restored else "accepted"


class LedgerIndex:
    """What this process has verified of a ledger. Threads may share it."""

    def __init__(self, ledger: Ledger, folder: SiblingPath, key: bytes) -> None:
        self._ledger, self._folder, self._key = ledger, VaultDir(folder), key
        self._lock = threading.RLock()
        self._state = _IndexState()
        self._stamp: object = None
        self._cached_page: tuple[int, array[int]] | None = None  # the page that was last read
        self._saved_offset = -1  # up to where the checkpoint reaches; -1 if unknown
        locks.reset_on_fork(self)

    def reset_after_fork(self) -> None:
        """In a child: replace the lock, whose holder does not exist here and may have applied half a record."""
        self._lock = threading.RLock()
        self._forget()

    # Queries: each first reads what was appended since the last one

    @property
    def vault(self) -> str:
        """The vault that the ledger belongs to; empty if it has no record yet."""
        return self._refresh().vault

    @property
    def keys(self) -> tuple[str, ...]:
        """The signing keys of the vault, the newest first."""
        return tuple(self._refresh().keys)

    @property
    def newest(self) -> int:
        """The number of the newest request, or 0."""
        return self._refresh().newest

    @property
    def head(self) -> tuple[Position, int, int]:
        """The end of the ledger, its number of records, and the number of its newest request."""
        state = self._refresh()
        return state.position, state.records, state.newest

    @property
    def uncertified(self) -> int:
        """The number of requests that are done and not certified."""
        with self._lock:  # another thread may add requests meanwhile
            state = self._refresh()
            return sum(state.state_of(number, signed=False) == "done" for number in state.unsigned)

    def read_key_records(self) -> list[Record]:
        """Return the records of the vault's keys, the newest first."""
        with self._open_refreshed() as fd:
            return [self._read_record_at(fd, *place) for place in reversed(self._state.introductions)]

    def read_request_record(self, number: int) -> Record | None:
        """Return the record of a request."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            return None if places is None else self._read_record_at(fd, places[0], places[1])

    def read_done_record(self, number: int) -> Record | None:
        """Return the record that a request is done."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            return None if places is None or not places[2] else self._read_record_at(fd, places[2], places[3])

    def read_uncertified(self, newest: int) -> list[tuple[Record, Record]]:
        """Return the requests that wait for their certificate, up to this one, the oldest first.

        For each its record, and the record that it is done.
        """
        waiting = list[tuple[Record, Record]]()
        with self._open_refreshed() as fd:
            while newest:
                places = self._find_places(fd, newest)
                if places is None or not places[2]:
                    raise InvalidFile(
                        f"{self._ledger.path} was changed: requests that are not certified yet are missing"
                    )
                if places[4]:  # it is certified, and so are those before it
                    break
                request = self._read_record_at(fd, places[0], places[1])
                waiting.append((request, self._read_record_at(fd, places[2], places[3])))
                newest = int(request.body["waiting"])
        return waiting[::-1]

    def read_request(self, number: int) -> LoggedRequest | None:
        """Return a request, as recorded in the ledger."""
        with self._open_refreshed() as fd:
            places = self._find_places(fd, number)
            if places is None:
                return None
            signature = self._read_record_at(fd, places[4], places[5]) if places[4] else None
            state = self._state.state_of(number, signed=signature is not None)
            return make_logged_request(self._read_record_at(fd, places[0], places[1]), signature, state)

    def read_requests(self, numbers: Iterable[int]) -> Iterator[LoggedRequest]:
        """Yield the requests with these numbers, leaving out those that do not exist."""
        for number in numbers:
            if (request := self.read_request(number)) is not None:
                yield request

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
        """Read what was appended, and yield the open ledger for reading single records."""
        with self._lock, ExitStack() as stack:
            try:
                fd = stack.enter_context(files.open_file(self._ledger.path))
            except FileNotFoundError:
                raise MissingData(f"{self._ledger.path} is missing: the vault was removed") from None
            stamp = stamp_of(os.fstat(fd))
            if stamp != self._stamp:
                self._stamp = None
                if self._state.position == START or not self._is_continued(fd, self._state):
                    self._restart(self._load_checkpoint(fd) or _IndexState())
                self._read_appended(fd)
                self._stamp = stamp
            yield fd

    def _restart(self, state: _IndexState) -> None:
        self._state, self._cached_page, self._saved_offset = state, None, state.position.offset

    def _forget(self) -> None:
        """Start from the checkpoint at the next query."""
        self._restart(_IndexState())
        self._stamp, self._saved_offset = None, -1

    def _read_appended(self, fd: int) -> None:
        try:
            for record in self._ledger.iterate(self._state.position, fd=fd):
                self._apply_record(self._state, record)
        except BaseException:  # an interrupt may have come while a record was applied
            self._forget()
            raise

    def _is_continued(self, fd: int, state: _IndexState) -> bool:
        """Return whether the last record that was verified is still in its place."""
        offset, tag = state.last
        line = files.read_open_file(fd, self._ledger.path, offset=offset, stop=state.position.offset)
        return offset + len(line) == state.position.offset and self._compute_tag(line) == tag

    def _apply_record(self, state: _IndexState, record: Record) -> None:
        offset = state.position.offset
        place = offset, self._compute_tag(record.line)
        if state.position == START and record.kind == LEDGER:
            state.vault = str(record.body["vault"])
        elif record.kind == KEY:
            state.keys.insert(0, str(record.body["x"]))
            state.introductions.append(place)
        elif record.is_request and record.request == state.newest + 1:
            state.newest = record.request
            state.places.extend((*place, 0, 0, 0, 0))
            state.unsigned[record.request] = False
            if record.kind == "restore":
                since = record.body.get("since")
                if type(since) is not int:
                    raise InvalidFile(
                        f"{self._ledger.path} was changed: the record at byte {offset:,} is not a valid restore"
                    )
                state.restoring[record.request] = since
        elif record.kind in (DONE, SIGNATURE) and record.request in state.unsigned:
            self._apply_completion(state, record, place)
        else:
            raise InvalidFile(
                f"{self._ledger.path} was changed: the record at byte {offset:,} does not follow from those before it"
            )
        state.position, state.last, state.records = record.end, place, state.records + 1

    def _apply_completion(self, state: _IndexState, record: Record, place: tuple[int, int]) -> None:
        """Apply the record that a request is done, or that of its signature."""
        number = record.request
        at = (number - 1 - PAGE_REQUESTS * len(state.pages)) * _WORDS_PER_REQUEST + (2 if record.kind == DONE else 4)
        state.places[at], state.places[at + 1] = place
        if record.kind == SIGNATURE:
            del state.unsigned[number]
        else:
            state.unsigned[number] = True
            if number in state.restoring:
                state.restores.append((state.restoring.pop(number), number))

    def _compute_tag(self, line: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(line, key=self._key, digest_size=_WORD_BYTES).digest(), "little")

    def _read_record_at(self, fd: int, offset: int, tag: int) -> Record:
        """Read a record that was verified before."""
        line, size = b"", _FIRST_READ_BYTES
        while not line.endswith(b"\n"):
            data = files.read_open_file(fd, self._ledger.path, offset=offset, stop=offset + size)
            line, ended, _ = data.partition(b"\n")
            line += ended
            if not ended and len(data) < size:
                break
            size *= 16
        if self._compute_tag(line) != tag:
            raise InvalidFile(f"{self._ledger.path} was changed at byte {offset:,}: run expunge verify")
        body = json.loads(line)
        hashed = str(body.pop("hash"))
        return Record(body, line, Position(offset + len(line), hashed))

    # The places of requests

    def _find_places(self, fd: int, number: int) -> Sequence[int] | None:
        state = self._state
        if not 1 <= number <= state.newest:
            return None
        page, k = divmod(number - 1, PAGE_REQUESTS)
        places = state.places
        if page >= len(state.pages):
            k = number - 1 - PAGE_REQUESTS * len(state.pages)
        elif (page_places := self._read_page(page)) is not None:
            places = page_places
        else:  # the page was changed or removed: read the whole ledger again
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
        """Write a checkpoint if the ledger, which ends at this offset, has grown enough; only for the writer."""
        with self._lock:
            try:
                if self._saved_offset < 0:
                    self._refresh()
                # Requests that wait for their certificate make it longer; a longer one is written less often.
                size = _WORD_BYTES * len(self._state.places)
                if offset - self._saved_offset >= max(CHECKPOINT_STEP_BYTES, size):
                    self._save_checkpoint(self._refresh())
            except (OSError, InvalidFile):  # without this derived data the ledger is read
                pass
            except BaseException:  # an interrupt may have come while places were moved into a page
                self._forget()
                raise

    def _save_checkpoint(self, state: _IndexState) -> None:
        self._folder.make(synced=False)
        self._seal_pages(state)
        fields = asdict(state)
        fields["places"] = None
        described = json.dumps(fields).encode()
        data = _MAGIC + len(described).to_bytes(_LENGTH_BYTES, "little") + described + _words_to_bytes(state.places)
        path = self._folder / "checkpoint"
        draft = files.draft_path(path)
        with suppress(FileNotFoundError):
            files.unlink(draft)
        with files.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            files.write_parts(fd, [data, self._compute_mac(data)])
        files.rename(draft, path)
        self._saved_offset = state.position.offset

    def _seal_pages(self, state: _IndexState) -> None:
        """Move the places of requests that cannot change any more into pages."""
        size = PAGE_REQUESTS * _WORDS_PER_REQUEST
        while len(state.places) >= size + _WORDS_PER_REQUEST:
            first = PAGE_REQUESTS * len(state.pages) + 1
            unsigned = [number for number in state.unsigned if first <= number < first + PAGE_REQUESTS]
            if any(state.state_of(number, signed=False) != "restored" for number in unsigned):
                return
            data = _words_to_bytes(state.places[:size])
            with files.open_file(self._folder / "pages", os.O_WRONLY | os.O_CREAT) as fd:
                files.write_all(fd, data, len(state.pages) * len(data))
            state.pages.append(self._compute_page_tag(data))
            del state.places[:size]
            for number in unsigned:
                del state.unsigned[number]  # a restore carried it out: no signature can follow

    def _load_checkpoint(self, fd: int) -> _IndexState | None:
        """Return the state in the checkpoint, if it exists, is authentic, and fits the ledger."""
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
        state = _IndexState(
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
        return state if self._is_continued(fd, state) else None

    def _compute_mac(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=_MAC_BYTES).digest()


class RequestLog(Sequence[LoggedRequest]):
    """The requests of a vault, the oldest first; each is read from the ledger when it is accessed."""

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
        request = self._index.read_request(range(1, self._count + 1)[k])
        assert request is not None  # numbers up to the newest exist
        return request

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # like a list

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
