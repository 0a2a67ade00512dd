"""The dashboard, without a browser: pages, forms, sessions, scopes, and what pages never contain."""

import base64
import io
import json
import re
import zipfile
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import SigningFailed
from expunge.server import pages
from expunge.server.app import create_app
from expunge.server.deliveries import PostResponse
from expunge.server.pages import overview, templating, visitors
from expunge.server.queue import JobFilter, NewJob
from expunge.server.verifications import Verification, audit_unlocked, store_verification
from expunge.vault import LoggedRequest, check_receipt
from expunge.vault.certificates.jws import unverified_payload
from expunge.vault.certificates.keys import public_pem

from support.client import LocalClient
from support.matters import hold, release
from support.pages import PLACES, Form, Page, Person, checked
from support.routes import every_route

OPEN_TO_ALL = {"/login", "/logout", "/receipt", "/receipt/check.html", "/receipt/keys.pem", "/static/{name}"}


@pytest.fixture
def person(client):
    return Person(client)


@pytest.fixture
def token(service):
    """Return a function that creates a token with the given scopes."""

    def make(*scopes, lifetime=None):
        return service.tokens.create("privacy desk", scopes, lifetime)[1]

    return make


def ask(service, *ids, regulation="gdpr", **facts):
    return service.erase(list(ids), NewJob("erasure", "api", regulation, **facts))


def erased(person, *ids, **typed):
    """Erase people with the form, and return the page with the result."""
    answer = person.post("/erase", "/erase", 200, ids="\n".join(ids), **typed)
    return checked(person.send(checked(answer).form("/erase/now")))


# Pages


@pytest.mark.parametrize("place", PLACES)
def test_a_page_is_shown_with_a_policy_that_lets_nothing_in(client, person, place):
    person.get(place)
    headers = client.get(place).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert set(policy) == {"style-src", "script-src", "img-src", "connect-src", "form-action"}
    assert set(policy.values()) == {"'self'"}
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"


def test_pages_load_only_files_that_are_there(client, person):
    addresses = [value for value in person.get("/").values if value.startswith("/static/")]
    assert len(addresses) == 4
    for address in addresses:
        assert client.get(address).status_code == 200
    assert client.get("/static/nothing.css").status_code == 404
    assert client.get("/static/..%2fsessions.py").status_code == 404


def test_no_page_is_in_the_description_of_the_api(client):
    assert not {"/", "/requests", "/erase", "/login"} & set(client.get("/openapi.json").json()["paths"])


def test_a_machine_that_is_not_this_one_needs_a_token(client):
    answer = client.get("/", headers={"host": "example.com"})
    assert answer.status_code == 403
    assert "localhost" in checked(answer).text


def test_errors_are_pages_without_internal_details(client, service, monkeypatch):
    assert checked(client.get("/requests/nothing")).text.count("Page not found")
    monkeypatch.setattr(service.vault, "status", lambda: 1 / 0)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "division" not in checked(answer).text


# Access


def _routes(method):
    return sorted({path for route_method, path in every_route(pages.router) if route_method == method})


def test_the_routes_are_found():
    assert {"/", "/erase", "/requests/{id}", "/requests/{id}/cancel", "/matters/{id}/release"} <= set(
        _routes("GET") + _routes("POST")
    )


def test_a_visitor_without_a_token_is_redirected_to_the_login_and_back(client, person, token):
    text = token("admin")
    for path in sorted(set(_routes("GET")) - OPEN_TO_ALL - {"/erase/now"}):
        client.cookies.clear()
        place = path.format(id="0a1b-2c")
        answer = client.get(place, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
        assert person.post(answer.headers["location"], "/login", token=text).headers["location"] == place


def test_a_visitor_without_a_token_cannot_send_a_form(person, token):
    token("admin")
    proof = person.get("/login").form("/login").fields["proof"]
    for path in sorted(set(_routes("POST")) - OPEN_TO_ALL):
        answer = person.send(Form("post", path.format(id="x", delivery=1), {"proof": proof}))
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("logged_in", [False, True])
def test_a_form_from_elsewhere_is_refused(client, person, token, vault, logged_in):
    if logged_in:
        person.log_in(token("admin"))
    proof = person.get("/receipt").form("/receipt").fields["proof"]
    ours, right = {"origin": person.origin}, {"proof": proof}
    foreign = [
        (ours, {}), (ours, {"proof": proof[::-1]}), (ours, {"proof": ""}), ({}, right), ({"origin": "null"}, right),
        ({"origin": "http://evil.example"}, right), ({"origin": "http://localhost.evil.example"}, right),
    ]  # fmt: skip
    for path in _routes("POST"):
        for headers, sent in foreign:
            data = {**sent, "ids": "p1", "reason": "x"}
            answer = client.post(path.format(id="x", delivery=1), data=data, headers=headers, follow_redirects=False)
            assert answer.status_code == 403, (path, headers, sent)
            text = checked(answer).text
            assert "reload the page" in text or "not sent from a page of this service" in text
    assert len(vault.requests) == 1


def test_a_form_without_its_cookie_is_refused(client, person):
    form = person.get("/erase").form("/erase")
    client.cookies.clear()
    assert person.send(form, ids="p1").status_code == 403


WHAT = {  # a page or form, and the scope that it needs
    ("GET", "/"): "read",
    ("GET", "/requests"): "read",
    ("GET", "/matters"): "read",
    ("GET", "/verify"): "read",
    ("GET", "/verify/{id}"): "read",
    ("GET", "/erase"): "erase",
    ("POST", "/erase"): "erase",
    ("POST", "/erase/now"): "erase",
    ("POST", "/requests/{id}/cancel"): "erase",
    ("POST", "/requests/{id}/extend"): "erase",
    ("POST", "/matters"): "admin",
    ("POST", "/matters/lookup"): "admin",
    ("POST", "/matters/{id}/people"): "admin",
    ("POST", "/matters/{id}/review"): "admin",
    ("GET", "/matters/{id}/release"): "admin",
    ("POST", "/matters/{id}/release"): "admin",
    ("POST", "/matters/{id}/release/people"): "admin",
    ("POST", "/matters/{id}/release/confirm"): "admin",
    ("POST", "/matters/{id}/release/withdraw"): "admin",
    ("POST", "/verify"): "read",
}


@pytest.mark.parametrize("scope", ["predict", "erase", "rows", "read", "admin"])
def test_a_scope_allows_what_it_says_and_no_more(client, person, token, service, scope):
    person.log_in(token(scope))
    proof = next(iter(service_sessions(client))).proof
    for (method, path), needed in WHAT.items():
        if method == "GET":
            answer = client.get(path)
        else:
            answer = person.send(Form("post", path.format(id="x", delivery=1), {"proof": proof}))
        assert (answer.status_code == 403) == (scope not in (needed, "admin")), (method, path)
    assert len(service.vault.requests) == 1


def service_sessions(client):
    return client.app.state.sessions._sessions.values()


def test_a_page_offers_what_its_reader_may_do(person, token, service):
    person.log_in(token("read"))
    job = ask(service, "p1")
    shown = person.get("/matters"), person.get(f"/requests/{job.id}")
    assert [form.action for page in shown for form in page.forms] == ["/logout"] * 2
    assert "/erase" not in person.get("/").links


def test_a_token_in_a_header_shows_a_page_but_sends_no_form(client, token):
    header = {"authorization": f"Bearer {token('admin')}"}
    assert client.get("/requests", headers=header).status_code == 200
    assert client.get("/requests", headers={"authorization": "Bearer exp_x_y"}, follow_redirects=False).is_redirect
    form = checked(client.get("/erase", headers=header)).form("/erase")
    headers = {**header, "origin": "http://localhost"}
    answer = client.post("/erase", data={**form.fields, "ids": "p1"}, headers=headers, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


# Sessions


def test_a_session_is_a_cookie_that_scripts_and_other_sites_never_get(person, token):
    cookies = person.log_in(token("read")).headers.get_list("set-cookie")
    [session] = [cookie for cookie in cookies if cookie.startswith("expunge_session=")]
    parts = {part.strip().lower() for part in session.split(";")}
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= parts
    assert "secure" not in parts


def test_a_session_cookie_under_https_is_secure(service, token):
    text = token("read")
    with LocalClient(create_app(service), base_url="https://localhost") as client:
        person = Person(client, "https://localhost")
        cookies = person.log_in(text).headers.get_list("set-cookie")
        assert all("; Secure" in cookie and cookie.startswith("__Host-expunge_") for cookie in cookies)
        person.get("/")


def test_a_session_ends_after_twelve_hours(person, token, clock):
    person.log_in(token("read"))
    clock.pass_(hours=11, minutes=59)
    person.get("/")
    clock.pass_(minutes=1)
    assert person.client.get("/", follow_redirects=False).headers["location"] == "/login"


def test_a_session_ends_with_its_token(person, service, token, clock):
    person.log_in(token("read", lifetime=timedelta(hours=1)))
    token("admin")
    clock.pass_(hours=1)
    assert person.client.get("/", follow_redirects=False).is_redirect
    record, text = service.tokens.create("other", ["read"], None)
    person.log_in(text)
    person.get("/")
    service.tokens.revoke(record.id)
    assert person.client.get("/", follow_redirects=False).is_redirect


def test_logging_out_invalidates_the_cookie(person, token):
    person.log_in(token("read"))
    cookies = dict(person.client.cookies)
    person.post("/", "/logout")
    assert person.client.get("/", follow_redirects=False).is_redirect
    person.client.cookies.update(cookies)
    assert person.client.get("/", follow_redirects=False).is_redirect


def test_two_sessions_have_two_cookies_and_proofs_and_memory_has_no_cookie(person, token):
    text = token("read")
    secrets = set()
    for _ in range(2):
        person.client.cookies.clear()
        person.log_in(text)
        secrets |= {person.client.cookies["expunge_session"], person.get("/").form("/logout").fields["proof"]}
    assert len(secrets) == 4
    kept = repr(vars(person.client.app.state.sessions))
    assert not any(cookie in kept for cookie in [person.client.cookies["expunge_session"], text])


def test_a_wrong_token_opens_nothing(person, token):
    right = token("read")
    for wrong in ("", "x", right[:-1], right + "x", "exp_\x00_" * 40):
        answer = person.post("/login", "/login", 422, token=wrong)
        assert "is not valid" in checked(answer).text
        assert not [cookie for cookie in answer.headers.get_list("set-cookie") if "session" in cookie]


@pytest.mark.parametrize(
    "hostile",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a//b", "/x?y", "\n"],
)
def test_a_login_redirects_only_to_our_pages(person, token, hostile):
    text = token("read")
    form = person.get("/login").form("/login")
    assert person.send(form, token=text, next=hostile).headers["location"] == "/"
    assert person.client.get("/login", params={"next": hostile}, follow_redirects=False).headers["location"] == "/"


def test_the_number_of_sessions_is_limited(person, token, monkeypatch):
    monkeypatch.setattr("expunge.server.pages.visitors._MAX_SESSIONS", 3)
    text = token("read")
    first = None
    for _ in range(5):
        person.client.cookies.clear()
        person.log_in(text)
        first = first or dict(person.client.cookies)
    assert len(service_sessions(person.client)) == 3
    person.client.cookies.clear()
    person.client.cookies.update(first)
    assert person.client.get("/", follow_redirects=False).is_redirect


def test_visitors_are_rate_limited(person, client, token):
    client.app.state.limit = lambda key: 2.5
    answer = client.get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    form = Form("post", "/receipt", {"proof": person.client.cookies["expunge_form"]})
    assert person.send(form, receipt="x", id="y").status_code == 429


# Erasing


def test_the_confirmation_says_what_the_vault_holds_and_does_nothing(person, service, vault):
    ask(service, "p3")
    hold(service, "p5", name="a trial")
    before = len(vault.requests), service.queue.counts()
    shown = checked(person.post("/erase", "/erase", 200, ids=" p1\r\np3\n\np5\nnobody\np1 ", reference="t 1"))
    assert "2 rows of 2 people will be erased" in shown.text
    for text in ("1 person is on legal hold", "1 person was erased earlier", "1 person is not known here"):
        assert text in shown.text
    assert "Erase 2 people" in shown.text
    assert (len(vault.requests), service.queue.counts()) == before
    assert [holding.state for holding in vault.find(["p1", "p5"])] == ["present", "present"]


def test_an_erasure_is_carried_out_and_each_receipt_is_its_persons(person, service, vault):
    shown = erased(person, "p7", "p8", "nobody", reference="ticket 9", regulation="ccpa")
    assert "2 rows erased" in shown.text
    assert [holding.state for holding in vault.find(["p7", "p8"])] == ["erased", "erased"]
    [job] = service.queue.page(JobFilter())
    assert (job.protocol, job.reference, job.regulation, job.people) == ("dashboard", "ticket 9", "ccpa", 3)
    files = [
        base64.b64decode(link.partition(",")[2]) for link in shown.links if link.startswith("data:application/json")
    ]
    pem = b"".join(public_pem(key["x"]) for key in vault.jwks())
    kinds = [check_receipt(file, id_, pem)["kind"] for file, id_ in zip(files, ("p7", "p8", "nobody"), strict=True)]
    assert kinds == ["unlearn", "unlearn", "unknown"]
    [zipped] = [link.partition(",")[2] for link in shown.links if link.startswith("data:application/zip")]
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(zipped))) as archive:
        assert [archive.read(name) for name in sorted(archive.namelist())] == files


def test_a_form_that_is_sent_twice_is_one_request(person, service):
    form = checked(person.post("/erase", "/erase", 200, ids="p7")).form("/erase/now")
    first, second = person.send(form), person.send(form)
    assert first.status_code == second.status_code == 200
    assert len(service.queue.page(JobFilter())) == 1
    again = checked(person.post("/erase", "/erase", 200, ids="p7")).form("/erase/now")
    assert "Erased earlier" in checked(person.send(again)).text
    assert len(service.queue.page(JobFilter())) == 2


def test_ids_travel_sealed_and_are_in_no_address(person, service, capfd):
    who = "somebody-canary-4711"
    ask(service, "p1")
    answer = person.post("/erase", "/erase", 200, ids=f"p2\n{who}", reference="t 1")
    shown = checked(answer)
    form = shown.form("/erase/now")
    sealed = [base64.b64decode(part) for part in form.fields["people"].split(" ")]
    assert len(sealed) == 2
    assert not any(who.encode() in part for part in sealed)
    after = person.send(form)
    assert "1 row erased" in checked(after).text
    for text in (*shown.values, *checked(after).values, str(answer.headers), str(after.headers)):
        assert who not in text
    assert who not in capfd.readouterr().err


def test_a_changed_form_is_refused(person, vault):
    form = checked(person.post("/erase", "/erase", 200, ids="p7")).form("/erase/now")
    raw = bytearray(base64.b64decode(form.fields["people"]))
    raw[-1] ^= 1
    for wrong in (base64.b64encode(raw).decode(), "", "AAAA", "?", "p7", "AA AA"):
        answer = person.send(form, people=wrong)
        assert answer.status_code == 422
        assert "start again" in checked(answer).text
    assert len(vault.requests) == 1


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"ids": " \n "}, "at least one id"),
        ({"ids": "x" * 1001}, "at most 1,000 characters"),
        ({"ids": "p1", "reference": "x" * 201}, "one line"),
        ({"ids": "p1", "reference": "a\x07b"}, "one line"),
        ({"ids": "p1", "regulation": "moon"}, "regulations"),
        ({"ids": "\n".join(map(str, range(100_001)))}, "at most 100,000 ids"),
    ],
)
def test_a_mistake_in_the_form_is_explained_and_can_be_corrected(person, typed, message):
    shown = checked(person.post("/erase", "/erase", 422, **typed))
    assert message in shown.text
    assert shown.form("/erase").fields["ids"].strip() == typed["ids"].strip()


def test_hostile_text_stays_text(person, service):
    hostile = "'\"><script>a()</script><p onclick=b()>"
    shown = checked(person.post("/erase", "/erase", 200, ids=hostile, reference=hostile))
    assert hostile in shown.text
    checked(person.send(shown.form("/erase/now")))
    hold(service, "p1", name=hostile)
    job = service.queue.page(JobFilter())[0]
    for place in ("/", "/requests", f"/requests/{job.id}", "/matters", f"/requests?kind={hostile}"):
        person.get(place)
    assert hostile in person.get(f"/requests/{job.id}").text


def test_a_request_that_waits_can_be_cancelled(make, clock):
    service = make(window=timedelta(hours=24))
    with LocalClient(create_app(service)) as client:
        person = Person(client)
        asked = person.post("/erase", "/erase", 200, ids="p1")
        assert "after 1 day. Until then the request can be cancelled" in checked(asked).text
        asked_form = checked(asked).form("/erase/now")
        shown = checked(person.send(asked_form))
        assert "carried out after 1 Feb 2026, 12:00" in shown.text
        assert not [link for link in shown.links if link.startswith("data:")]
        again = checked(person.post("/erase", "/erase", 200, ids="p1"))
        [job] = service.queue.page(JobFilter())
        assert f"/requests/{job.id}" in again.links
        at = f"/requests/{job.id}"
        person.post(at, f"{at}/cancel")
        assert service.queue.get(job.id).state == "cancelled"
        assert f"{at}/cancel" not in [form.action for form in person.get(at).forms]
        repeated = person.send(asked_form)
        assert (repeated.status_code, "start again" in repeated.text) == (409, True)
        late = person.send(Form("post", f"{at}/cancel", {"proof": again.form("/erase/now").fields["proof"]}))
        assert late.status_code == 409


def test_the_steps_of_a_request_are_shown(make, clock):
    service = make(window=timedelta(hours=24))
    with LocalClient(create_app(service)) as client:
        person = Person(client)
        job = ask(service, "p1")
        assert "Waiting until 1 Feb 2026" in person.get(f"/requests/{job.id}").text
        matter = hold(service, "p1", name="a trial")
        assert "a trial" in person.get(f"/requests/{job.id}").text
        release(service, matter)
        clock.pass_(hours=25)
        service.run_due()
        done = person.get(f"/requests/{job.id}")
        assert re.search(r"Received .* Waited .* Carried out .* Certified", done.text)
        assert service.certificate(service.queue.get(job.id)) in done.text
        unknown = service.queue.get(ask(service, "nobody").id)
        clock.pass_(hours=25)
        service.run_due()
        unknown = person.get(f"/requests/{unknown.id}").text
        assert "Not known here" in unknown
        assert "Nothing was erased: the vault has no rows of these people" in unknown
        assert "Certified" not in unknown


def test_a_batch_is_shown(make):
    service = make(batch_size=3)
    with LocalClient(create_app(service)) as client:
        person = Person(client)
        job = ask(service, "p1")
        assert "Waiting for the next batch" in person.get(f"/requests/{job.id}").text
        assert "once there are 3 requests" in checked(person.post("/erase", "/erase", 200, ids="p2")).text
        assert "in batches of 3" in person.get("/").text
    service.options = type(service.options)(batch_every=timedelta(hours=2), window=timedelta(hours=1))
    with LocalClient(create_app(service)) as client:
        assert "in batches every 2 hours" in Person(client).get("/").text


def test_a_temporary_failure_is_shown_as_waiting(person, service, vault, monkeypatch):
    def fails(*_, **__):
        raise SigningFailed("no signer")

    with monkeypatch.context() as patched:
        patched.setattr(vault, "unlearn_group", fails)
        assert "tried again: no signer" in erased(person, "p1").text
    with monkeypatch.context() as patched:
        patched.setattr("expunge.server.service.MAX_RECEIPTS", 0)  # none are made with the erasure
        patched.setattr(service, "issue_receipts", fails)
        shown = erased(person, "p2")
        assert "1 row erased" in shown.text
        assert "No signer" in shown.text


def test_the_number_of_receipts_on_a_page_is_limited(person, monkeypatch):
    monkeypatch.setattr("expunge.server.pages.erasure._MAX_RECEIPTS", 1)
    shown = erased(person, "p1", "p2")
    assert "2 rows erased" in shown.text
    assert "at most 1 receipts" in shown.text


# Requests


def test_the_pages_of_the_list_have_every_request_once_in_their_order(person, service, monkeypatch):
    monkeypatch.setattr("expunge.server.pages.requests._PAGE_SIZE", 3)
    ids = [ask(service, f"p{k}").id for k in range(10)]
    listed, at = [], "/requests?show=done"
    while at is not None:
        shown = person.get(at)
        listed += [link.rpartition("/")[2] for link in shown.links if link.startswith("/requests/")]
        at = next((link for link in shown.links if "before=" in link), None)
    assert listed == ids[::-1]


def test_a_filter_shows_what_it_says(person, service, clock):
    held = hold(service, "p1", name="a trial") and ask(service, "p1")
    done = ask(service, "p2", regulation="ccpa")

    def shown(question):
        return {link.rpartition("/")[2] for link in person.get(f"/requests?{question}").links if "/requests/" in link}

    assert shown("") == shown("kind=erasure") == shown("protocol=api") == shown("show=nothing") == {held.id, done.id}
    assert shown("show=open") == shown("show=held") == {held.id}
    assert shown("show=done") == {done.id}
    assert shown("show=overdue") == shown("kind=addition") == shown("protocol=drp") == set()
    clock.pass_(days=31)
    assert shown("show=overdue") == {held.id}
    assert "Overdue" in person.get("/").text
    for bad in ("before=0", "before=x", f"before={10**30}", f"kind={'x' * 50}"):
        assert person.client.get(f"/requests?{bad}").status_code == 422


def test_a_deadline_can_be_extended_once_with_a_reason(person, service, clock):
    hold(service, "p1", name="a trial")
    job = ask(service, "p1")
    at = f"/requests/{job.id}"
    clock.pass_(days=20)
    assert "8 days left" in person.get(at).text
    assert person.post(at, f"{at}/extend", 422, reason=" ").status_code == 422
    form = person.get(at).form(f"{at}/extend")
    person.send(form, reason="a large case")
    after = service.queue.get(job.id)
    assert (after.due, after.extension) == (datetime(2026, 4, 30, 12, tzinfo=UTC), "a large case")
    assert "a large case" in person.get(at).text
    assert person.send(form, reason="again").status_code == 409


def test_a_failed_request_shows_the_reason(person, service):
    def fails(**_):
        raise SigningFailed("no signer")

    with pytest.raises(SigningFailed):
        service.run_now(NewJob("addition", "api", "gdpr"), fails)
    [job] = service.queue.page(JobFilter())
    shown = person.get(f"/requests/{job.id}").text
    assert "Failed" in shown
    assert "No signer" in shown


def test_a_certificate_is_shown_whole_and_only_a_right_one_is_called_valid(person, service, monkeypatch):
    job = ask(service, "p1", "p2")
    text = service.certificate(job)
    shown = person.get(f"/requests/{job.id}/certificate.html").text
    statement = unverified_payload(text)
    for name in ("commitment", "previous", "schema", "receipts", "iss", "software"):
        assert statement[name] in shown
    assert all(part in shown for part in (*statement["not_covered"], text))
    assert "erased the rows of 2 people (2 rows)" in shown
    assert "The signature is valid" in shown
    head, _, signature = text.split(".")
    forged = base64.urlsafe_b64encode(json.dumps({**statement, "rows": 3}).encode()).decode().rstrip("=")
    monkeypatch.setattr(service, "certificate", lambda job: f"{head}.{forged}.{signature}")
    assert "Do not trust" in person.get(f"/requests/{job.id}/certificate.html").text
    monkeypatch.setattr(service, "certificate", lambda job: None)
    person.get(f"/requests/{job.id}/certificate.html", 404)
    assert "as soon as the signing key is available" in person.get(f"/requests/{job.id}").text


# Verification, receipts


def test_a_verification_is_started_and_shown_with_those_before_it(client, person, service, vault, token):
    service.verifications.audit = audit_unlocked
    person.log_in(token("read"))
    for _ in range(2):
        person.post("/verify", "/verify")
        service.verifications.join()
    shown = person.get("/verify").text
    assert "Verification passed" in shown
    for check in vault.verify().checks:
        assert check.detail in shown
    _, older = service.verifications.page(2)
    assert shown.count("desk (the dashboard)") == 3  # of the newest, and one in each line of the history
    assert "Verification passed" in person.get(f"/verify/{older.id}").text
    assert client.get("/verify/x").status_code == 404
    assert "passed, " in person.get("/").text


def verification(clock, **facts):
    return Verification("api", "desk", clock(), **facts)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "Starting"),
        ({"step": "rows learned", "done": 1200, "of": 5000}, "1,200 of 5,000"),
        ({"state": "failed", "reason": "a file is damaged"}, "Verification failed"),
        ({"state": "unfinished", "reason": "the vault is busy", "restarts": 2}, "restarted 2 times"),
        ({"state": "failed", "checks": [{"name": "rows", "ok": False, "detail": "row 7"}]}, "failed row 7"),
    ],
)
def test_the_progress_of_a_verification_is_shown(person, service, clock, facts, message):
    stored = verification(clock, **facts)
    if stored.state == "running":
        service.verifications._running = stored
    else:
        stored.ended, stored.seconds = clock(), 1.5
    store_verification(service.database, stored)
    shown = person.get("/verify")
    assert message in shown.text
    bars = [attributes for tag, attributes in shown.svg if tag == "progress"]
    assert len(bars) == (stored.state == "running")
    if stored.of:
        assert (bars[0]["value"], bars[0]["max"]) == (str(stored.done), str(stored.of))
    person.get("/")
    assert message in person.get(f"/verify/{stored.id}").text


def test_a_failed_verification_is_the_first_thing_on_the_overview(person, service, clock):
    assert "verification failed" not in person.get("/").text
    for state in ("failed", "passed"):
        checks = [{"name": "rows", "ok": state == "passed", "detail": "row 7"}]
        store_verification(
            service.database, verification(clock, state=state, checks=checks, ended=clock(), seconds=1.5)
        )
        assert ("The last verification failed : rows" in person.get("/").text) == (state == "failed")


@pytest.mark.parametrize(
    ("protocol", "name"), [("api", "API"), ("opendsr", "OpenDSR"), ("drp", "Data Rights Protocol")]
)
def test_pages_name_the_source_of_a_request_as_people_do(person, service, protocol, name):
    job = service.erase(["p1"], NewJob("erasure", protocol, "gdpr"))
    assert f"Source: {name}" in person.get(f"/requests/{job.id}").text
    listed = person.get("/requests").text
    assert (name in listed, protocol in listed) == (True, False)


def test_webhooks_show_their_events_and_why_a_delivery_failed(person, service):
    hook = service.hooks.create("https://hooks.invalid/x")[0]
    service.hooks.create("https://other.invalid/x", ["done", "refused"])
    service.deliveries._post = lambda *_, **__: PostResponse(500)
    service.hooks.send_test(hook.id)
    shown = person.get("/webhooks").text
    assert "All events · created" in shown
    assert "done, refused · created" in shown
    assert "Failed The receiver answered 500" in shown


def test_anyone_can_check_a_receipt_and_the_id_is_not_repeated(client, person, service, token):
    ask(service, "p17")
    right, unknown = (receipt.to_json() for receipt in service.issue_receipts(["p17", "canary-4711"]))
    token("admin")
    shown = checked(person.post("/receipt", "/receipt", 200, receipt=right, id="p17"))
    assert "The receipt is for this id" in shown.text
    assert "erased the rows of exactly this id" in shown.text
    answer = person.post("/receipt", "/receipt", 200, receipt=unknown, id="canary-4711")
    assert "had no rows with exactly this id" in checked(answer).text
    assert "canary" not in answer.text
    for receipt, id_ in ((right, "p18"), (right, ""), (right[:-9], "p17"), ("[" * 100_000, "p17"), (unknown, "p17")):
        assert (
            "not valid for this id" in checked(person.post("/receipt", "/receipt", 422, receipt=receipt, id=id_)).text
        )


def test_the_offline_receipt_page_may_run_only_its_own_script(client, vault, token):
    token("admin")
    answer = client.get("/receipt/check.html")
    [own] = re.findall(r'Content-Security-Policy" content="([^"]+)"', answer.text)
    assert answer.headers["content-security-policy"] == f"{own}; frame-ancestors 'none'"
    keys = client.get("/receipt/keys.pem").content
    assert keys == b"".join(public_pem(key["x"]) for key in vault.jwks())


# Hostile bodies


HOSTILE = [
    ("application/json", b"{}"),
    ("multipart/form-data; boundary=x", b"--x--"),
    ("application/x-www-form-urlencoded", b"\xff\xfe"),
    ("application/x-www-form-urlencoded", b"ids=%ff&proof=%ff"),
    ("application/x-www-form-urlencoded", b"&".join(b"a=1" for _ in range(5000))),
    ("application/x-www-form-urlencoded", b""),
    ("", b"ids=1"),
]


def test_a_hostile_body_is_refused(client, vault):
    for path in _routes("POST"):
        for kind, body in HOSTILE:
            headers = {"content-type": kind, "origin": "http://localhost"}
            assert client.post(path.format(id="x", delivery=1), content=body, headers=headers).status_code in (
                400,
                403,
                415,
            )
    assert len(vault.requests) == 1


def test_hostile_cookies_are_ignored(client):
    for cookie in ("", "x", "\x7f" * 300, "é" * 30, "a" * 5000):
        header = f"expunge_session={cookie}; expunge_form={cookie}".encode("latin-1")
        assert client.get("/", headers={b"cookie": header}).status_code == 200


# Formats and charts


@given(st.text(st.characters(codec="utf-8", exclude_characters="[{\0")))
def test_ids_are_the_lines_of_a_text(text):
    expected = [line.strip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    expected = list(dict.fromkeys(line for line in expected if line))
    if expected and max(map(len, expected)) <= 1000:
        assert visitors.parse_ids(text, len(expected)) == expected


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)))
def test_a_length_of_time_is_formatted_in_its_largest_unit(length):
    text = templating.format_duration(length)
    assert templating.format_duration(-length) == text
    if text == "less than a minute":
        assert length < timedelta(minutes=1)
        return
    number, unit = text.split()
    size = timedelta(**{unit.rstrip("s") + "s": 1})
    assert size * int(number) <= length < size * (int(number) + 1)
    assert unit.endswith("s") == (number != "1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (templating.format_seconds(0.0012), "1.2 ms"), (templating.format_seconds(0.25), "250 ms"),
        (templating.format_seconds(2.34), "2.3 s"), (templating.format_seconds(1234), "1,234 s"),
        (templating.format_bytes(999), "999 bytes"), (templating.format_bytes(158_000), "158.0 kB"),
        (templating.format_bytes(7 * 10**12), "7000.0 GB"), (templating.pluralize(1, "person"), "1 person"),
        (templating.pluralize(2000, "row"), "2,000 rows"), (templating.kind_label("portability"), "portability"),
        (str(templating.time_element(None)), "&ndash;"),
    ],
)  # fmt: skip
def test_numbers_are_formatted_for_people(text, expected):
    assert text == expected


def _drawn(markup):
    return Page(str(markup)).svg


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60))
def test_the_height_of_bars_follows_the_numbers(numbers_):
    first = datetime(2026, 1, 1, tzinfo=UTC).date()
    days = [(first + timedelta(days=k), n) for k, n in enumerate(numbers_)]
    bars = [
        (float(attributes["y"]), float(attributes["height"]))
        for tag, attributes in _drawn(overview.draw_requests_per_day(days))
        if tag == "rect"
    ]
    assert len(bars) == len(days)
    whole, most = 108.0, max(numbers_)
    for (top, high), n in zip(bars, numbers_, strict=True):
        assert top + high == pytest.approx(118, abs=0.11)
        assert high == pytest.approx(max(whole * n / max(most, 1), 1.5 if n else 0), abs=0.11)


@given(st.lists(st.floats(1e-4, 100), min_size=1, max_size=60))
def test_the_line_is_at_the_median(times):
    shown = _drawn(overview.draw_erasure_seconds(times))
    [line] = [float(attributes["y1"]) for tag, attributes in shown if tag == "line" and attributes["class"] == "middle"]
    tops = [float(attributes["y"]) for tag, attributes in shown if tag == "rect"]
    assert len(tops) == len(times)
    above, below = sum(top < line - 1.6 for top in tops), sum(top > line + 1.6 for top in tops)
    assert above <= len(times) / 2
    assert below <= len(times) / 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "unlearn", "rectify", "readmit", "rebound"]), st.integers(0, 50)), max_size=30
    )
)
def test_rows_over_time_are_those_that_a_replay_counts(steps):
    rows, log, expected = 1000, [], []
    for number, (kind, count) in enumerate([("train", 1000), *steps], 1):
        if kind in ("add", "unlearn"):
            rows += count if kind == "add" else -min(count, rows)
        time = f"2026-01-01T00:{number:02}:00Z"
        log.append(LoggedRequest(number, kind, time, min(count, 1000), 1, "certified", None, ()))
        expected.append((datetime(2026, 1, 1, 0, number, tzinfo=UTC), rows))
    points = overview.rows_over_time(log, rows)
    assert points == expected
    now = expected[-1][0] + timedelta(days=3)
    [path] = [shape["d"] for tag, shape in _drawn(overview.draw_rows_held(points, now)) if shape["class"] == "line"]
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path)]
    assert len(heights) == len(expected)
    order = sorted(range(len(expected) - 1), key=lambda k: expected[k + 1][1])
    assert [heights[k] for k in order] == sorted(heights[:-1], reverse=True)


def test_the_charts_count_the_requests(person, service, clock):
    asked = 0
    for k, days in enumerate((0, 0, 5, 40)):
        clock.pass_(days=days)
        asked += len(ask(service, f"p{k}").id) > 0
    counts = dict(overview.count_per_day(service))
    assert sum(counts.values()) == 1
    assert counts[clock().date()] == 1
    assert len(overview.read_erasure_seconds(service)) == asked == 4
    assert overview.count_requests(service) == overview.RequestTotals(open=0, held=0, overdue=0, done=4, all=4)
    text = person.get("/").text
    assert "The last 4 erasures" in text
    assert "36 rows now" in text


def test_visiting_the_confirmation_redirects_to_the_form(person):
    assert person.client.get("/erase/now", follow_redirects=False).headers["location"] == "/erase"


def test_a_due_request_is_shown_as_next(make, clock):
    service = make(window=timedelta(hours=1))
    job = ask(service, "p1")
    clock.pass_(hours=2)
    with LocalClient(create_app(service)) as client:
        assert "Next to be carried out" in Person(client).get(f"/requests/{job.id}").text


def test_the_chart_of_a_restored_vault_begins_with_the_restore():
    log = [LoggedRequest(n, kind, f"2026-01-0{n}T00:00:00Z", 5, 1, "certified", None, ())
           for n, kind in enumerate(("train", "unlearn", "restore", "unlearn"), 1)]  # fmt: skip
    assert [rows for _, rows in overview.rows_over_time(log, 30)] == [35, 30]
    assert overview.rows_over_time([], 30) == []


def test_a_past_hold_is_shown(client, service, clock):
    matter = hold(service, "p1", name="case <7>")
    job = service.erase(["p1"], NewJob("erasure", "api", "gdpr"))
    clock.pass_(days=2)
    release(service, matter)
    service.run_due()
    shown = Person(client).get(f"/requests/{job.id}")
    assert "Was on legal hold 31 Jan 2026 to 2 Feb 2026 : case <7>" in shown.text
