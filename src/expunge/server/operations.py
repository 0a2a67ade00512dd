"""Operations: health, readiness, metrics and keys, for machines that watch the service."""

import shutil
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .access import service_of
from .problems import Problem
from .service import Service, Told

router = APIRouter(tags=["operations"])

_SPARE = 4 * 2**20  # bytes on the disk, below which requests may soon be refused


class Metrics:
    """What is counted. No label tells who asked, or about whom."""

    def __init__(self, service: Service) -> None:
        self.registry, self._service = CollectorRegistry(), service
        made: dict[str, Any] = {"registry": self.registry}
        self.http = Counter("expunge_http_requests", "Answers, by route and status.", ["route", "status"], **made)
        self.seconds = Histogram("expunge_http_seconds", "How long answers took, by route.", ["route"], **made)
        self.events = Counter("expunge_request_events", "What happened to requests.", ["event", "protocol"], **made)
        self.forget = Histogram(
            "expunge_forget_seconds",
            "How long erasures took in the vault, durable and certified.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            **made,
        )
        self.requests = Gauge("expunge_requests", "Requests, by kind and state.", ["kind", "state"], **made)
        self.overdue = Gauge("expunge_requests_overdue", "Open requests whose time is over.", **made)
        self.deliveries = Gauge("expunge_deliveries", "Posts to other systems, by state.", ["state"], **made)
        self.rows = Gauge("expunge_vault_rows", "Rows in the vault.", **made)
        self.people = Gauge("expunge_vault_people", "People who have rows in the vault.", **made)
        service.listeners.append(self.hear)

    def hear(self, told: Told) -> None:
        """Count what happened."""
        self.events.labels(told.event, told.entry.protocol).inc()
        if told.event == "done" and told.entry.kind == "erasure":
            self.forget.observe(told.entry.outcome.get("seconds", 0.0))

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        queue, status = self._service.queue, self._service.vault.status()
        self.requests.clear()
        totals = dict[tuple[str, str], int]()
        for (kind, _, state), count in queue.counts().items():
            totals[kind, state] = totals.get((kind, state), 0) + count
        for (kind, state), count in totals.items():
            self.requests.labels(kind, state).set(count)
        now = self._service.clock()
        self.overdue.set(sum(entry.due < now for entry in queue.pending()))
        for state, count in self._service.deliveries.counts().items():
            self.deliveries.labels(state).set(count)
        self.rows.set(status.rows)
        self.people.set(status.people)
        return generate_latest(self.registry)


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Whether requests are taken: the vault can be read and written, and the service is not being stopped."""
    service = service_of(request)
    if service.draining:
        raise Problem(503, "draining", "the service is being stopped")
    service.vault.status()
    service.database.check()
    if shutil.disk_usage(service.database.path.parent).free < _SPARE:
        raise Problem(503, "disk-full", "the disk is nearly full")
    return {"status": "ready"}


for path, answer in (("/healthz", healthz), ("/readyz", readyz)):  # some who watch ask for no body
    router.head(path, include_in_schema=False)(answer)


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Counts and times, for Prometheus."""
    found: Metrics = request.app.state.metrics
    return Response(found.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/.well-known/jwks.json")
def jwks(request: Request) -> JSONResponse:
    """The public keys that certificates are checked with, the newest first."""
    return JSONResponse({"keys": service_of(request).vault.jwks()}, media_type="application/jwk-set+json")
