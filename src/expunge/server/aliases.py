"""Aliases: e-mail addresses of people whose ids a vault knows, for systems that know people by nothing else.

An address is kept as a keyed hash and the id is sealed. Once somebody is erased, their aliases go as well.
"""

import unicodedata
from collections.abc import Iterable, Sequence

from ..errors import InvalidInput
from ..vault import Vault
from ..vault.sealing import Sealed
from .database import Database

_LONGEST = 320  # characters of an address


def normalised(email: str) -> str | None:
    """An address in the form in which two are compared: no blanks around it, one case; None if it is none."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).casefold())
    name, at, domain = text.rpartition("@")
    if not (name and at and domain) or len(text) > _LONGEST or not text.isprintable() or " " in text:
        return None
    return text


class Aliases:
    """The aliases of a vault's people."""

    def __init__(self, vault: Vault, database: Database) -> None:
        self._vault, self._database = vault, database

    def add(self, pairs: Sequence[tuple[str, str]]) -> int:
        """Let addresses lead to ids, all or none of them; return how many of them led to others before."""
        emails = [normalised(email) for email, _ in pairs]
        if None in emails:
            raise InvalidInput(f"pair {emails.index(None) + 1} has no e-mail address: it needs a name, @ and a domain")
        marks, people = self._marks(filter(None, emails)), self._vault.seal([id_ for _, id_ in pairs])
        moved = 0
        with self._database.writing() as database:
            for mark, one in zip(marks, people, strict=True):
                before = database.one("SELECT hash FROM aliases WHERE alias = ?", mark)
                moved += before is not None and before["hash"] != one.hash
                database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", mark, one.hash, one.text)
        return moved

    def find(self, email: str) -> Sealed | None:
        """The sealed id that an address leads to."""
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

    def forget(self, people: Iterable[Sealed]) -> None:
        """Remove all aliases of people."""
        with self._database.writing() as database:
            for one in people:
                database.execute("DELETE FROM aliases WHERE hash = ?", one.hash)

    def _marks(self, emails: Iterable[str]) -> list[bytes]:
        texts = [f"expunge alias {email}".encode().hex() for email in emails]
        return [one.hash for one in self._vault.seal(texts)] if texts else []
