"""Aliases: e-mail addresses of people whose ids a vault knows, for systems that know people by nothing else.

An address is kept as a keyed hash and the id is sealed. Aliases go with the person: the service deletes them with its
own erasures, and compares the table with the vault (`Aliases.sweep`) when it starts, every second in which the vault
has changed, and before it looks an address up, because the command line and Python erase as well.
"""

import hmac
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import InvalidFile, InvalidInput
from ..vault import Vault
from ..vault.sealing import Sealed
from .database import Database

_LONGEST = 320  # characters of an address
_PIECE = 10_000  # people who are looked up at once
_ERASING = ("unlearn", "restore")  # kinds of requests after which people may be erased who were not before


def normalised(email: str) -> str | None:
    """An address in the form in which two are compared: no blanks around it, one case; None if it is none."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).casefold())
    name, at, domain = text.rpartition("@")
    if not (name and at and domain) or len(text) > _LONGEST or not text.isprintable() or " " in text:
        return None
    return text


@dataclass(frozen=True)
class Added:
    """What became of addresses that were added."""

    moved: int  # led to another id before
    erased: int  # were left out, because the person is erased


class Aliases:
    """The aliases of a vault's people."""

    def __init__(self, vault: Vault, database: Database) -> None:
        self._vault, self._database = vault, database
        self._key = vault.derive("aliases")
        self._sweeping = threading.Lock()
        self._swept: int | None = None  # the vault's newest request that the table was compared with

    def add(self, pairs: Sequence[tuple[str, str]]) -> Added:
        """Let addresses lead to ids; one that is no address is an error, and nothing is changed."""
        emails = [normalised(email) for email, _ in pairs]
        if None in emails:
            raise InvalidInput(f"pair {emails.index(None) + 1} has no e-mail address: it needs a name, @ and a domain")
        ids = [id_ for _, id_ in pairs]
        marks, people = self._marks(filter(None, emails)), self._vault.seal(ids)
        moved = erased = 0
        with self._database.writing() as database:
            for mark, person, holding in zip(marks, people, self._vault.holds(ids), strict=True):
                if holding.state == "erased":
                    erased += 1
                    continue
                before = database.one("SELECT hash FROM aliases WHERE alias = ?", mark)
                moved += before is not None and before["hash"] != person.hash
                database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", mark, person.hash, person.text)
        return Added(moved, erased)

    def find(self, email: str) -> Sealed | None:
        """Return the sealed id that an address leads to."""
        self.sweep()
        text = normalised(email)
        if text is None:
            return None
        row = self._database.one("SELECT * FROM aliases WHERE alias = ?", *self._marks([text]))
        return None if row is None else Sealed(row["hash"], row["sealed"])

    def any(self) -> bool:
        """Whether there is one."""
        return self._database.one("SELECT 1 FROM aliases") is not None

    def count(self) -> int:
        """How many there are."""
        return len(self._database.all("SELECT 1 FROM aliases"))

    def forget(self, people: Iterable[Sealed], request: int | None = None) -> int:
        """Remove all aliases of people, and return how many there were; ``request`` is the one that erased them."""
        with self._database.writing() as database:
            removed = sum(database.execute("DELETE FROM aliases WHERE hash = ?", person.hash) for person in people)
        if request is not None and self._swept == request - 1:
            self._swept = request  # nobody else was erased since the table was last compared
        return removed

    def sweep(self) -> int:
        """Remove the aliases of people whom the vault has erased, in whatever way; return how many there were."""
        with self._sweeping:
            newest = self._vault.newest
            if newest == self._swept:
                return 0
            removed = 0
            if self._swept is None or any(one.kind in _ERASING for one in self._vault.requests[self._swept : newest]):
                removed = sum(self.forget(people) for people in self._erased())
            self._swept = newest
        return removed

    def _erased(self) -> Iterator[list[Sealed]]:
        """Look everybody up who has an alias; yield those who are erased, some at a time."""
        question = "SELECT DISTINCT hash, sealed FROM aliases WHERE hash > ? ORDER BY hash LIMIT ?"
        last = b""
        while rows := self._database.all(question, last, _PIECE):
            people = [Sealed(row["hash"], row["sealed"]) for row in rows]
            last, ids = people[-1].hash, dict[Sealed, str]()
            for person in people:
                with suppress(InvalidFile):  # one that was damaged leads nowhere, and keeps no other
                    (ids[person],) = self._vault.unseal([person])
            holdings = self._vault.holds(list(ids.values())) if ids else []
            yield [person for person, holding in zip(ids, holdings, strict=True) if holding.state == "erased"]

    def _marks(self, emails: Iterable[str]) -> list[bytes]:
        return [hmac.digest(self._key, email.encode(), "sha256") for email in emails]
