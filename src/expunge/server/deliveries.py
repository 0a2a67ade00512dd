"""Deliveries: messages to other systems, stored before they are sent, and retried until they arrive.

Delivery is at least once unless all tries fail: a receiver gets a message twice if the process ends between its answer
and our record of it. The row of a finished callback keeps only its times and its outcome; the message of a webhook is
kept for 30 days so that it can be sent again. No message identifies a person.

Each destination (host and path) gets its deliveries in order, and no destination waits for another: at most four are
posted to at one host and 32 in all, half of which stay free for destinations that have not failed.

URLs come from callers and must not lead into the private network. A name is resolved once, all its addresses are
checked, and the connection goes to a checked address: a name that resolves differently a moment later does not matter.
Redirects are not followed.
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

ResolvedAddress: TypeAlias = tuple[socket.AddressFamily, Any]  # a family, and an address for `connect`

_URL_PATTERN = re.compile(r"[\x21-\x7e]{1,2000}")
_PORTS = {"http": 80, "https": 443}
# The special-purpose registries of IANA, whole, including blocks that are globally reachable: no webhook is there.
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
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all global unicast addresses that were assigned
_SPECIAL_6 = [
    ipaddress.IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
]  # 2002::/16 is judged by the embedded IPv4 address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PRIVATE_ADDRESS = "the address is private or reserved: start the service with --allow-host for this host to allow it"


class Unreachable(Exception):
    """No HTTP answer in time; the message is one of the keys of `FAILURE_REASONS`."""


FAILURE_REASONS: Mapping[str, str] = {
    "dns": "the host name cannot be resolved",
    "refused": "connection refused",
    "tls": "the TLS handshake failed: wrong certificate or protocol",
    "timeout": "no answer in time",
    "closed": "the connection was closed before an answer arrived",
    "not-http": "the answer is not HTTP",
    "network": "the host cannot be reached",
    "private-address": "the address is private, and --allow-host was not given for it",
    "status": "the receiver answered with an error status",
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
    """The part of an answer that matters; its body is not read."""

    status: int
    retry_after: int | None = None  # seconds


def parse_target(url: str) -> PostTarget:
    """Return the parts of a URL; raise InvalidInput if it cannot be posted to."""
    if not _URL_PATTERN.fullmatch(url) or "\\" in url:
        raise InvalidInput("a URL must have 1 to 2,000 printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput("the URL is not valid") from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidInput("a URL must start with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a URL must not contain a user name or password")
    if port == 0:
        raise InvalidInput("port 0 cannot be connected to")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return PostTarget(parts.scheme, host, port or _PORTS[parts.scheme], path)


def check_url(url: str, allowed: Collection[str] = ()) -> PostTarget:
    """Return the parts of a URL; refuse one with a private address. Names are resolved when a message is sent."""
    target = parse_target(url)
    if not _is_allowed(target.host, allowed) and not _may_be_public(_normalise_host(target.host)):
        raise InvalidInput(_PRIVATE_ADDRESS)
    return target


def resolve(target: PostTarget, allowed: Collection[str] = ()) -> list[ResolvedAddress]:
    """Return the addresses of a host; raise InvalidInput if one of them is private."""
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable("dns") from None
    addresses: list[ResolvedAddress] = [(row[0], row[4]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)]
    if not addresses:
        raise Unreachable("dns")
    if not _is_allowed(target.host, allowed) and not all(is_public(str(address[0])) for _, address in addresses):
        raise InvalidInput(_PRIVATE_ADDRESS)
    return addresses


def is_public(text: str) -> bool:
    """Return whether an address is public; an IPv6 address that embeds an IPv4 address is judged by that."""
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
    return _normalise_host(host) in {_normalise_host(name) for name in allowed}


def _may_be_public(host: str) -> bool:
    """Return whether a host is a name or a public address, in any notation that resolvers accept."""
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
    timeout: float = 15.0,
) -> PostResponse:
    """Post a body; once the name is resolved, the whole try takes at most ``timeout`` seconds."""
    connection = _PinnedConnection(target, resolve(target, allowed), timeout)
    timer = threading.Timer(timeout, connection.abort)
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
    """Return the reason of a failed connection; the error's own text may contain data from the other side."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return "tls"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionError):  # also a connection that ended without an answer
        return "closed"
    return "network" if isinstance(error, OSError) else "not-http"


def _parse_seconds(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text.strip()) else None


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to addresses that were checked, with the host's name in headers and TLS."""

    def __init__(self, target: PostTarget, addresses: Sequence[ResolvedAddress], timeout: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self.default_port = _PORTS[target.scheme]  # the Host header includes any other port
        self._target, self._addresses, self._timeout = target, addresses, timeout
        self._raw: socket.socket | None = None
        self.timed_out = False

    def connect(self) -> None:
        """Connect to the first address that answers, with TLS if the URL says so."""
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
            raw.settimeout(self._timeout)
            try:
                raw.connect(address)
                return raw
            except OSError as error:
                raw.close()
                failure = error
        raise failure

    def _check_timeout(self) -> None:
        """Raise TimeoutError if the time is over: `abort` cannot cut a socket that is not connected yet."""
        if self.timed_out:
            raise TimeoutError

    def abort(self) -> None:
        """End the connection from another thread, even while bytes still arrive slowly."""
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


# The delay before each try (Standard Webhooks): ten tries in a little more than three days.
RETRY_SCHEDULE = tuple(
    timedelta(seconds=seconds)
    for seconds in (0, 5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)

_TICK_SECONDS = 1.0  # between two checks of what is due
_MAX_WORKERS, _MAX_PER_HOST = 32, 4  # destinations that are posted to at the same time, in all and per host
_MAX_RETRYING = 16  # of these, destinations whose last try failed
_MAX_CONSECUTIVE = 50  # deliveries to one destination before others get a turn
_RETENTION = timedelta(days=30)  # for which finished deliveries are kept
_STOP_TIMEOUT = 2.0  # seconds to wait for running tries when the service is stopped
_HTTP_GONE = 410


class WebhookSigner(Protocol):
    """Signs the deliveries of webhooks again for each try."""

    def sign(self, hook: str, message: str, body: bytes) -> Mapping[str, str] | None:
        """Return the headers of a try; None if the hook does not exist or is disabled."""

    def disable(self, hook: str) -> None:
        """Stop sending to a hook."""


@dataclass(frozen=True)
class Delivery:
    """A message to a webhook, and its progress."""

    id: int
    hook: str
    event: str  # the type in its body
    state: str  # waiting, sent or failed
    reason: str  # why the last try failed: a key of `FAILURE_REASONS`, or empty
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
    """The queue of deliveries, and the thread that sends them."""

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
        """Queue a body to be posted; it is on the disk when this returns."""
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
        """Count the deliveries of a hook, or all, by state: waiting, sent, failed."""
        query = "SELECT state, SUM(n) AS n FROM delivery_counts WHERE hook = ? OR ? IS NULL GROUP BY state"
        rows = self._database.fetch_all(query, hook, hook)
        return {"waiting": 0, "sent": 0, "failed": 0} | {row["state"]: row["n"] for row in rows}

    def cancel_waiting(self, hook: str) -> None:
        """Mark all waiting deliveries of a hook as failed."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE deliveries SET state = 'failed', reason = 'removed', tried = ?, tries = tries + 1, next = NULL,"
                " url = '' WHERE hook = ? AND state = 'waiting'",
                format_time(self._clock()), hook,
            )  # fmt: skip

    def list_for_hook(self, hook: str, *, state: str | None = None, limit: int = 50) -> list[Delivery]:
        """Return the deliveries of a hook, the newest first."""
        query = "SELECT * FROM deliveries WHERE hook = ? AND (state = ? OR ? IS NULL) ORDER BY id DESC LIMIT ?"
        return [_read_delivery(row) for row in self._database.fetch_all(query, hook, state, state, limit)]

    def get(self, number: int) -> Delivery:
        """Return a delivery of a webhook; raise LookupError if it does not exist."""
        row = self._database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND hook IS NOT NULL", number)
        if row is None:
            raise LookupError(number)
        return _read_delivery(row)

    def resend(self, number: int, url: str) -> Delivery:
        """Send a webhook's message again, with the same id and a new signature, and restart its schedule."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE deliveries SET state = 'waiting', tries = 0, next = ?, url = ? WHERE id = ? AND hook NOT NULL",
                format_time(self._clock()), url, number,
            )  # fmt: skip
        self._wake.set()
        return self.get(number)

    def try_once(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str) -> Delivery:
        """Post a message to a webhook now, without retries."""
        later = self._clock() + RETRY_SCHEDULE[-1]  # so that the thread leaves it alone
        number = self._insert(url, body, headers, hook, later)
        self._try_delivery(number)
        with self._database.transaction() as database:
            row = database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
            if row is not None:
                database.execute("UPDATE deliveries SET state = 'failed', next = NULL, url = '' WHERE id = ?", number)
        return self.get(number)

    def start(self) -> None:
        """Start the thread that sends deliveries when they are due."""
        self._thread = threading.Thread(target=self._run, name="expunge-deliveries", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; what is not sent is tried at the next start."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            running = list(self._busy.values())
        for worker in running:
            worker.thread.join(_STOP_TIMEOUT / len(running))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._start_threads()
            except Exception as error:  # the next round may succeed; the thread must not end
                log_error("deliveries-failed", error)
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()

    def send_due(self) -> int:
        """Try everything that is due, wait for the answers, and return the number of tries."""
        before = last = self._tries
        while True:
            for thread in self._start_threads():
                thread.join()
            if self._tries == last:
                return self._tries - before
            last = self._tries

    def _start_threads(self) -> list[threading.Thread]:
        """Start a thread for each destination with due deliveries, unless it has one."""
        rows = self._database.fetch_all(
            "SELECT id, url, tries FROM deliveries WHERE state = 'waiting' AND next <= ? ORDER BY tries, id",
            format_time(self._clock()),
        )
        due = dict[str, list[sqlite3.Row]]()
        for row in rows:
            due.setdefault(row["url"], []).append(row)
        started = list[threading.Thread]()
        with self._lock:
            for url, deliveries in due.items():
                host, retrying = urlsplit(url).netloc.lower(), deliveries[0]["tries"] > 0
                if url not in self._busy and self._has_room(host, retrying=retrying):
                    numbers = [row["id"] for row in deliveries[:_MAX_CONSECUTIVE]]
                    thread = threading.Thread(target=self._send_batch, args=(url, numbers), daemon=True)
                    self._busy[url] = _DeliveryThread(thread, host, retrying)
                    started.append(thread)
        for thread in started:
            thread.start()
        return started

    def _has_room(self, host: str, *, retrying: bool) -> bool:
        workers = self._busy.values()
        return (
            len(workers) < _MAX_WORKERS
            and sum(worker.host == host for worker in workers) < _MAX_PER_HOST
            and not (retrying and sum(worker.retrying for worker in workers) >= _MAX_RETRYING)
        )

    def _send_batch(self, url: str, numbers: list[int]) -> None:
        """Post to one destination; stop at the first delivery without an answer."""
        try:
            for number in numbers:
                if self._stop.is_set() or not self._try_delivery(number):
                    break
        except Exception as error:  # at the end, the database may be closed
            if not self._stop.is_set():
                log_error("delivery-failed", error)
        finally:
            with self._lock:
                del self._busy[url]
            self._wake.set()

    def _try_delivery(self, number: int) -> bool:
        """Try a delivery once; return whether the destination answered."""
        row = self._database.fetch_one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
        if row is None:
            return True
        tries = row["tries"] + 1
        later = self._clock() + RETRY_SCHEDULE[min(tries, len(RETRY_SCHEDULE) - 1)]
        with self._database.transaction() as database:  # before the try: a full disk must not flood a receiver
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
        """Return the headers of this try; a webhook's are signed with the current time."""
        headers: dict[str, str] = json.loads(row["headers"])
        if row["hook"] is None:
            return headers
        signed = None if self.signer is None else self.signer.sign(row["hook"], headers["webhook-id"], row["body"])
        return None if signed is None else headers | dict(signed)

    def _record_try(self, row: sqlite3.Row, answer: PostResponse | None, reason: str) -> None:
        """Store the outcome of a try, and when the next one is due."""
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
                retry_after = timedelta(seconds=(answer.retry_after if answer is not None else None) or 0)
                wait = max(RETRY_SCHEDULE[tries], min(retry_after, RETRY_SCHEDULE[-1]))
                database.execute(
                    "UPDATE deliveries SET tries = ?, next = ?, answer = ?, reason = ?, tried = ? WHERE id = ?",
                    tries, format_time(self._clock() + wait), status, reason, format_time(self._clock()), row["id"],
                )  # fmt: skip
        level: Level = "warning" if reason else "info"
        log("delivery", level=level, hook=row["hook"], delivery=row["id"], tries=tries, answer=status, reason=reason)

    def _finish(self, row: sqlite3.Row, state: str, status: int | None, reason: str) -> None:
        """Store the outcome of a delivery, remove its URL and a callback's message, and delete old deliveries."""
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
