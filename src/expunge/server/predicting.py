"""Predicting: the application of a process that does nothing else."""

from contextlib import suppress
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ..errors import ExpungeError
from ..vault import Vault
from .app import Limits
from .limits import Bodies, Rate
from .operations import healthz
from .problems import Problem, answer
from .protocols import predictions
from .service import Service
from .watching import Watched


def warm(vault: Vault) -> None:
    """Have everything loaded that a prediction needs, so that the first that is asked for is as fast as the others."""
    with suppress(ExpungeError):
        vault.predict(np.zeros((1, len(vault.inputs))))


def create_reader(service: Service, metrics: Any, limits: Limits) -> FastAPI:
    """The application of a reader: predictions, and whether it is alive."""
    app = FastAPI(title="expunge", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service, app.state.metrics = service, metrics
    app.state.limit = Rate(limits.per_second, limits.burst)
    app.include_router(predictions.router)
    app.include_router(predictions.v2)
    app.get("/healthz")(healthz)
    for error in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, answer)
    app.add_middleware(Watched, state=app.state)
    app.add_middleware(Bodies, most_bytes=limits.most_bytes, patience=limits.patience)
    return app
