"""schemathesis reads the OpenAPI document and sends what fits it and what does not: nothing breaks the service."""

import pytest
from hypothesis import HealthCheck, given, settings

from expunge.server.app import Limits, create_app

schemathesis = pytest.importorskip("schemathesis", reason="the test extra has it")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SHORT = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def operations(app):
    """What the document describes, one by one."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for found in schema.get_all_operations():
        yield found.ok()


def test_nothing_that_the_document_describes_can_be_broken(service):
    app = create_app(service, Limits(per_second=1e6, burst=1e6))
    seen = 0
    for operation in operations(app):
        seen += 1

        @SHORT
        @given(case=operation.as_strategy())
        def send(case):
            answer = case.call()
            assert answer.status_code < 500, (case.method, case.path, answer.text)

        send()
    assert seen > 40
