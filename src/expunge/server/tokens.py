"""Tokens and their scopes. A token is shown once; only its hash is stored."""

import hashlib
import hmac
import secrets
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, get_args

from ..errors import InvalidSetting, UnknownId
from .audit import AuditTrail
from .clocks import Clock, format_time, parse_time, utc_now
from .database import Database

Scope: TypeAlias = Literal["predict", "erase", "rows", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_PREFIX = "exp"
_ID_BYTES, _SECRET_BYTES = 6, 32
_MAX_TEXT_CHARS = 200  # of a token; the rest is ignored


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    scopes: frozenset[str]
    made: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None  # to the minute

    def allows(self, scope: Scope) -> bool:
        """Return whether the token has this scope; admin includes all others."""
        return scope in self.scopes or "admin" in self.scopes

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class Tokens:
    """The tokens of a service."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self._database, self._clock, self._audit = database, clock, AuditTrail(database, clock)

    def create(
        self, name: str, scopes: Iterable[str], lifetime: timedelta | None, actor: str = ""
    ) -> tuple[Token, str]:
        """Create a token; return it with its text, which is not stored."""
        granted = frozenset(scopes)
        if not granted or not granted <= set(SCOPES):
            given = ", ".join(sorted(granted)) or "none"
            raise InvalidSetting(f"scopes must be among {', '.join(SCOPES)}, got {given}")
        if not name.strip() or not name.isprintable() or len(name) > 80:
            raise InvalidSetting("the name of a token must be one line of 1 to 80 characters")
        created, number, secret = self._clock(), secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        expires = None if lifetime is None else created + lifetime
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO tokens (id, name, hash, scopes, made, expires) VALUES (?, ?, ?, ?, ?, ?)",
                number, name, _hash_secret(secret), " ".join(sorted(granted)), format_time(created),
                format_time(expires),
            )  # fmt: skip
            details = {"name": name, "scopes": sorted(granted), "expires": format_time(expires)}
            self._audit.record("token.created", actor=actor, subject=number, **details)
        return Token(number, name, granted, created, expires, None, None), f"{_PREFIX}_{number}_{secret}"

    def list_all(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        return [_read_token(row) for row in self._database.fetch_all("SELECT * FROM tokens ORDER BY made, id")]

    def has_any(self) -> bool:
        """Return whether a token was ever created: from then on every caller needs one, even if it has expired."""
        return self._database.fetch_one("SELECT 1 FROM tokens") is not None

    def has_valid(self) -> bool:
        """Return whether any token is valid now."""
        now = self._clock()
        return any(token.is_valid(now) for token in self.list_all())

    def is_valid(self, id_: str) -> bool:
        """Return whether the token with this id is valid now."""
        row = self._database.fetch_one("SELECT * FROM tokens WHERE id = ?", id_)
        return row is not None and _read_token(row).is_valid(self._clock())

    def revoke(self, id: str, actor: str = "") -> Token:  # noqa: A002 - the name of the column
        """Revoke a token; it is refused from now on."""
        with self._database.transaction() as database:
            statement = "UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL"
            if database.execute(statement, format_time(self._clock()), id):
                self._audit.record("token.revoked", actor=actor, subject=id)
        row = self._database.fetch_one("SELECT * FROM tokens WHERE id = ?", id)
        if row is None:
            raise UnknownId("no token has this id; see expunge token list")
        return _read_token(row)

    def authenticate(self, text: str) -> Token | None:
        """Return the valid token with this text, or None; store its last use, to the minute."""
        prefix, _, rest = text[:_MAX_TEXT_CHARS].partition("_")
        number, _, secret = rest.partition("_")
        row = self._database.fetch_one("SELECT * FROM tokens WHERE id = ?", number) if prefix == _PREFIX else None
        stored = _hash_secret("") if row is None else row["hash"]  # so that the time does not reveal known ids
        if not hmac.compare_digest(_hash_secret(secret), stored) or row is None:
            return None
        token, now = _read_token(row), self._clock()
        if not token.is_valid(now):
            return None
        minute = now.replace(second=0, microsecond=0)
        if token.used is None or token.used < minute:
            # The disk may be full, or another thread may be writing: the last use is not worth waiting for.
            with suppress(sqlite3.OperationalError), self._database.transaction(wait=False) as database:
                database.execute("UPDATE tokens SET used = ? WHERE id = ?", format_time(minute), number)
        return token


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read_token(row: sqlite3.Row) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        scopes=frozenset(row["scopes"].split()),
        made=parse_time(row["made"]),
        expires=parse_time(row["expires"]),
        revoked=parse_time(row["revoked"]),
        used=parse_time(row["used"]),
    )
