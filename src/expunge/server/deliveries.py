"""Deliveries: what is posted to other systems, written down before it is sent and tried again until it arrives.

A receiver may get one twice, if the process ends between its answer and our note of it, and never less than once unless
all tries fail. Once sent or given up, the row of a callback has nothing but when it was made and how it ended; the
message of a webhook is kept for 30 days so that it can be sent again. No message names anybody.

Each destination (host and path) gets one delivery after the other, and no destination waits for another: at most four
are posted to at one host and 32 in all, half of which stay free for destinations that have not failed.
"""

import http.client
import ipaddress
import json
import re
import socket
import sqlite3
import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from ..errors import InvalidInput
from .clocks import Clock, format_time, parse_time, utc_now
from .database import Database
from .logs import Level, log, log_error

# Addresses: where the service may post to. What callers name must not lead inside.
#
# A name is resolved once, every address that it has is checked, and the connection goes to the very address that was
# checked: a name that leads elsewhere a moment later does not matter. Redirects are not followed.


ResolvedAddress: TypeAlias = tuple[socket.AddressFamily, Any]  # a family and an address as `connect` takes it

_URL_PATTERN = re.compile(r"[\x21-\x7e]{1,2000}")
_PORTS = {"http": 80, "https": 443}
# The special-purpose registries of IANA, whole: also blocks that can be reached from anywhere, where no hook would be.
# `ipaddress` knows a part of them, which depends on the release of Python.
_SPECIAL_4 = [
    ipaddress.IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),  # multicast, and reserved with the broadcast address
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all of IPv6 that was given out; the registry has more outside of it
_SPECIAL_6 = [
    ipaddress.IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
]  # 2002::/16 is judged by the address inside
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PRIVATE_ADDRESS = (
    "the address is private or reserved; the service posts there only if it was started with --allow-host for it"
)


class Unreachable(Exception):
    """Nobody answered, or not in HTTP, or not in time; its text is one of the reasons in `REASONS`."""


FAILURE_REASONS: Mapping[str, str] = {
    "dns": "the host's name has no address",
    "refused": "nobody listens at this address",
    "tls": "no secure connection: the certificate or the protocol does not fit",
    "timeout": "there was no answer in time",
    "closed": "the connection was closed before an answer came",
    "not-http": "the answer is not HTTP",
    "network": "the host cannot be reached",
    "private-address": "the address is private, and no --allow-host was given for it",
    "status": "the receiver refused it: see the status code",
    "removed": "the webhook was removed or switched off",
}


@dataclass(frozen=True)
class PostTarget:
    """A URL in parts."""

    scheme: str
    host: str  # without brackets
    port: int
    path: str  # with the query


@dataclass(frozen=True)
class PostResponse:
    """What is taken from an answer; its body is not read."""

    status: int
    retry_after: int | None = None  # seconds


def parse_target(url: str) -> PostTarget:
    """The parts of a URL that can be posted to."""
    if not _URL_PATTERN.fullmatch(url) or "\\" in url:
        raise InvalidInput("a URL must have 1 to 2,000 printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput("the URL cannot be read") from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidInput("a URL must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a URL must not hold a user or a password")
    if port == 0:
        raise InvalidInput("port 0 cannot be connected to")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return PostTarget(parts.scheme, host, port or _PORTS[parts.scheme], path)


def check_url(url: str, allowed: Collection[str] = ()) -> PostTarget:
    """The parts of a URL, or a refusal if it leads inside by itself; names are resolved when something is sent."""
    target = parse_target(url)
    if not _is_allowed(target.host, allowed) and not _may_be_public(_normalise_host(target.host)):
        raise InvalidInput(_PRIVATE_ADDRESS)
    return target


def resolve(target: PostTarget, allowed: Collection[str] = ()) -> list[ResolvedAddress]:
    """The addresses of a host, each of which may be posted to."""
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable("dns") from None
    found: list[ResolvedAddress] = [(row[0], row[4]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)]
    if not found:
        raise Unreachable("dns")
    if not _is_allowed(target.host, allowed) and not all(is_public(str(address[0])) for _, address in found):
        raise InvalidInput(_PRIVATE_ADDRESS)
    return found


def is_public(text: str) -> bool:
    """Whether an address is one of the open Internet; one that holds an IPv4 address is judged by that as well."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        return ip in _UNICAST and not any(ip in block for block in _SPECIAL_6)
    return not any(ip in block for block in _SPECIAL_4)


def _normalise_host(host: str) -> str:
    return host.lower().rstrip(".")


def _is_allowed(host: str, allowed: Collection[str]) -> bool:
    return _normalise_host(host) in {_normalise_host(one) for one in allowed}


def _may_be_public(host: str) -> bool:
    """Whether a host may be public: a name, or a public address, in any form that the resolver takes for one."""
    try:
        return is_public(host)
    except ValueError:
        pass
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))  # 127.1, 0x7f000001, 2130706433
    except (OSError, UnicodeError):
        return host != "localhost" and not host.endswith(".localhost")


def post_body(
    target: PostTarget,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Collection[str] = (),
    patience: float = 15.0,
) -> PostResponse:
    """Post a body; the whole try takes at most ``patience`` seconds from the moment the name is resolved."""
    connection = _PinnedConnection(target, resolve(target, allowed), patience)
    timer = threading.Timer(patience, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        with connection.getresponse() as answer:
            return PostResponse(answer.status, _parse_seconds(answer.getheader("Retry-After")))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable("timeout" if connection.timed_out else _name_failure(error)) from None
    finally:
        timer.cancel()
        connection.close()


def _name_failure(error: Exception) -> str:
    """Name the reason of a failed connection; the error's own text may hold what the other side sent."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return "tls"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionError):  # also one that ended without an answer
        return "closed"
    return "network" if isinstance(error, OSError) else "not-http"


def _parse_seconds(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text.strip()) else None


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to addresses that were checked, in the name of the host that has them."""

    def __init__(self, target: PostTarget, found: Sequence[ResolvedAddress], patience: float) -> None:
        super().__init__(target.host, target.port, timeout=patience)
        self.default_port = _PORTS[target.scheme]  # the Host header names any other
        self._target, self._addresses, self._patience = target, found, patience
        self._raw: socket.socket | None = None
        self.timed_out = False

    def connect(self) -> None:
        """Connect to the first address that answers, and speak TLS if the URL says so."""
        raw = self._raw = self._connect_socket()
        if self._target.scheme == "https":
            context = ssl.create_default_context()
            raw = self._raw = context.wrap_socket(raw, server_hostname=self._target.host, do_handshake_on_connect=False)
            self._check_timeout()
            raw.do_handshake()
        self._check_timeout()
        self.sock = raw

    def _connect_socket(self) -> socket.socket:
        failure: OSError = TimeoutError()
        for family, address in self._addresses:
            self._check_timeout()
            self._raw = raw = socket.socket(family, socket.SOCK_STREAM)
            raw.settimeout(self._patience)
            try:
                raw.connect(address)
                return raw
            except OSError as error:
                raw.close()
                failure = error
        raise failure

    def _check_timeout(self) -> None:
        """Stop here if the time is over: a socket that was not connected yet could not be cut."""
        if self.timed_out:
            raise TimeoutError

    def abort(self) -> None:
        """End it from another thread: the time is over, however slowly bytes still come."""
        self.timed_out = True
        if (raw := self._raw) is not None:
            try:
                socket.socket.shutdown(raw, socket.SHUT_RDWR)  # below TLS, which would wait for its peer
            except OSError:
                return

    def close(self) -> None:
        super().close()
        if self._raw is not None:
            self._raw.close()


# How long after the one before each try is made (Standard Webhooks): ten tries in a little more than three days.
RETRY_SCHEDULE = tuple(
    timedelta(seconds=seconds)
    for seconds in (0, 5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)

_TICK_SECONDS = 1.0  # seconds between two looks at what is due
_MAX_WORKERS, _MAX_PER_HOST = 32, 4  # destinations that are posted to at the same time, in all and at one host
_MAX_RETRYING = 16  # those of them whose last try failed
_MAX_CONSECUTIVE = 50  # deliveries to one destination before others get their turn
_RETENTION = timedelta(days=30)  # how long it is known how one ended
_STOP_TIMEOUT = 2.0  # seconds for answers that are under way when the service is stopped
_HTTP_GONE = 410


class WebhookSigner(Protocol):
    """Whose deliveries are signed anew for each try."""

    def sign(self, hook: str, message: str, body: bytes) -> Mapping[str, str] | None:
        """The headers of a try; None if there is no such hook, or it is off."""

    def disable(self, hook: str) -> None:
        """Send nothing to a hook any more."""


@dataclass(frozen=True)
class Delivery:
    """One message to a webhook, and how far it is."""

    id: int
    hook: str
    event: str  # as its body names it
    state: str  # waiting, sent or failed
    reason: str  # why the last try failed: one of `REASONS`; empty if it did not
    answer: int | None  # the status code of the last answer
    tries: int
    made: datetime
    tried: datetime | None
    next: datetime | None  # when it is tried again

    def view(self) -> dict[str, Any]:
        """Return the delivery as JSON."""
        return {
            "id": self.id,
            "webhook": self.hook,
            "event": self.event,
            "state": self.state,
            "reason": self.reason,
            "detail": FAILURE_REASONS.get(self.reason, ""),
            "answer": self.answer,
            "tries": self.tries,
            "made": format_time(self.made),
            "tried": format_time(self.tried),
            "next": format_time(self.next),
        }


@dataclass(frozen=True)
class _DeliveryThread:
    """A thread that posts to one destination."""

    thread: threading.Thread
    host: str
    retrying: bool


class Deliveries:
    """What waits to be delivered, and the thread that sends it."""

    def __init__(
        self,
        database: Database,
        clock: Clock = utc_now,
        *,
        allowed: Collection[str] = (),
        post: Callable[..., PostResponse] = post_body,
    ) -> None:
        self._database, self._clock = database, clock
        self.allowed, self._post = allowed, post
        self.signer: WebhookSigner | None = None
        self._lock, self._busy = threading.Lock(), dict[str, _DeliveryThread]()  # by destination
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._tries = 0

    def add(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str | None = None) -> None:
        """Have a body posted; it is on the disk when this returns."""
        self._insert(url, body, headers, hook, self._clock())
        self._wake.set()

    def _insert(self, url: str, body: bytes, headers: Mapping[str, str], hook: str | None, due: datetime) -> int:
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO deliveries (hook, url, body, headers, made, next) VALUES (?, ?, ?, ?, ?, ?)",
                hook, url, body, json.dumps(dict(headers)), format_time(self._clock()), format_time(due),
            )  # fmt: skip
            row = database.fetch_one("SELECT last_insert_rowid() AS id")
        assert row is not None
        number: int = row["id"]
        return number

    def counts(self, hook: str | None = None) -> dict[str, int]:
        """How many deliveries wait, were sent, or were given up: those of a hook, or all."""
        question = "SELECT state, SUM(n) AS n FROM delivery_counts WHERE hook = ? OR ? IS NULL GROUP BY state"
        rows = self._database.fetch_all(question, hook, hook)
        return {"waiting": 0, "sent": 0, "failed": 0} | {row["state"]: row["n"] for row in rows}

    def cancel_waiting(self, hook: str) -> None:
        """Send no more of what waits for a hook."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE deliveries SET state = 'failed', reason = 'removed', tried = ?, tries = tries + 1, next = NULL,"
                " url = '' WHERE hook = ? AND state = 'waiting'",
                format_time(self._clock()), hook,
            )  # fmt: skip

    # Webhooks

    def list_for_hook(self, hook: str, *, state: str | None = None, limit: int = 50) -> list[Delivery]:
        """Return the deliveries of a hook, the newest first."""
        question = "SELECT * FROM deliveries WHERE hook = ? AND (state = ? OR ? IS NULL) ORDER BY id DESC LIMIT ?"
        return [_read_delivery(row) for row in self._database.fetch_all(question, hook, state, state, limit)]

    def get(self, number: int) -> Delivery:
        """Return one delivery of a webhook; LookupError if there is none."""
        row = self._database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND hook IS NOT NULL", number)
        if row is None:
            raise LookupError(number)
        return _read_delivery(row)

    def resend(self, number: int, url: str) -> Delivery:
        """Send a message of a webhook again, with its id and a new signature, by the schedule from its beginning."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE deliveries SET state = 'waiting', tries = 0, next = ?, url = ? WHERE id = ? AND hook NOT NULL",
                format_time(self._clock()), url, number,
            )  # fmt: skip
        self._wake.set()
        return self.get(number)

    def try_once(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str) -> Delivery:
        """Post a message to a webhook now, and only once."""
        number = self._insert(
            url, body, headers, hook, self._clock() + RETRY_SCHEDULE[-1]
        )  # the thread leaves it alone
        self._try_delivery(number)
        with self._database.transaction() as database:
            row = database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
            if row is not None:
                database.execute("UPDATE deliveries SET state = 'failed', next = NULL, url = '' WHERE id = ?", number)
        return self.get(number)

    # The thread

    def start(self) -> None:
        """Send from now on what is due, and what is added."""
        self._thread = threading.Thread(target=self._run, name="expunge-deliveries", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin no more; what is not sent is tried by whoever starts next."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            under_way = list(self._busy.values())
        for worker in under_way:
            worker.thread.join(_STOP_TIMEOUT / len(under_way))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._start_threads()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log_error("deliveries-failed", error)
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()

    def send_due(self) -> int:
        """Try everything that is due, and wait for the answers; how many tries were made."""
        before = last = self._tries
        while True:
            for thread in self._start_threads():
                thread.join()
            if self._tries == last:
                return self._tries - before
            last = self._tries

    def _start_threads(self) -> list[threading.Thread]:
        """Start a thread for each destination that something is due for, unless it has one."""
        rows = self._database.fetch_all(
            "SELECT id, url, tries FROM deliveries WHERE state = 'waiting' AND next <= ? ORDER BY tries, id",
            format_time(self._clock()),
        )
        due = dict[str, list[sqlite3.Row]]()
        for row in rows:
            due.setdefault(row["url"], []).append(row)
        begun = list[threading.Thread]()
        with self._lock:
            for url, some in due.items():
                host, retrying = urlsplit(url).netloc.lower(), some[0]["tries"] > 0
                if url not in self._busy and self._has_room(host, retrying=retrying):
                    numbers = [row["id"] for row in some[:_MAX_CONSECUTIVE]]
                    thread = threading.Thread(target=self._send_batch, args=(url, numbers), daemon=True)
                    self._busy[url] = _DeliveryThread(thread, host, retrying)
                    begun.append(thread)
        for thread in begun:
            thread.start()
        return begun

    def _has_room(self, host: str, *, retrying: bool) -> bool:
        workers = self._busy.values()
        return (
            len(workers) < _MAX_WORKERS
            and sum(worker.host == host for worker in workers) < _MAX_PER_HOST
            and not (retrying and sum(worker.retrying for worker in workers) >= _MAX_RETRYING)
        )

    def _send_batch(self, url: str, numbers: list[int]) -> None:
        """Post to one destination; one that does not answer lets others have their turn."""
        try:
            for number in numbers:
                if self._stop.is_set() or not self._try_delivery(number):
                    break
        except Exception as error:  # a database that was closed, at the end
            if not self._stop.is_set():
                log_error("delivery-failed", error)
        finally:
            with self._lock:
                del self._busy[url]
            self._wake.set()

    # One try

    def _try_delivery(self, number: int) -> bool:
        """Try one; whether there was an answer."""
        row = self._database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
        if row is None:
            return True
        tries = row["tries"] + 1
        later = self._clock() + RETRY_SCHEDULE[min(tries, len(RETRY_SCHEDULE) - 1)]
        with self._database.transaction() as database:  # before it is made: a disk that is full must not flood anybody
            database.execute("UPDATE deliveries SET next = ? WHERE id = ?", format_time(later), number)
        with self._lock:
            self._tries += 1
        headers = self._headers(row)
        if headers is None:
            self._finish(row, "failed", None, "removed")
            return True
        answer, reason = None, ""
        try:
            answer = self._post(parse_target(row["url"]), row["body"], headers, allowed=self.allowed)
            reason = "" if 200 <= answer.status < 300 else "status"
        except InvalidInput:
            reason = "private-address"
        except Unreachable as error:
            reason = str(error)
        self._record_try(row, answer, reason)
        return answer is not None

    def _headers(self, row: sqlite3.Row) -> dict[str, str] | None:
        """The headers of this try; a hook's are signed with the time."""
        headers: dict[str, str] = json.loads(row["headers"])
        if row["hook"] is None:
            return headers
        signed = None if self.signer is None else self.signer.sign(row["hook"], headers["webhook-id"], row["body"])
        return None if signed is None else headers | dict(signed)

    def _record_try(self, row: sqlite3.Row, answer: PostResponse | None, reason: str) -> None:
        """Write down how a try went, and when the next one is."""
        status = None if answer is None else answer.status
        tries = row["tries"] + 1
        with self._database.transaction() as database:
            if not reason:
                self._finish(row, "sent", status, "")
            elif status == _HTTP_GONE or tries >= len(RETRY_SCHEDULE):
                self._finish(row, "failed", status, reason)
                if status == _HTTP_GONE and row["hook"] is not None and self.signer is not None:
                    self.signer.disable(row["hook"])
            else:
                asked = timedelta(seconds=(answer.retry_after if answer is not None else None) or 0)
                wait = max(RETRY_SCHEDULE[tries], min(asked, RETRY_SCHEDULE[-1]))
                database.execute(
                    "UPDATE deliveries SET tries = ?, next = ?, answer = ?, reason = ?, tried = ? WHERE id = ?",
                    tries, format_time(self._clock() + wait), status, reason, format_time(self._clock()), row["id"],
                )  # fmt: skip
        level: Level = "warning" if reason else "info"
        log("delivery", level=level, hook=row["hook"], delivery=row["id"], tries=tries, answer=status, reason=reason)

    def _finish(self, row: sqlite3.Row, state: str, status: int | None, reason: str) -> None:
        """Keep of a delivery only how it ended and, of a webhook's, its message; and that not for ever."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE deliveries SET state = ?, answer = ?, reason = ?, tried = ?, tries = tries + 1, next = NULL,"
                " url = '' WHERE id = ? AND state = 'waiting'",
                state, status, reason, format_time(self._clock()), row["id"],
            )  # fmt: skip
            if row["hook"] is None:
                database.execute("UPDATE deliveries SET body = x'', headers = '{}' WHERE id = ?", row["id"])
            database.execute(
                "DELETE FROM deliveries WHERE state != 'waiting' AND made < ?", format_time(self._clock() - _RETENTION)
            )


def _read_delivery(row: sqlite3.Row) -> Delivery:
    return Delivery(
        id=row["id"],
        hook=row["hook"],
        event=str(json.loads(row["body"]).get("type", "")),
        state=row["state"],
        reason=row["reason"],
        answer=row["answer"],
        tries=row["tries"],
        made=parse_time(row["made"]),
        tried=parse_time(row["tried"]),
        next=parse_time(row["next"]),
    )
