"""Aliases: e-mail addresses of people whose ids a vault knows, for systems that know people only by these.

An address is stored as a keyed hash, the id is sealed. A vault deletes a person's aliases with every erasure
(`forget_erased`). An erasure that a crash interrupted may be completed without that, so the service compares the table
with the vault (`Aliases.sweep`) when it starts, every second in which the vault has changed, and before each lookup.
"""

import hmac
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ExpungeError, InvalidFile, InvalidInput
from ..vault import Vault
from ..vault.sealed_ids import SealedId
from .database import Database, queue_path

_MAX_EMAIL_CHARS = 320
_BATCH_SIZE = 10_000  # people per lookup in the vault
_ERASING_KINDS = ("unlearn", "restore")  # requests of the vault that can erase people


def normalise_email(email: str) -> str | None:
    """Return an address without surrounding blanks and in one case, for comparison; None if it is not an address."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).casefold())
    name, at, domain = text.rpartition("@")
    if not (name and at and domain) or len(text) > _MAX_EMAIL_CHARS or not text.isprintable() or " " in text:
        return None
    return text


@dataclass(frozen=True)
class AliasesAdded:
    """Counts from adding aliases."""

    moved: int  # addresses that led to another id before
    erased: int  # addresses that were skipped because the person is erased


class Aliases:
    """The aliases of a vault's people."""

    def __init__(self, vault: Vault, database: Database) -> None:
        self._vault, self._database = vault, database
        self._key = vault.derive("aliases")
        self._sweep_lock = threading.Lock()
        self._swept_request: int | None = None  # the vault's newest request when the table was last compared

    def add(self, pairs: Sequence[tuple[str, str]]) -> AliasesAdded:
        """Map addresses to ids. If one is not an e-mail address, raise InvalidInput and change nothing."""
        emails = [normalise_email(email) for email, _ in pairs]
        if None in emails:
            raise InvalidInput(f"pair {emails.index(None) + 1} has no e-mail address: it needs a name, @ and a domain")
        ids = [id_ for _, id_ in pairs]
        marks, people = self._hash_emails(filter(None, emails)), self._vault.seal(ids)
        moved = erased = 0
        # Before the transaction: `find` takes the vault's lock, whose holder may wait for this database.
        newest, holdings = self._vault.newest, self._vault.find(ids)
        with self._database.transaction() as database:
            for mark, person, holding in zip(marks, people, holdings, strict=True):
                if holding.state == "erased":
                    erased += 1
                    continue
                before = database.fetch_one("SELECT hash FROM aliases WHERE alias = ?", mark)
                moved += before is not None and before["hash"] != person.hash
                database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", mark, person.hash, person.text)
        if self._vault.newest != newest:  # a person may have been erased before the alias was written
            self._swept_request = None
            self.sweep()
        return AliasesAdded(moved, erased)

    def find(self, email: str) -> SealedId | None:
        """Return the sealed id that an address is mapped to, or None."""
        self.sweep()
        text = normalise_email(email)
        if text is None:
            return None
        row = self._database.fetch_one("SELECT * FROM aliases WHERE alias = ?", *self._hash_emails([text]))
        return None if row is None else SealedId(row["hash"], row["sealed"])

    def resolve(self, ids: Sequence[str], emails: Sequence[str]) -> list[str] | None:
        """Return the given ids and those of e-mail addresses, without addresses that have no alias.

        None if there is no id and no alias at all, so that the people cannot be identified.
        """
        known = [sealed for sealed in map(self.find, emails) if sealed is not None]
        people = [*ids, *self._vault.unseal(known)]
        return people if people or (emails and self.has_any()) else None

    def has_any(self) -> bool:
        """Return whether there are any aliases."""
        return self._database.fetch_one("SELECT 1 FROM aliases") is not None

    def count(self) -> int:
        """Return the number of aliases."""
        row = self._database.fetch_one("SELECT COUNT(*) AS n FROM aliases")
        return 0 if row is None else int(row["n"])

    def forget(self, people: Iterable[SealedId], request: int | None = None) -> int:
        """Remove all aliases of people and return how many; ``request`` is the vault's request that erased them."""
        removed = 0
        with self._database.transaction() as database:
            if self.has_any():
                removed = sum(database.execute("DELETE FROM aliases WHERE hash = ?", person.hash) for person in people)
        if request is not None and self._swept_request == request - 1:
            self._swept_request = request  # no other erasure since the table was last compared
        return removed

    def sweep(self) -> int:
        """Remove the aliases of all people whom the vault has erased; return how many."""
        with self._sweep_lock:
            newest = self._vault.newest
            if newest == self._swept_request:
                return 0
            removed = 0
            if self._swept_request is None or any(
                request.kind in _ERASING_KINDS for request in self._vault.requests[self._swept_request : newest]
            ):
                removed = sum(self.forget(people) for people in self._find_erased())
            self._swept_request = newest
        return removed

    def _find_erased(self) -> Iterator[list[SealedId]]:
        """Look up everyone who has an alias; yield those who are erased, in batches."""
        query = "SELECT DISTINCT hash, sealed FROM aliases WHERE hash > ? ORDER BY hash LIMIT ?"
        last = b""
        while rows := self._database.fetch_all(query, last, _BATCH_SIZE):
            people = [SealedId(row["hash"], row["sealed"]) for row in rows]
            last, ids = people[-1].hash, dict[SealedId, str]()
            for person in people:
                with suppress(InvalidFile):  # a damaged row must not block the others
                    (ids[person],) = self._vault.unseal([person])
            holdings = self._vault.find(list(ids.values())) if ids else []
            yield [person for person, holding in zip(ids, holdings, strict=True) if holding.state == "erased"]

    def _hash_emails(self, emails: Iterable[str]) -> list[bytes]:
        return [hmac.digest(self._key, email.encode(), "sha256") for email in emails]


_BUSY_TIMEOUT_MS = 5000  # to wait for another writer of the database
_LATER = "their e-mail addresses could not be removed now; the service removes them when it runs"


def forget_erased(vault: Path, hashes: Sequence[bytes]) -> str:
    """Remove the aliases of people whom a vault has just erased; return a note if that failed, else "".

    The people are erased at this point: a queue that cannot be written must not make that look like a refusal.
    """
    try:
        with closing(Database(queue_path(vault))) as database:
            if database.fetch_one("SELECT 1 FROM aliases") is None:
                return ""
            database.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
            with_alias = [
                hash_
                for hash_ in hashes
                if database.fetch_one("SELECT 1 FROM aliases WHERE hash = ?", hash_) is not None
            ]
            if with_alias:
                with database.transaction():
                    for hash_ in with_alias:
                        database.execute("DELETE FROM aliases WHERE hash = ?", hash_)
                database.wipe()
    except (sqlite3.Error, OSError, ExpungeError):
        return _LATER
    return ""
