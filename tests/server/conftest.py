"""A service in front of a small vault, and a client that speaks HTTP to it without a socket."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from expunge import CodedRegressor
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.service import Options, Service
from expunge.vault import Vault

from support.client import LocalClient


class Time:
    """A clock that stands still until somebody moves it."""

    def __init__(self):
        self.now = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def __call__(self):
        return self.now

    def pass_(self, **parts):
        self.now += timedelta(**parts)


def people(count=40):
    """A table: two inputs and a target of p0, p1, ..."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(count) for name in ("age", "visits", "spend")}
    return pa.table({"who": [f"p{k}" for k in range(count)], **columns})


@pytest.fixture
def vault(tmp_path):
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    return Vault.create(tmp_path / "spend.vault", people(), target="spend", id="who", model=model)


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def make(vault, clock):
    """A service with these options; its clock thread is not started: tests call `look`."""
    made = []

    def build(**options):
        service = Service(vault, Database(queue_path(vault.places.vault)), Options(**options), clock)
        made.append(service)
        return service

    yield build
    for service in made:
        service.stop()


@pytest.fixture
def service(make):
    return make()


@pytest.fixture
def client(service):
    with LocalClient(create_app(service), raise_server_exceptions=False) as found:
        yield found
