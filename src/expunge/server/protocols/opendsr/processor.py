"""The processor, as OpenDSR calls who carries requests out: takes them, tells of them, signs and calls back."""

import json
import sqlite3
from typing import Any
from urllib.parse import urlsplit

from fastapi import Response

from ....errors import ExpungeError, InvalidSetting
from ...access import Who
from ...clocks import as_text
from ...logs import log_error
from ...matters import Author
from ...problems import Problem
from ...queue import ERASURE, Job, NewJob, Way
from ...service import Event, Service
from ..identities import answer_nobody, people_of
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
    "not_known": "completed",  # with results_count 0
    "cancelled": "cancelled",
    "failed": "cancelled",
}
_NAMES, _OLD_NAMES = ("X-OpenDSR",), ("X-OpenDSR", "X-OpenGDPR")
_TOLD = "_told"  # the state that callbacks were written down for
_UNTOLD = """SELECT id FROM requests WHERE protocol = 'opendsr' AND ended IS NOT NULL AND callbacks != '[]'
AND json_extract(outcome, '$._told') IS NULL ORDER BY number"""


class Processor:
    """What the service is in OpenDSR: who answers, signs, and calls back."""

    def __init__(self, service: Service) -> None:
        self.service, self.address = service, service.options.address.rstrip("/")
        domain = _host(self.address)
        self.files = SigningFiles(service.vault.places.vault, domain, service.clock)
        service.listeners.append(self.hear)
        for row in service.database.all(_UNTOLD):  # a crash kept them from being told
            self.hear(Event("done", service.queue.get(row["id"])))

    # Requests

    def take(self, wanted: Wanted, raw: bytes, who: Who, *, old: bool) -> Job:
        """Take a request of one caller; sent again, it gets the answer of the first time.

        A UUID that this caller used for another request is refused, and so is one that was cancelled: whoever sends it
        again expects an erasure, and none would follow.
        """
        service = self.service
        key = service.mark(f"{PROTOCOL}\n{who.key}\n{wanted.id}".encode())
        mark = service.mark(raw)
        if (known := self._known(key, mark)) is not None:
            return known
        ids = people_of(service, wanted.ids, wanted.emails)
        if ids is None:
            raise refusal("not-supported", f"of subject_identities only {IDENTITY} ({FORMAT}) is known here")
        asked = NewJob(
            ERASURE,
            PROTOCOL,
            wanted.regulation or service.options.regulation,
            wanted.id,
            who.name,
            who.key,
            wanted.id,
            wanted.callbacks,
            since=wanted.submitted,
            answers=(key, mark),
            facts={"_old": True} if old else {},
        )
        job = service.erase(ids, asked) if ids else answer_nobody(service, asked, len(wanted.emails))
        return self._known(key, mark) or job  # another of the same name may have come at the same time

    def _known(self, key: str, mark: str) -> Job | None:
        """Return the request that was sent before, if it is the same and was not cancelled."""
        known = self.service.queue.answered(key)
        if known is None:
            return None
        if known[0] != mark:
            raise refusal("already-used", "subject_request_id was used for another request")
        if known[1].state == "cancelled":
            raise refusal("cancelled", "the request was cancelled: ask again with a new subject_request_id")
        return known[1]

    def get(self, id_: str, who: Who) -> Job:
        """Return the caller's request of this name; admins may look at those of others."""
        queue, name = self.service.queue, request_id(id_)
        entry = queue.find(PROTOCOL, name, who.key)
        if entry is None and who.allows("admin"):
            entry = queue.find(PROTOCOL, name)
        if entry is None:
            raise Problem(404, "not-found", "there is no request with this subject_request_id")
        return entry

    def cancel(self, id_: str, who: Who) -> Job:
        """Cancel a request that is pending; one that was cancelled before stays so."""
        entry = self.get(id_, who)
        if entry.state == "cancelled":
            return entry
        cancelled = self.service.cancel(entry.id, "cancelled by the controller", Author(who.name, who.key))
        if cancelled is None:
            raise refusal("too-late", "only a request that is pending can be cancelled")
        return cancelled

    # What is told

    def about(self, entry: Job) -> dict[str, Any]:
        """What every answer tells of a request."""
        return {"controller_id": entry.actor or "local", "subject_request_id": entry.outside, "api_version": VERSION}

    def status(self, entry: Job) -> dict[str, Any]:
        """How far a request is."""
        told = {
            **self.about(entry),
            "expected_completion_time": as_text(entry.due),
            "request_status": _STATUS[entry.state],
        }
        if entry.carried_out:
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

    def hear(self, event: Event) -> None:
        """Have every address told that a request has another state. It must not stop who changed it."""
        entry = event.job
        if entry.protocol != PROTOCOL or event.name not in ("done", "not_known", "cancelled") or not entry.callbacks:
            return
        try:
            self._call_back(entry)
        except (ExpungeError, OSError, sqlite3.Error) as error:  # at the next start it is tried again
            log_error("callback-failed", error)

    def _call_back(self, entry: Job) -> None:
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
