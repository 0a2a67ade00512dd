"""The processor, as OpenDSR calls who carries requests out: takes them, tells of them, signs and calls back."""

import hashlib
import json
import sqlite3
import threading
from typing import Any
from urllib.parse import urlsplit

from fastapi import Response

from ....errors import ExpungeError, InvalidSetting
from ...access import Who
from ...clocks import as_text
from ...logs import log
from ...problems import Problem
from ...queue import ERASURE, Asked, Entry, Way
from ...service import Service, Told
from ..identities import people_of
from .bodies import FORMAT, IDENTITY, Wanted, refusal, request_id
from .keys import SigningFiles

PROTOCOL: Way = "opendsr"
VERSION = "2.0"
PREFIX = "/opendsr/v2"
_STATUS = {
    "waiting": "pending",
    "held": "pending",
    "running": "in_progress",
    "done": "completed",
    "cancelled": "cancelled",
    "failed": "cancelled",
}
_NAMES, _OLD_NAMES = ("X-OpenDSR",), ("X-OpenDSR", "X-OpenGDPR")
_TOLD = "_told"  # the state that callbacks were written down for
_UNTOLD = """SELECT id FROM requests WHERE protocol = ? AND ended IS NOT NULL AND callbacks != '[]'
AND json_extract(outcome, '$._told') IS NULL ORDER BY number"""


class Processor:
    """What the service is in OpenDSR: who answers, signs, and calls back."""

    def __init__(self, service: Service) -> None:
        self.service, self.address = service, service.options.address.rstrip("/")
        domain = _host(self.address)
        self.files = SigningFiles(service.vault.places.vault, domain, service.clock)
        self._taking = threading.Lock()
        service.listeners.append(self.hear)
        for row in service.database.all(_UNTOLD, PROTOCOL):  # a crash kept them from being told
            self.hear(Told("done", service.queue.get(row["id"])))

    # Requests

    def take(self, wanted: Wanted, raw: bytes, who: Who, *, old: bool) -> Entry:
        """Take a request; the same one again is answered by the one that was taken, another of its name refused."""
        service = self.service
        key = service.mark(f"{PROTOCOL}\n{wanted.id}".encode())
        mark = service.mark(hashlib.sha256(raw).digest())
        with self._taking:  # two that come at once are one after the other
            known = service.queue.answered(key)
            if known is not None:
                if known[0] != mark:
                    raise refusal("already-used", "subject_request_id was used for another request")
                return known[1]
            ids = people_of(service, wanted.ids, wanted.emails)
            if ids is None:
                raise refusal("not-supported", f"of subject_identities only {IDENTITY} ({FORMAT}) is known here")
            asked = Asked(
                ERASURE,
                PROTOCOL,
                wanted.regulation or service.options.regulation,
                wanted.id,
                who.name,
                wanted.id,
                wanted.callbacks,
                since=wanted.submitted,
                answers=(key, mark),
                facts={"_old": True} if old else {},
            )
            return service.erase(ids or wanted.emails, asked)  # an address that nobody has is recorded as nobody

    def get(self, id_: str) -> Entry:
        """The request of this name."""
        entry = self.service.queue.find(PROTOCOL, request_id(id_))
        if entry is None:
            raise Problem(404, "not-found", "there is no request with this subject_request_id")
        return entry

    def cancel(self, id_: str) -> Entry:
        """Cancel a request that is pending; one that was cancelled before stays so."""
        entry = self.get(id_)
        if entry.state == "cancelled":
            return entry
        cancelled = self.service.cancel(entry.id, "cancelled by the controller")
        if cancelled is None:
            raise refusal("too-late", "only a request that is pending can be cancelled")
        return cancelled

    # What is told

    def about(self, entry: Entry) -> dict[str, Any]:
        """What every answer tells of a request."""
        return {"controller_id": entry.actor or "local", "subject_request_id": entry.outside, "api_version": VERSION}

    def status(self, entry: Entry) -> dict[str, Any]:
        """How far a request is."""
        told = {
            **self.about(entry),
            "expected_completion_time": as_text(entry.due),
            "request_status": _STATUS[entry.state],
        }
        if entry.state == "done":
            told["results_count"] = entry.outcome.get("rows", 0)
            if entry.outcome.get("request") is not None:
                told["results_url"] = f"{self.address}{PREFIX}/requests/{entry.outside}/results"
        return told

    def signed(self, told: dict[str, Any], status: int, *, old: bool) -> Response:
        """An answer with its signature."""
        body = json.dumps(told).encode()
        return Response(body, status, self.headers(body, old=old), "application/json")

    def headers(self, body: bytes, *, old: bool) -> dict[str, str]:
        """Who says a body, and the signature of it, under the name of now and, for who asked by the old, under both."""
        signer = self.files.signer()
        said = {"Processor-Domain": signer.domain, "Signature": signer.sign(body)}
        names = _OLD_NAMES if old else _NAMES
        return {f"{name}-{part}": value for name in names for part, value in said.items()}

    # Callbacks

    def hear(self, told: Told) -> None:
        """Have every address told that a request has another state. It must not stop who changed it."""
        entry = told.entry
        if entry.protocol != PROTOCOL or told.event not in ("done", "cancelled") or not entry.callbacks:
            return
        try:
            self._call_back(entry)
        except (ExpungeError, OSError, sqlite3.Error) as error:  # at the next start it is tried again
            log("trouble", error=type(error).__name__)

    def _call_back(self, entry: Entry) -> None:
        posts = list[tuple[str, bytes, dict[str, str]]]()
        for url in entry.callbacks:
            body = json.dumps({**self.status(entry), "status_callback_url": url}).encode()
            headers = self.headers(body, old=bool(entry.outcome.get("_old")))
            posts.append((url, body, {"Content-Type": "application/json", **headers}))
        with self.service.database.writing() as database:
            row = database.one("SELECT outcome FROM requests WHERE id = ?", entry.id)
            outcome = {} if row is None else json.loads(row["outcome"])
            if _TOLD in outcome:
                return
            for url, body, headers in posts:
                self.service.deliveries.add(url, body, headers)
            kept = json.dumps(outcome | {_TOLD: entry.state})
            database.execute("UPDATE requests SET outcome = ? WHERE id = ?", kept, entry.id)


def _host(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or not host.isascii() or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise InvalidSetting("the public address must be like https://privacy.example.com, in ASCII")
    return host
