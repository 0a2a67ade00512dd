"""Sessions: who has shown a token to the login page. They live in memory, and end with the process."""

import hashlib
import secrets
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..clocks import Clock
from ..tokens import Token, Tokens

LIFETIME = timedelta(hours=12)
_MOST = 10_000  # sessions at one time; beyond that the oldest ends
_BYTES = 32


@dataclass(frozen=True)
class Session:
    """A browser that showed a token."""

    token: str  # its id
    proof: str  # what a form of this session sends back, so that no other site can send it
    ends: datetime


class Sessions:
    """The sessions of a service. Of a cookie its hash is kept, so that nothing here can be shown as one."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._lock, self._kept = threading.Lock(), dict[bytes, Session]()

    def begin(self, token: Token) -> str:
        """Begin a session; return the text of its cookie."""
        cookie, now = secrets.token_urlsafe(_BYTES), self._clock()
        with self._lock:
            self._kept = {key: one for key, one in self._kept.items() if now < one.ends}
            for key in list(self._kept)[: len(self._kept) - _MOST + 1]:
                del self._kept[key]
            self._kept[_hash(cookie)] = Session(token.id, secrets.token_urlsafe(_BYTES), now + LIFETIME)
        return cookie

    def find(self, cookie: str) -> tuple[Token, Session] | None:
        """The session of a cookie and its token, if both still count."""
        now = self._clock()
        with self._lock:
            session = self._kept.get(_hash(cookie))
        if session is None or now >= session.ends:
            return None
        token = next((one for one in self._tokens.every() if one.id == session.token and one.valid(now)), None)
        return None if token is None else (token, session)

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._kept.pop(_hash(cookie), None)


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="surrogatepass")).digest()
