"""The application: every protocol under its prefix, around one service, with health, readiness, metrics and keys."""

import math
import shutil
from collections import Counter as Tally
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
from .bulk import BulkProcess
from .middleware import BodyLimit, PathPrefix, RateLimiter, RequestMonitor, check_prefix
from .pages import Sessions, answer_browser
from .pages import router as pages
from .problems import Problem, answer_error
from .protocols import api, drp, fides, matters_api, opendsr, predictions, webhooks_api
from .service import Event, Service

_DESCRIPTION = """Erasure requests and predictions in front of one vault.
Errors are `application/problem+json` (RFC 9457)."""
_MIN_FREE_BYTES = 4 * 2**20  # on the disk; with less, requests may soon be refused


@dataclass(frozen=True)
class Limits:
    """Limits for each caller."""

    max_bytes: int = 64 * 2**20  # of a body
    body_timeout: float = 30.0  # seconds for a body, and one more for every 10 kB of it
    per_second: float = 500.0  # requests of one caller to one process
    burst: float = 1000.0


def create_app(service: Service, limits: Limits | None = None) -> FastAPI:
    """Return the application of a service; starting and stopping the service is up to the caller."""
    app = FastAPI(title="expunge", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None)
    configure_app(app, service, Metrics(service), limits or Limits())
    app.state.opendsr = opendsr.Processor(service)
    app.state.agents = drp.install(service)
    app.state.sessions = Sessions(service.tokens, service.clock)
    for router in (
        api.router,
        matters_api.router,
        predictions.router,
        predictions.v2_router,
        monitoring_router,
        opendsr.router,
        fides.router,
        drp.router,
        webhooks_api.router,
        pages,
    ):
        app.include_router(router)
    app.add_exception_handler(HTTPException, answer_browser)
    return app


def configure_app(app: FastAPI, service: Service, metrics: "HttpMetrics", limits: Limits) -> None:
    """Set up rate limit, error handlers, metrics and middleware."""
    app.state.service, app.state.metrics = service, metrics
    app.state.bulk = BulkProcess(service)
    service.on_stop.append(app.state.bulk.close)
    app.state.limit = RateLimiter(limits.per_second, limits.burst)
    for error in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, answer_error)
    app.add_middleware(BodyLimit, max_bytes=limits.max_bytes, timeout=limits.body_timeout)
    app.add_middleware(RequestMonitor, state=app.state)  # outside of BodyLimit: its refusals are logged and counted
    if service.options.root_path:
        app.add_middleware(PathPrefix, prefix=check_prefix(service.options.root_path))


class HttpMetrics:
    """Counts of HTTP responses and of predicted rows. No label identifies a caller or a person."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http = Counter(
            "expunge_http_requests", "Responses, by route and status.", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "expunge_http_seconds", "Time to respond, by route.", ["route"], registry=self.registry
        )
        self.outside = Counter(
            "expunge_outside_rows",
            "Predicted rows with an input outside the bounds of training.",
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self.registry)


class Metrics(HttpMetrics):
    """The metrics of a service: HTTP, requests, deliveries, verifications, renewals and the vault."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        shared: dict[str, Any] = {"registry": self.registry}
        self.events = Counter("expunge_request_events", "Events of requests.", ["event", "protocol"], **shared)
        self.forget = Histogram(
            "expunge_forget_seconds",
            "Time that erasures took in the vault, until they were durable and certified.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            **shared,
        )
        self.requests = Gauge("expunge_requests", "Requests, by kind and state.", ["kind", "state"], **shared)
        self.overdue = Gauge("expunge_requests_overdue", "Open requests past their deadline.", **shared)
        self.matters = Gauge(
            "expunge_matters",
            "Active matters: in all, with a review due, and with a release to confirm.",
            ["state"],
            **shared,
        )
        self.on_hold = Gauge("expunge_people_on_hold", "People on legal hold.", **shared)
        self.deliveries = Gauge("expunge_deliveries", "Deliveries to other systems, by state.", ["state"], **shared)
        self.deadline = Gauge(
            "expunge_nearest_deadline_seconds",
            "Time until the first open request is due; negative if it is overdue, +Inf if none is open.",
            **shared,
        )
        self.uncertified = Gauge("expunge_uncertified_requests", "Vault requests without a certificate.", **shared)
        self.free = Gauge("expunge_disk_free_bytes", "Free space on the disk of the vault and its queue.", **shared)
        self.rows = Gauge("expunge_vault_rows", "Rows in the vault.", **shared)
        self.people = Gauge("expunge_vault_people", "People who have rows in the vault.", **shared)
        self.verifications = Counter("expunge_verifications", "Verifications that ended.", ["outcome"], **shared)
        for outcome in ("passed", "failed", "unfinished"):  # so that the first failure is an increase
            self.verifications.labels(outcome)
        self.verified = Gauge(
            "expunge_verification_ok",
            "Whether the last verification with an outcome passed: 1, 0, or -1 before the first.",
            **shared,
        )
        self.verified_at = Gauge("expunge_verification_timestamp_seconds", "When that verification ended.", **shared)
        self.verified_in = Gauge("expunge_verification_seconds", "How long that verification took.", **shared)
        self.incomplete = Gauge(
            "expunge_open_completions",
            "Erasures and corrections of people that are complete with the next renewal.",
            **shared,
        )
        self.next_renewal = Gauge(
            "expunge_next_renewal_seconds",
            "Time until the next renewal is due; +Inf if everything is complete.",
            **shared,
        )
        self.renewals = Counter("expunge_renewals", "Renewals that ended.", ["outcome"], **shared)
        for outcome in ("done", "failed", "interrupted"):
            self.renewals.labels(outcome)
        self.renewed_at = Gauge("expunge_renewal_timestamp_seconds", "When the last renewal was done.", **shared)
        service.listeners.append(self.on_event)
        service.renewals.listeners.append(lambda ended: self.renewals.labels(ended.state).inc())
        service.verifications.listeners.append(lambda ended: self.verifications.labels(ended.state).inc())

    def on_event(self, event: Event) -> None:
        """Count an event."""
        self.events.labels(event.name, event.job.protocol).inc()
        was_measured = "renewal" in event.job.outcome  # when it was erased
        if event.name in ("erased", "done") and event.job.kind == "erasure" and not was_measured:
            self.forget.observe(event.job.outcome.get("seconds", 0.0))

    def render(self) -> bytes:
        """Read the gauges' values, and return all metrics in Prometheus's text format."""
        service, queue, status = self._service, self._service.queue, self._service.vault.status()
        totals = Tally[tuple[str, str]]()
        for (kind, _, state), count in queue.counts().items():
            totals[kind, state] += count
        self.requests.clear()
        for (kind, state), count in totals.items():
            self.requests.labels(kind, state).set(count)
        self.overdue.set(queue.overdue_count())
        due = queue.nearest_due()
        self.deadline.set(math.inf if due is None else (due - service.clock()).total_seconds())
        for state, count in service.deliveries.counts().items():
            self.deliveries.labels(state).set(count)
        matters = service.matters.totals()
        self.on_hold.set(matters.pop("people"))
        for state, count in matters.items():
            self.matters.labels(state).set(count)
        self.free.set(_free_bytes(service))
        self.uncertified.set(status.uncertified)
        self.rows.set(status.rows)
        self.people.set(status.people)
        self.incomplete.set(status.open)
        renewal, renewed = service.renewals.next_time(), service.renewals.newest_done()
        self.next_renewal.set(math.inf if renewal is None else (renewal - service.clock()).total_seconds())
        if renewed is not None and renewed.ended is not None:
            self.renewed_at.set(renewed.ended.timestamp())
        outcome = service.verifications.newest_outcome()
        self.verified.set(-1 if outcome is None else int(outcome.ok is True))
        if outcome is not None and outcome.ended is not None:
            self.verified_at.set(outcome.ended.timestamp())
            self.verified_in.set(outcome.seconds or 0.0)
        return super().render()


def _free_bytes(service: Service) -> int:
    """Return the free bytes on the disk that has the vault and its queue."""
    return shutil.disk_usage(service.database.path.parent).free


monitoring_router = APIRouter(tags=["operations"])


@monitoring_router.head("/healthz", include_in_schema=False)
@monitoring_router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the process responds."""
    return {"status": "ok"}


@monitoring_router.head("/readyz", include_in_schema=False)
@monitoring_router.get("/readyz")
def readyz(request: Request) -> dict[str, Any]:
    """Report whether requests are accepted: the vault can be read and written, and the service is not shutting down.

    The status "degraded" also means ready, so that predictions go on; an operator has to look at the reasons.
    """
    service = get_service(request)
    if service.draining:
        raise Problem(503, "draining", "the service is shutting down")
    service.check_writable()
    service.vault.status()
    service.database.check_identity()
    service.database.check_committed()
    if _free_bytes(service) < _MIN_FREE_BYTES:
        raise Problem(503, "disk-full", "the disk is nearly full")
    outcome = service.verifications.newest_outcome()
    if outcome is not None and not outcome.ok:
        return {"status": "degraded", "reasons": ["verification-failed"]}
    return {"status": "ready"}


@monitoring_router.get("/metrics")
def metrics(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Response:
    """Return counts and times for Prometheus. Once a token exists, this needs one with the scope `read`.

    The counts of rows and people change with every request: a caller who can send rows could test ids with them.
    """
    service = get_service(request)
    if service.tokens.has_any() and not service.options.open_metrics:
        authorize(request, credentials, "read")
    http_metrics: HttpMetrics = request.app.state.metrics
    return Response(http_metrics.render(), media_type=CONTENT_TYPE_LATEST)


@monitoring_router.get("/.well-known/jwks.json")
def jwks(request: Request) -> JSONResponse:
    """Return the public keys that check certificates, the newest first."""
    return JSONResponse({"keys": get_service(request).vault.jwks()}, media_type="application/jwk-set+json")
