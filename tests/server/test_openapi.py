"""schemathesis sends valid and invalid requests generated from the OpenAPI document; none may break the service."""

import pytest
from hypothesis import HealthCheck, given, settings

from expunge.server.app import Limits, create_app

jsonschema = pytest.importorskip("jsonschema_rs", reason="schemathesis brings it")
schemathesis = pytest.importorskip("schemathesis", reason="the test extra has it")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SHORT = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def operations(app):
    """Yield each operation of the document."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for result in schema.get_all_operations():
        yield result.ok()


def test_no_described_operation_causes_a_server_error(service):
    app = create_app(service, Limits(per_second=1e6, burst=1e6))
    count = 0
    for operation in operations(app):
        count += 1

        @SHORT
        @given(case=operation.as_strategy())
        def send(case):
            answer = case.call()
            assert answer.status_code < 500, (case.method, case.path, answer.text)

        send()
    assert count > 40


def test_responses_match_the_document(client):
    """Routes check most responses themselves; erasures and problems are not built from the models."""
    document = client.get("/openapi.json").json()

    def checked(method, path, **sent):
        answer = client.request(method, path, **sent)
        responses = document["paths"][path.partition("?")[0]][method.lower()]["responses"]
        described = responses.get(str(answer.status_code), responses.get("default"))
        kind = answer.headers["content-type"]
        jsonschema.validate(
            {**described["content"][kind]["schema"], "components": document["components"]}, answer.json()
        )
        return answer.status_code

    erase = "/api/v1/erasures"
    assert checked("POST", erase, json={"ids": ["p1", "nobody"]}, headers={"Idempotency-Key": "k"}) == 200
    assert checked("POST", erase, json={"ids": ["p2"]}, headers={"Prefer": "respond-async"}) == 202
    assert checked("POST", erase, json={"ids": []}) == 422
    assert checked("POST", erase, content=b"p1", headers={"content-type": "text/csv"}) == 415
    assert checked("GET", "/api/v1/requests?kind=none") == 422
    assert checked("GET", "/api/v1/requests?kind=erasure") == 200
    keyed = {path for path, operations in document["paths"].items() for operation in operations.values()
             if "Idempotency-Key" in {parameter["name"] for parameter in operation.get("parameters", ())}}  # fmt: skip
    assert keyed == {f"/api/v1/{name}" for name in ("erasures", "rectifications", "rows", "readmissions")}
