"""Pages for people: certificates in plain words, searches, errors and button labels."""

from datetime import timedelta

import pytest

from expunge.server.app import create_app
from expunge.server.pages import templating

from support.client import LocalClient
from support.pages import Page, Person

ERASE = "/api/v1/erasures"
HTML = {"Accept": "text/html"}


@pytest.fixture
def served(make):
    """Return a client of a service with an organisation and a public URL."""
    with LocalClient(create_app(make(organisation="Acme Ltd", public_url="https://privacy.acme.example"))) as client:
        yield client


def certificate(client, **more):
    job = client.post(ERASE, json={"ids": ["p1"], **more}).json()
    return job, client.get(f"/requests/{job['id']}/certificate.html", headers=HTML).text


def test_a_certificate_states_who_did_what_and_whether_in_time(served, vault):
    _, text = certificate(served, reference="DSR-17")
    for part in ("Acme Ltd", "DSR-17", "within the deadline", vault.places.vault.stem):
        assert part in text
    assert (
        text.index("within the deadline") < text.index("Technical details") < text.index("Commitment to the new state")
    )


def test_a_certificate_can_be_downloaded_and_copied(served, vault):
    job, text = certificate(served)
    for page in (text, served.get(f"/requests/{job['id']}", headers=HTML).text):
        beside = page.split("data-copy>")[1].split("</pre>")[1].split("</p>")[0]  # where the button to copy is put
        assert f'href="/requests/{job["id"]}/certificate.jws"' in beside
        assert page.count("certificate.jws") == 1
    answer = served.get(f"/requests/{job['id']}/certificate.jws")
    assert answer.headers["content-disposition"] == 'attachment; filename="certificate-000002.jws"'
    assert answer.text.strip() == vault.certificate(2)


def test_the_qr_code_of_a_certificate_leads_to_the_receipt_page(served):
    _, text = certificate(served)
    assert "https://privacy.acme.example/receipt" in text
    assert text.count("<svg") == 1


def test_without_a_public_url_there_is_no_qr_code(client):
    _, text = certificate(client)
    assert "<svg" not in text
    assert "localhost" not in text
    assert 'href="/receipt"' in text


def test_a_repeated_request_shows_when_the_erasure_was(served, clock):
    certificate(served, reference="DSR-17")
    clock.pass_(days=40)
    job, text = certificate(served, reference="DSR-18", ids=["p1"])
    shown = Page(text).text
    assert "1 person was erased earlier, by request 2 on" in shown
    assert "Request received" not in shown
    assert "deadline" not in shown
    assert "certificate of request 2 of the vault" in Page(served.get(f"/requests/{job['id']}", headers=HTML).text).text


def test_a_certificate_counts_the_people_of_its_own_request(make, clock):
    service = make(batch_size=2)
    with LocalClient(create_app(service)) as client:
        client.post(ERASE, json={"ids": ["p9"]})
        client.post(ERASE, json={"ids": ["p8"]})
        service.run_due()
        jobs = [client.post(ERASE, json={"ids": ids}).json()["id"] for ids in (["p1", "p2", "p9"], ["p3"])]
        service.run_due()
        first, second = (Page(client.get(f"/requests/{id_}/certificate.html").text).text for id_ in jobs)
    assert "erased the rows of 2 people (2 rows)" in first
    assert "1 person of the same request was erased earlier, by request 2 on" in first
    assert "erased the rows of 1 person (1 row)" in second
    assert "within" in second


def test_an_overdue_request_cannot_be_extended(make, clock):
    service = make(window=timedelta(days=90))
    with LocalClient(create_app(service)) as client:
        person = Person(client)
        job = client.post(ERASE, json={"ids": ["p1"]}).json()
        form = person.get(f"/requests/{job['id']}").form(f"/requests/{job['id']}/extend")
        clock.pass_(days=40)
        assert person.send(form, reason="many requests").status_code == 409
        answer = client.post(f"/api/v1/requests/{job['id']}/extension", json={"reason": "many requests"})
        assert answer.status_code == 409
        assert "Extend the deadline" not in client.get(f"/requests/{job['id']}", headers=HTML).text
        assert client.get(f"/api/v1/requests/{job['id']}").json()["extension"] == ""


def test_a_late_certificate_says_so(make, clock):
    service = make()
    with LocalClient(create_app(service)) as client:
        job, _ = certificate(client)
        service.database.execute("UPDATE requests SET due = '2020-01-01T00:00:00Z' WHERE id = ?", job["id"])
        text = client.get(f"/requests/{job['id']}/certificate.html", headers=HTML).text
        assert "after the deadline" in text


def test_an_unknown_address_is_a_page_for_browsers_and_a_problem_for_others(client):
    shown = client.get("/no/such/page", headers=HTML)
    assert shown.status_code == 404
    assert shown.headers["content-type"].startswith("text/html")
    assert "Page not found" in shown.text
    other = client.get("/no/such/page")
    assert (other.status_code, other.headers["content-type"]) == (404, "application/problem+json")


def test_the_button_counts_only_the_people_who_will_be_erased(client):
    person = Person(client)
    shown = person.post("/erase", "/erase", 200, ids="p1\np2\nnobody")
    assert "Erase 2 people</button>" in shown.text
    shown = person.post("/erase", "/erase", 200, ids="nobody")
    assert "without erasing anyone</button>" in shown.text


def test_requests_are_found_by_reference_and_date(client, clock):
    for k in range(4):
        client.post(ERASE, json={"ids": [f"p{k}"], "reference": f"Ticket-{k}"})
        clock.pass_(days=1)

    def search(**query):
        text = client.get("/requests", params=query, headers=HTML).text
        return [k for k in range(4) if f"Ticket-{k}<" in text]

    assert search(reference="ticket-2") == [2]
    assert search(since="2026-02-01", until="2026-02-02") == [1, 2]
    assert search(reference="ticket", until="2026-01-31") == [0]
    assert search(reference="none of them") == []
    assert client.get("/requests", params={"since": "yesterday"}, headers=HTML).status_code == 422


def test_the_name_of_the_visitor_is_shown(client, service):
    person = Person(client)
    _, token = service.tokens.create("Anna of the privacy desk", ["admin"], None)
    person.post("/login", "/login", token=token)
    assert ">Anna of the privacy desk<" in client.get("/", headers=HTML).text


def test_charts_have_axes_and_titles(client):
    for k in range(3):
        client.post(ERASE, json={"ids": [f"p{k}"]})
    text = client.get("/", headers=HTML).text
    charts = text.split('<svg class="chart"')[1:]
    assert len(charts) == 3
    for chart in charts:
        drawn = chart.partition("</svg>")[0]
        assert drawn.count('class="axis"') == 2
        assert drawn.count("<title>") >= 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Identity()", "the inputs as they are"),
        ("RandomFourier(n_features=1300, kernel='gaussian+matern32', scale=array of shape (3,))",
         "1,300 random cosines of the inputs (gaussian and matern32)"),
        ("Powers(degree=3)", "powers of the inputs up to 3"),
        ("Mine(a=1)", "Mine"),
    ],
)  # fmt: skip
def test_features_are_shown_in_words(text, words):
    assert templating.describe_features(text) == words
