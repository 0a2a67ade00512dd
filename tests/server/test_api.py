"""The service's own API: requests, responses, scopes and idempotency."""

import io
import shutil
import sqlite3
import threading
from datetime import timedelta
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from expunge.server.app import create_app
from expunge.server.problems import to_problem
from expunge.server.tokens import SCOPES

from support.client import LocalClient
from support.routes import every_route

ERASE = "/api/v1/erasures"
TABLE = {"who": ["q1", "q2"], "age": [0.25, 0.5], "visits": [0.125, 0.75], "spend": [0.5, 0.25]}


def packed(kind):
    table, out = pa.table(TABLE), io.BytesIO()
    if kind == "text/csv":
        return "\n".join(",".join(map(str, row)) for row in (TABLE, *zip(*TABLE.values(), strict=True))).encode()
    if kind == "application/vnd.apache.parquet":
        pa.parquet.write_table(table, out)
        return out.getvalue()
    form = pa.ipc.new_file if kind.endswith("file") else pa.ipc.new_stream
    with form(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def test_an_erasure_is_carried_out_and_certified(client, vault):
    answer = client.post(ERASE, json={"ids": ["p7", "p8"], "reference": "ticket 12"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["state"], body["people"], body["outcome"]["rows"]) == ("done", 2, 2)
    assert [holding.state for holding in vault.find(["p7", "p8"])] == ["erased", "erased"]
    assert body["certificate"] == vault.requests[-1].certificate
    (caller,) = vault.requests[-1].callers
    assert (caller.job, caller.reference) == (body["id"], "ticket 12")
    assert len(body["receipts"]) == 2
    assert vault.verify().ok


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"ids": []}', b'{"ids": [1.5]}', b'{"ids": ["a"], "x": 1}', b"\xff"]
)
def test_a_bad_body_is_a_problem_and_changes_nothing(client, vault, body):
    answer = client.post(ERASE, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].startswith("urn:expunge:problem:")
    assert len(vault.requests) == 1


def test_many_ids_are_sent_as_text_with_one_per_line(client, vault):
    body = "\ufeffp1\r\np2\n\np\u2028x\np3".encode()
    view = client.post(ERASE, content=body, headers={"content-type": "text/plain; charset=utf-8"}).json()
    assert (view["people"], view["outcome"]["erased"], view["outcome"]["unknown"]) == (4, 3, 1)


def test_a_file_of_ids_has_its_regulation_and_reference_in_the_query(client, vault):
    where = f"{ERASE}?regulation=ccpa&reference=ticket%2012"
    view = client.post(where, content=b"p1\np2", headers={"content-type": "text/plain"}).json()
    assert (view["regulation"], view["reference"]) == ("ccpa", "ticket 12")
    assert (
        client.post(f"{ERASE}?regulation=lgpd", content=b"p3", headers={"content-type": "text/plain"}).status_code
        == 422
    )
    assert client.post(ERASE, content=b"who\np3", headers={"content-type": "text/csv"}).status_code == 415
    assert vault.find(["p3"])[0].state == "present"


def test_an_asynchronous_erasure_has_a_location_to_poll(client, service, vault):
    answer = client.post(ERASE, json={"ids": ["p7"]}, headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer.json()["state"], answer.json()["certificate"]) == (202, "waiting", None)
    where = answer.headers["location"]
    assert client.get(where).json()["state"] == "waiting"
    assert client.get(f"{where}/certificate").status_code == 404
    service.run_due()
    assert client.get(where).json()["state"] == "done"
    assert client.get(f"{where}/certificate").text == vault.requests[-1].certificate
    payload = client.get(f"{where}/certificate", headers={"Accept": "application/json"}).json()
    assert payload["rows"] == 1


def test_erased_and_unknown_people_get_a_receipt(client):
    client.post(ERASE, json={"ids": ["p7"]})
    erased, unknown, present = client.post("/api/v1/receipts", json={"ids": ["p7", "nobody", "p8"]}).json()
    assert erased is not None
    assert unknown is not None
    assert present is None


# Rows


@pytest.mark.parametrize(
    "kind",
    [
        "application/json", "text/csv", "application/vnd.apache.parquet", "application/vnd.apache.arrow.file",
        "application/vnd.apache.arrow.stream",
    ],
)  # fmt: skip
def test_rows_come_in_five_forms(client, vault, kind):
    rows = [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]
    sent = {"json": {"rows": rows}} if kind == "application/json" else {"content": packed(kind)}
    added = client.post("/api/v1/rows", headers={"content-type": kind}, **sent)
    assert added.status_code == 200, added.text
    assert (added.json()["outcome"]["rows"], vault.status().rows) == (2, 42)
    right = client.post("/api/v1/rectifications?reference=t", headers={"content-type": kind}, **sent)
    assert (right.status_code, right.json()["certificate"]) == (200, vault.requests[-1].certificate)
    assert vault.verify().ok


def test_an_erased_person_returns_only_after_a_readmission(client):
    client.post(ERASE, json={"ids": ["p1"]})
    row = {"rows": [{"who": "p1", "age": 0.5, "visits": 0.5, "spend": 0.5}]}
    assert client.post("/api/v1/rows", json=row).status_code == 409
    assert client.post("/api/v1/rows?skip_erased=true", json=row).status_code in (200, 422)
    assert client.post("/api/v1/readmissions", json={"ids": ["p1"]}).status_code == 200
    assert client.post("/api/v1/rows", json=row).status_code == 200


# Idempotency


def test_the_same_key_and_body_get_the_same_response_even_after_a_restart(client, service, vault, make):
    headers = {"Idempotency-Key": '"8e03978e"'}
    first = client.post(ERASE, json={"ids": ["p7"]}, headers=headers)
    assert client.post(ERASE, json={"ids": ["p7"]}, headers=headers).json() == first.json()
    service.stop()
    with LocalClient(create_app(make())) as fresh:
        assert fresh.post(ERASE, json={"ids": ["p7"]}, headers=headers).json() == first.json()
        assert fresh.post(ERASE, json={"ids": ["p8"]}, headers=headers).status_code == 422
        assert fresh.post("/api/v1/readmissions", json={"ids": ["p7"]}, headers=headers).status_code == 422
    assert len(vault.requests) == 2


def test_a_repeated_asynchronous_erasure_returns_the_same_request(client, service):
    headers = {"Idempotency-Key": "k", "Prefer": "respond-async"}
    first = client.post(ERASE, json={"ids": ["p7"]}, headers=headers)
    service.run_due()
    again = client.post(ERASE, json={"ids": ["p7"]}, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["id"], again.json()["state"]) == (again.json()["id"], "done")


def test_a_person_who_returned_gets_no_statement_of_being_unknown(client):
    headers = {"Idempotency-Key": "k"}
    (erased,) = client.post(ERASE, json={"ids": ["p7"]}, headers=headers).json()["receipts"]
    assert client.post("/api/v1/readmissions", json={"ids": ["p7"]}).status_code == 200
    (again,) = client.post(ERASE, json={"ids": ["p7"]}, headers=headers).json()["receipts"]
    assert again in (erased, None)


def test_a_key_is_forgotten_after_a_long_time(client, service, clock):
    first = client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"}).json()
    clock.pass_(days=89)
    assert client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"}).json()["id"] == first["id"]
    clock.pass_(days=2)
    client.post(ERASE, json={"ids": ["p8"]}, headers={"Idempotency-Key": "other"})
    assert len(service.database.fetch_all("SELECT * FROM answered")) == 1


def test_a_key_is_kept_for_rows_and_freed_by_a_failure(client, vault):
    headers = {"Idempotency-Key": "k"}
    bad = client.post("/api/v1/rows", json={"rows": [{"who": "q1"}]}, headers=headers)
    assert bad.status_code == 422
    row = {"rows": [{"who": "q1", "age": 0.5, "visits": 0.5, "spend": 0.5}]}
    first = client.post("/api/v1/rows", json=row, headers=headers)
    assert first.status_code == 200
    assert client.post("/api/v1/rows", json=row, headers=headers).json() == first.json()
    assert vault.status().rows == 41


def test_a_key_of_a_request_that_was_queued_before_is_kept(make, clock):
    service = make(window=timedelta(hours=1))
    with LocalClient(create_app(service)) as client:
        first = client.post(ERASE, json={"ids": ["p7"]}).json()
        again = client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"}).json()
        clock.pass_(hours=1)
        service.run_due()
        later = client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"}).json()
    assert first["id"] == again["id"] == later["id"]
    assert later["state"] == "done"


def test_a_key_of_a_cancelled_request_is_refused_and_a_new_one_erases(make, vault, clock):
    service = make(window=timedelta(hours=1))
    with LocalClient(create_app(service)) as client:
        first = client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"}).json()
        assert client.delete(f"/api/v1/requests/{first['id']}").status_code == 200
        again = client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["type"]) == (409, "urn:expunge:problem:cancelled")
        assert "use a new key" in again.json()["detail"]
        assert client.post(ERASE, json={"ids": ["p7"]}, headers={"Idempotency-Key": "new"}).status_code == 202
        clock.pass_(hours=1)
        service.run_due()
    assert [holding.state for holding in vault.find(["p7"])] == ["erased"]


def test_a_key_in_flight_is_refused(client, service, vault, monkeypatch):
    inside, go, unlearn = threading.Event(), threading.Event(), service.vault.unlearn_group

    def slow(*args, **options):
        inside.set()
        go.wait(30)
        return unlearn(*args, **options)

    monkeypatch.setattr(service.vault, "unlearn_group", slow)
    headers, answers = {"Idempotency-Key": "k"}, []
    thread = threading.Thread(target=lambda: answers.append(client.post(ERASE, json={"ids": ["p7"]}, headers=headers)))
    thread.start()
    assert inside.wait(30)
    assert client.post(ERASE, json={"ids": ["p7"]}, headers=headers).status_code == 409
    go.set()
    thread.join()
    assert answers[0].status_code == 200
    assert client.post(ERASE, json={"ids": ["p7"]}, headers=headers).json() == answers[0].json()


def test_the_same_key_of_two_callers_counts_separately(client, service):
    first, second = (service.tokens.create(name, ["erase"], None)[1] for name in "ab")
    answers = [
        client.post(
            ERASE, json={"ids": [who]}, headers={"Idempotency-Key": "k", "Authorization": f"Bearer {token}"}
        ).status_code
        for who, token in (("p1", first), ("p2", second))
    ]
    assert answers == [200, 200]


@pytest.mark.parametrize("key", ["", "x" * 256, "ä".encode()])
def test_an_invalid_key_is_refused(client, key):
    assert client.post(ERASE, json={"ids": ["p1"]}, headers={"Idempotency-Key": key}).status_code == 400


# Reading requests


def test_requests_are_listed_page_by_page(client):
    for k in range(5):
        client.post(ERASE, json={"ids": [f"p{k}"]})
    listed, before = [], None
    while True:
        page = client.get("/api/v1/requests", params={"limit": 2} | ({"before": before} if before else {})).json()
        listed += [item["id"] for item in page["requests"]]
        if (before := page["next"]) is None:
            break
    assert len(listed) == len(set(listed)) == 5


def test_an_extension_is_given_once_in_time_and_with_a_reason(make, clock):
    service = make(window=timedelta(days=300))
    with LocalClient(create_app(service)) as client:
        first, second = (client.post(ERASE, json={"ids": [who]}).json() for who in ("p1", "p2"))
        path = "/api/v1/requests/{}/extension"
        assert client.post(path.format(first["id"]), json={}).status_code == 422
        longer = client.post(path.format(first["id"]), json={"reason": "many"})
        assert (longer.json()["due"], longer.json()["extension"]) == ("2026-04-30T12:00:00Z", "many")
        assert client.post(path.format(first["id"]), json={"reason": "more"}).status_code == 409
        clock.pass_(days=40)
        assert client.post(path.format(second["id"]), json={"reason": "late"}).status_code == 409


# Scopes

OPEN = {
    "/healthz", "/readyz", "/.well-known/jwks.json", "/openapi.json", "/ping", "/health", "/version",
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/{name}/ready",
}  # fmt: skip
PUBLIC = ("/discovery", "/certificate.pem")  # that OpenDSR wants anybody to see
PAGES = ("/login", "/logout", "/static", "/receipt")  # what a person sees without a session; others lead to /login

OURS = {
    "erase": {
        *(("POST", path) for path in ("/erasures", "/receipts", "/requests/x/extension")), ("DELETE", "/requests/x"),
    },
    "rows": {("POST", "/rows"), ("POST", "/rectifications"), ("POST", "/readmissions")},
    "read": {
        ("GET", path)
        for path in ("/requests", "/requests/x", "/requests/x/certificate", "/audit", "/status", "/keys", "/matters",
                     "/matters/x", "/matters/x/release", "/verifications", "/verifications/x", "/replan", "/replan/x")
    } | {("POST", "/verifications")},
    "admin": {
        *(("POST", f"/matters{path}") for path in ("", "/lookup", "/x/people", "/x/release")),
        ("POST", "/matters/x/release/confirmation"), ("POST", "/replan"),
        ("PATCH", "/matters/x"), ("DELETE", "/matters/x/release"),
    },
    "predict": {("POST", "/invocations"), ("GET", "/v2/models/spend"), ("POST", "/v2/models/spend/infer"),
                ("GET", "/v2/models/spend/versions/1"), ("GET", "/v2/models/spend/versions/1/ready"),
                ("POST", "/v2/models/spend/versions/1/infer")},
}  # fmt: skip

FOLLOWED = {("GET", "/requests/x"): ("erase", "rows"), ("GET", "/requests/x/certificate"): ("erase",)}


def test_every_route_needs_authentication(client, service):
    service.tokens.create("a", ["read"], None)
    routes, open_to_all = set(every_route(client.app)), set()
    for method, path in routes:
        answer = client.request(method, path.replace("{", "").replace("}", ""), follow_redirects=False)
        away = answer.status_code in (302, 303) and (method == "GET" or "/login" in answer.headers["location"])
        if answer.status_code not in (401, 403) and not away:
            open_to_all.add(path)
    others = {path for path in open_to_all - OPEN if not path.startswith(PAGES) and not path.endswith(PUBLIC)}
    assert others == set()
    assert len(routes) > 40


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_opens_its_routes_and_no_others(client, service, scope):
    headers = {"Authorization": f"Bearer {service.tokens.create('a', [scope], None)[1]}"}
    for needed, routes in OURS.items():
        for method, path in sorted(routes):
            full = path if needed == "predict" else f"/api/v1{path}"
            status = client.request(method, full, headers=headers).status_code
            allowed = {needed, "admin", *FOLLOWED.get((method, path), ())}
            assert (status == 403) == (scope not in allowed), (scope, method, path, status)
            assert status != 401


def test_every_route_of_our_own_is_in_the_table(client):
    mine = {
        (method, path.removeprefix("/api/v1").replace("{id}", "x"))
        for method, path in every_route(client.app)
        if path.startswith("/api/v1") and not path.startswith("/api/v1/webhooks")
    }
    assert mine == set().union(*(routes for scope, routes in OURS.items() if scope != "predict"))


def test_openapi_describes_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    ours = {route for route in every_route(client.app) if route[1].startswith(("/api/v1", "/v2", "/invocations"))}
    assert ours <= documented


def test_a_draining_service_is_not_ready_but_answers(client, service):
    assert "connection" not in client.get("/readyz").headers
    service.draining = True
    answer = client.post(ERASE, json={"ids": ["p1"]})
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert client.get("/readyz").status_code == 503
    assert client.get("/v2/health/ready").status_code == 503


def test_a_closing_service_accepts_nothing_new(client, service):
    service.draining = service.closing = True
    assert client.post(ERASE, json={"ids": ["p1"]}).status_code == 503
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    assert client.get("/api/v1/status").status_code == 200


def test_every_answer_has_the_headers_of_a_careful_server(client):
    for path in ("/healthz", "/nowhere", "/api/v1/status"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]


# Views


def test_added_rows_have_no_deadline_and_name_their_actor(client):
    rows = {"rows": [{"who": "q1", "age": 0.5, "visits": 0.5, "spend": 0.5}]}
    added = client.post("/api/v1/rows", json=rows).json()
    assert (added["due"], added["people"]) == (None, 1)
    assert client.post("/api/v1/rectifications", json=rows).json()["due"] is not None


def test_the_status_counts_waiting_and_held_requests(make):
    service = make(window=timedelta(hours=1))
    with LocalClient(create_app(service)) as client:
        client.post("/api/v1/matters", json={"ids": ["p1"], "name": "case 7", "reason": "court"})
        for who in ("p1", "p2", "p3"):
            client.post(ERASE, json={"ids": [who]})
        status = client.get("/api/v1/status").json()
    assert (status["waiting"], status["held"]) == (2, 1)


def test_an_invalid_filter_is_refused(client):
    assert client.get("/api/v1/requests?kind=erasure&protocol=drp").json()["requests"] == []
    for wrong in ("kind=erasures", "protocol=dsr", "state=over"):
        assert client.get(f"/api/v1/requests?{wrong}").status_code == 422


def test_probes_may_use_head(client):
    for path in ("/healthz", "/readyz"):
        assert (client.head(path).status_code, client.head(path).content) == (200, b"")


def test_a_full_disk_is_not_ready(client, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:expunge:problem:disk-full")
    assert to_problem(sqlite3.OperationalError("database or disk is full")).kind == "disk-full"


def test_a_missing_vault_is_reported_and_may_come_back(client, vault):
    away = vault.places.vault.with_name("away")
    vault.places.vault.rename(away)
    for path in ("/readyz", "/api/v1/status"):
        assert (client.get(path).status_code, client.get(path).json()["type"]) == (503, "urn:expunge:problem:storage")
    away.rename(vault.places.vault)
    assert client.get("/readyz").status_code == 200


def test_a_removed_queue_accepts_nothing(client, service):
    service.database.path.unlink()
    assert client.post(ERASE, json={"ids": ["p1"]}).json()["type"] == "urn:expunge:problem:storage"
    assert client.get("/readyz").status_code == 503
    assert service.vault.find(["p1"])[0].state == "present"


@pytest.mark.parametrize("names", [("a", "b"), ("token", "token")])
def test_callers_have_requests_of_their_own(make, clock, names):
    """Cancelling a request leaves those of others for the same person open, also if their tokens share a name."""
    service = make(window=timedelta(hours=1))
    headers = [{"Authorization": f"Bearer {service.tokens.create(name, ['erase'], None)[1]}"} for name in names]
    with LocalClient(create_app(service)) as client:
        first, again, other = (client.post(ERASE, json={"ids": ["p1"]}, headers=headers[k]).json() for k in (0, 0, 1))
        named = client.post(ERASE, json={"ids": ["p1"], "reference": "t2"}, headers=headers[0]).json()
        assert first["id"] == again["id"]
        assert len({request["id"] for request in (first, other, named)}) == 3
        for request in (first, named):
            assert client.delete(f"/api/v1/requests/{request['id']}", headers=headers[0]).status_code == 200
        clock.pass_(hours=1)
        service.run_due()
        where = f"/api/v1/requests/{other['id']}"
        assert client.get(where, headers=headers[1]).json()["state"] == "done"
        assert client.get(f"{where}/certificate", headers=headers[1]).status_code == 200
    assert service.vault.find(["p1"])[0].state == "erased"


def test_many_receipts_are_fetched_separately(client, monkeypatch):
    monkeypatch.setattr("expunge.server.protocols.api._MAX_RECEIPTS", 1)
    assert client.post(ERASE, json={"ids": ["p1", "p2"]}).json()["receipts"] is None
    assert None not in client.post("/api/v1/receipts", json={"ids": ["p1", "p2"]}).json()


@pytest.mark.parametrize("raw", ["p1\np2".encode("utf-16-le"), b"p1\0"])
def test_lists_in_other_encodings_are_refused(client, vault, raw):
    assert client.post(ERASE, content=raw, headers={"content-type": "text/plain"}).status_code == 400
    assert vault.find(["p1"])[0].state == "present"


def test_lines_may_end_with_carriage_returns(client):
    view = client.post(ERASE, content=b"p1\rp2\r", headers={"content-type": "text/plain"}).json()
    assert view["outcome"]["erased"] == 2


def test_a_duplicate_json_key_is_refused(client, vault):
    answer = client.post(ERASE, content=b'{"ids": ["p1"], "ids": ["p2"]}', headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert [holding.state for holding in vault.find(["p1", "p2"])] == ["present", "present"]
