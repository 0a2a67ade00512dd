"""The application: every protocol under its prefix, around one service."""

import math
import shutil
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException

from .. import __version__
from .auth import authorize, bearer, get_service
from .middleware import BodyLimit, PathPrefix, RateLimiter, RequestMonitor, check_prefix
from .pages import Sessions, answer_browser
from .pages import router as pages
from .problems import Problem, answer_error
from .protocols import api, drp, fides, matters_api, opendsr, predictions, webhooks_api
from .service import Event, Service

# MERGED operations: Operations: health, readiness, metrics and keys, for machines that watch the service.


monitoring_router = APIRouter(tags=["operations"])

_MIN_FREE_BYTES = 4 * 2**20  # bytes on the disk, below which requests may soon be refused


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
        self.matters = Gauge("expunge_matters", "Matters in force, by what they wait for.", ["state"], **made)
        self.on_hold = Gauge("expunge_people_on_hold", "People on legal hold.", **made)
        self.deliveries = Gauge("expunge_deliveries", "Posts to other systems, by state.", ["state"], **made)
        self.outside = Counter(
            "expunge_outside_rows", "Predicted rows with an input outside the bounds of training.", **made
        )
        self.deadline = Gauge(
            "expunge_nearest_deadline_seconds",
            "Time until the first open request is due; negative if it is overdue, +Inf if none is open.",
            **made,
        )
        self.uncertified = Gauge("expunge_uncertified_requests", "Requests of the vault without a certificate.", **made)
        self.free = Gauge("expunge_disk_free_bytes", "Space left on the disk of the vault and its queue.", **made)
        self.rows = Gauge("expunge_vault_rows", "Rows in the vault.", **made)
        self.people = Gauge("expunge_vault_people", "People who have rows in the vault.", **made)
        self.verifications = Counter("expunge_verifications", "Verifications that ended.", ["outcome"], **made)
        for outcome in ("passed", "failed", "unfinished"):  # so that the first failure is an increase
            self.verifications.labels(outcome)
        self.verified = Gauge(
            "expunge_verification_ok",
            "Whether the last verification with an outcome passed: 1, 0, or -1 before the first.",
            **made,
        )
        self.verified_at = Gauge("expunge_verification_timestamp_seconds", "When that verification ended.", **made)
        self.verified_in = Gauge("expunge_verification_seconds", "How long it took.", **made)
        service.listeners.append(self.on_event)
        service.verifications.listeners.append(lambda found: self.verifications.labels(found.state).inc())

    def on_event(self, event: Event) -> None:
        """Count what happened."""
        self.events.labels(event.name, event.job.protocol).inc()
        if event.name == "done" and event.job.kind == "erasure":
            self.forget.observe(event.job.outcome.get("seconds", 0.0))

    def render(self) -> bytes:
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
        due = queue.nearest_due()
        self.deadline.set(math.inf if due is None else (due - now).total_seconds())
        self.uncertified.set(status.uncertified)
        self.free.set(_free_bytes(self._service))
        matters = self._service.matters.totals()
        self.on_hold.set(matters.pop("people"))
        for state, count in matters.items():
            self.matters.labels(state).set(count)
        self.rows.set(status.rows)
        self.people.set(status.people)
        outcome = self._service.verifications.newest_outcome()
        self.verified.set(-1 if outcome is None else int(outcome.ok is True))
        if outcome is not None and outcome.ended is not None:
            self.verified_at.set(outcome.ended.timestamp())
            self.verified_in.set(outcome.seconds or 0.0)
        return generate_latest(self.registry)


def _free_bytes(service: Service) -> int:
    """Return the free bytes on the disk that has the vault and its queue."""
    return shutil.disk_usage(service.database.path.parent).free


@monitoring_router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@monitoring_router.get("/readyz")
def readyz(request: Request) -> dict[str, Any]:
    """Whether requests are taken: the vault can be read and written, and the service is not being stopped.

    "degraded" is ready, too, so that predictions go on: a person has to look at the reasons.
    """
    service = get_service(request)
    if service.draining:
        raise Problem(503, "draining", "the service is being stopped")
    service.check_writable()
    service.vault.status()
    service.database.check_identity()
    if _free_bytes(service) < _MIN_FREE_BYTES:
        raise Problem(503, "disk-full", "the disk is nearly full")
    outcome = service.verifications.newest_outcome()
    if outcome is not None and not outcome.ok:
        return {"status": "degraded", "reasons": ["verification-failed"]}
    return {"status": "ready"}


for path, answer in (("/healthz", healthz), ("/readyz", readyz)):  # some who watch ask for no body
    monitoring_router.head(path, include_in_schema=False)(answer)


@monitoring_router.get("/metrics")
def metrics(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Response:
    """Return counts and times, for Prometheus. Once there is a token this needs one with the scope `read`.

    The counts of rows and people change with every request: whoever can send rows could test ids with them.
    """
    service = get_service(request)
    if service.tokens.has_any() and not service.options.open_metrics:
        authorize(request, credentials, "read")
    found: Metrics = request.app.state.metrics
    return Response(found.render(), media_type=CONTENT_TYPE_LATEST)


@monitoring_router.get("/.well-known/jwks.json")
def jwks(request: Request) -> JSONResponse:
    """The public keys that certificates are checked with, the newest first."""
    return JSONResponse({"keys": get_service(request).vault.jwks()}, media_type="application/jwk-set+json")


_DESCRIPTION = """Erasure requests and predictions in front of one vault.
Errors are `application/problem+json` (RFC 9457)."""


@dataclass(frozen=True)
class Limits:
    """What one caller may ask for."""

    max_bytes: int = 64 * 2**20  # of a body
    body_timeout: float = 30.0  # seconds for a body, and one more for every 10 kB of it
    per_second: float = 500.0  # requests of one caller to one process
    burst: float = 1000.0


def create_app(service: Service, limits: Limits | None = None) -> FastAPI:
    """The application of a service, which somebody else starts and stops."""
    limits = limits or Limits()
    app = FastAPI(title="expunge", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None)
    configure_app(app, service, Metrics(service), limits)
    for router in (
        api.router,
        matters_api.router,
        predictions.router,
        predictions.v2_router,
        monitoring_router,
    ):
        app.include_router(router)
    app.state.opendsr = opendsr.Processor(service)
    app.include_router(opendsr.router)
    app.include_router(fides.router)
    app.state.agents = drp.install(service)
    app.include_router(drp.router)
    app.include_router(webhooks_api.router)
    app.state.sessions = Sessions(service.tokens, service.clock)
    app.include_router(pages)
    app.add_exception_handler(HTTPException, answer_browser)
    return app


def configure_app(app: FastAPI, service: Service, metrics: Any, limits: Limits) -> None:
    """Give an application what all of ours have: a service, limits, answers to errors, and somebody who counts."""
    app.state.service, app.state.metrics = service, metrics
    app.state.limit = RateLimiter(limits.per_second, limits.burst)
    for error in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, answer_error)
    app.add_middleware(BodyLimit, max_bytes=limits.max_bytes, timeout=limits.body_timeout)
    app.add_middleware(RequestMonitor, state=app.state)  # outside of Bodies: what it refuses is logged and counted, too
    if service.options.root_path:
        app.add_middleware(PathPrefix, prefix=check_prefix(service.options.root_path))
