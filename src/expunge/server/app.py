"""The application: every protocol under its prefix, around one service."""

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from .. import __version__
from . import operations
from .limits import Bodies, Rate
from .pages import Sessions, answer_browser
from .pages import router as pages
from .prefix import Prefix, check_prefix
from .problems import Problem, answer
from .protocols import api, drp, fides, hooks_api, matters_api, opendsr, predictions, verifications
from .service import Service
from .watching import Watched

_ABOUT = """Erasure requests and predictions in front of one vault.
Errors are `application/problem+json` (RFC 9457)."""


@dataclass(frozen=True)
class Limits:
    """What one caller may ask for."""

    most_bytes: int = 64 * 2**20  # of a body
    patience: float = 30.0  # seconds for a body, and one more for every 10 kB of it
    per_second: float = 500.0  # requests of one caller to one process
    burst: float = 1000.0


def create_app(service: Service, limits: Limits | None = None) -> FastAPI:
    """The application of a service, which somebody else starts and stops."""
    limits = limits or Limits()
    app = FastAPI(title="expunge", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    fitted_out(app, service, operations.Metrics(service), limits)
    for router in (
        api.router,
        matters_api.router,
        verifications.router,
        predictions.router,
        predictions.v2,
        operations.router,
    ):
        app.include_router(router)
    app.state.opendsr = opendsr.Processor(service)
    app.include_router(opendsr.router)
    app.include_router(fides.router)
    app.state.agents = drp.installed(service)
    app.include_router(drp.router)
    app.include_router(hooks_api.router)
    app.state.sessions = Sessions(service.tokens, service.clock)
    app.include_router(pages)
    app.add_exception_handler(HTTPException, answer_browser)
    return app


def fitted_out(app: FastAPI, service: Service, metrics: Any, limits: Limits) -> None:
    """Give an application what all of ours have: a service, limits, answers to errors, and somebody who counts."""
    app.state.service, app.state.metrics = service, metrics
    app.state.limit = Rate(limits.per_second, limits.burst)
    for error in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, answer)
    app.add_middleware(Bodies, most_bytes=limits.most_bytes, patience=limits.patience)
    app.add_middleware(Watched, state=app.state)  # outside of Bodies: what it refuses is logged and counted, too
    if service.options.root_path:
        app.add_middleware(Prefix, prefix=check_prefix(service.options.root_path))
