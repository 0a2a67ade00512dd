"""Predicting: the application of a process that does nothing else."""

import gc
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from fastapi import FastAPI

from ..errors import ExpungeError
from ..vault import Vault
from .app import Limits, fitted_out
from .operations import healthz
from .protocols import predictions
from .service import Service

_TURN = 5e-4  # seconds that a thread computes while others wait; Python gives it ten times as long


def warm(vault: Vault) -> None:
    """Have everything loaded that a prediction needs, so that the first that is asked for is as fast as the others.

    From then on a thread that computes for long hands over soon to one that has little to do, and garbage is collected
    only among what comes later.
    """
    sys.setswitchinterval(_TURN)
    with suppress(ExpungeError):
        vault.predict(np.zeros((1, len(vault.inputs))))
    gc.collect()
    gc.freeze()  # modules stay for good: the collector need not look at them again and again


def create_reader(service: Service, metrics: Any, limits: Limits) -> FastAPI:
    """The application of a reader: predictions, and whether it is alive."""
    app = FastAPI(title="expunge", docs_url=None, redoc_url=None, openapi_url=None)
    fitted_out(app, service, metrics, limits)
    app.include_router(predictions.router)
    app.include_router(predictions.v2)
    app.get("/healthz")(healthz)
    return app
