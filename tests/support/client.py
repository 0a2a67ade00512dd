"""A client in this process that asks by the name by which this machine may ask without a token."""

from functools import partial

from fastapi.testclient import TestClient

LocalClient = partial(TestClient, base_url="http://localhost")
