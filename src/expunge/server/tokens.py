"""Tokens: who may ask for what. A token is shown once; what is kept is its hash."""

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
from .audit import COMMAND_LINE, AuditTrail
from .clocks import Clock, format_time, parse_time, utc_now
from .database import Database

Scope: TypeAlias = Literal["predict", "erase", "rows", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_PREFIX = "exp"
_ID_BYTES, _SECRET_BYTES = 6, 32
_MAX_TEXT_CHARS = 200  # characters of a token that is looked at


@dataclass(frozen=True)
class Token:
    """What is known of a token, without its secret."""

    id: str
    name: str
    scopes: frozenset[str]
    made: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None  # to the minute

    def allows(self, scope: Scope) -> bool:
        """Whether whoever has it may do this; an admin may do everything."""
        return scope in self.scopes or "admin" in self.scopes

    def is_valid(self, now: datetime) -> bool:
        """Whether it counts at this time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class Tokens:
    """The tokens of a service."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self._database, self._clock, self._audit = database, clock, AuditTrail(database, clock)

    def create(
        self, name: str, scopes: Iterable[str], lifetime: timedelta | None, actor: str = COMMAND_LINE
    ) -> tuple[Token, str]:
        """Make one; the text is shown to its owner and kept nowhere."""
        wanted = frozenset(scopes)
        if not wanted or not wanted <= set(SCOPES):
            raise InvalidSetting(
                f"scopes must be some of {', '.join(SCOPES)}, got {', '.join(sorted(wanted)) or 'none'}"
            )
        if not name.strip() or not name.isprintable() or len(name) > 80:
            raise InvalidSetting("the name of a token must be one line of 1 to 80 characters")
        made, number, secret = self._clock(), secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        expires = None if lifetime is None else made + lifetime
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO tokens (id, name, hash, scopes, made, expires) VALUES (?, ?, ?, ?, ?, ?)",
                number, name, _hash_secret(secret), " ".join(sorted(wanted)), format_time(made),
                format_time(expires),
            )  # fmt: skip
            details = {
                "name": name,
                "scopes": sorted(wanted),
                "expires": format_time(expires),
            }
            self._audit.record("token.created", actor=actor, subject=number, **details)
        return Token(number, name, wanted, made, expires, None, None), f"{_PREFIX}_{number}_{secret}"

    def list_all(self) -> list[Token]:
        """All of them, in the order in which they were made."""
        return [_read_token(row) for row in self._database.fetch_all("SELECT * FROM tokens ORDER BY made, id")]

    def has_any(self) -> bool:
        """Whether a token was ever made: from then on nobody may ask without one, though it has ended since."""
        return self._database.fetch_one("SELECT 1 FROM tokens") is not None

    def has_valid(self) -> bool:
        """Whether there is a token that counts."""
        now = self._clock()
        return any(one.is_valid(now) for one in self.list_all())

    def is_valid(self, id_: str) -> bool:
        """Whether the token with this id counts now."""
        now = self._clock()
        return any(token.id == id_ and token.is_valid(now) for token in self.list_all())

    def revoke(self, id: str, actor: str = COMMAND_LINE) -> Token:  # noqa: A002 - the name of the column
        """Let a token count no more."""
        with self._database.transaction() as database:
            question = "UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL"
            if database.execute(question, format_time(self._clock()), id):
                self._audit.record("token.revoked", actor=actor, subject=id)
        row = self._database.fetch_one("SELECT * FROM tokens WHERE id = ?", id)
        if row is None:
            raise UnknownId("there is no token with this id; expunge token list tells which there are")
        return _read_token(row)

    def authenticate(self, text: str) -> Token | None:
        """The token that this is the text of, if it counts; its last use is noted, to the minute."""
        prefix, _, rest = text[:_MAX_TEXT_CHARS].partition("_")
        number, _, secret = rest.partition("_")
        row = self._database.fetch_one("SELECT * FROM tokens WHERE id = ?", number) if prefix == _PREFIX else None
        right = hmac.compare_digest(
            _hash_secret(secret), _hash_secret("") if row is None else row["hash"]
        )  # as long for any text
        if row is None or not right:
            return None
        token, now = _read_token(row), self._clock()
        if not token.is_valid(now):
            return None
        minute = now.replace(second=0, microsecond=0)
        if token.used is None or token.used < minute:
            with (
                suppress(sqlite3.OperationalError),
                self._database.transaction(wait=False) as database,
            ):  # on a full disk, or while somebody else writes
                database.execute("UPDATE tokens SET used = ? WHERE id = ?", format_time(minute), number)
        return token


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read_token(row: "object") -> Token:
    found = dict(row)  # type: ignore[call-overload]
    times = {name: parse_time(found[name]) for name in ("expires", "revoked", "used")}
    scopes = frozenset(found["scopes"].split())
    return Token(found["id"], found["name"], scopes, parse_time(found["made"]), **times)
