"""The dashboard in a real browser: with and without JavaScript, by keyboard, on a phone, in the dark."""

import json
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from expunge.server.app import create_app
from expunge.server.matters import Author
from expunge.server.queue import JobFilter, NewJob
from expunge.server.service import Options
from expunge.server.verifications import Verification, store_verification
from expunge.vault import Check, Verdict, check_receipt
from expunge.vault.certificates.keys import public_pem

from support import browser as browsers
from support.matters import hold

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())]

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1180, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1180, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
    "small and dark": {"color_scheme": "dark", "viewport": {"width": 320, "height": 600}},
}

# Overflow in pixels: of the page, and of the widest table in it
WIDTHS = (
    "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    "Math.max(0, ...[...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth))",
)


@pytest.fixture(scope="module")
def browser():
    with browsers.launched() as instance:
        yield instance


@pytest.fixture
def address(service):
    with browsers.listening(create_app(service)) as url:
        yield url


@pytest.fixture
def opened(browser, address):
    """Return a function that opens a page with given settings; errors and warnings of the browser fail the test."""
    contexts, complaints = [], []

    def make(path="/", **settings):
        context = browser.new_context(base_url=address, **settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.goto(path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def ask(service, *ids, **facts):
    return service.erase(list(ids), NewJob("erasure", "api", "gdpr", **facts))


def running(service):
    """Start a verification that does not end, and return it."""
    verification = Verification("api", "desk", service.clock(), step="rows learned", done=40, of=100)
    store_verification(service.database, verification)
    service.verifications._running = verification
    return verification


def busy(service, clock):
    """Fill a service with requests in every state, and return the addresses of its pages."""
    done = ask(service, "p1", "p2", reference="ticket 4711, with a reference that goes on for a while")
    matter = hold(service, "p3", name="litigation 12-443: ask the legal department before it is released")
    held = ask(service, "p3")
    clock.pass_(days=31)
    service.options = Options(window=timedelta(hours=24))
    waiting = ask(service, "p4")
    service.cancel(ask(service, "p5").id, "cancelled by the desk", Author())
    running(service)
    hook = service.hooks.create("https://hooks.invalid/a/long/path/that/goes/on/for/a/while?tenant=production")[0]
    service.deliveries.add(hook.url, b'{"type":"webhook.test"}', {}, hook=hook.id)
    requests = [f"/requests/{job.id}" for job in (done, held, waiting)]
    places = [
        "/",
        "/requests",
        "/requests?show=failed",
        "/erase",
        "/matters",
        f"/matters/{matter.id}",
        f"/matters/{matter.id}/release",
        "/verify",
        "/webhooks",
        "/receipt",
        "/receipt/check.html",
    ]
    return [*places, *requests, f"/requests/{done.id}/certificate.html"]


# Appearance


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_accessible_and_fits_the_screen(opened, service, clock, look):
    page = opened("/", **LOOKS[look])
    problems = {}
    for place in busy(service, clock):
        page.goto(place)
        for summary in page.locator("main summary").all():
            summary.click()
        wide = max(map(page.evaluate, WIDTHS))
        if (wrong := browsers.violations(page)) or wide > 0:
            problems[place] = wrong, wide
    page.goto("/erase")
    page.get_by_label("Ids, one per line").first.fill("p6\np3\nnobody-" + "x" * 80)
    page.get_by_role("button", name="Continue").click()
    problems[page.url] = browsers.violations(page)
    service.options = Options()
    page.goto("/erase")
    page.get_by_label("Ids, one per line").first.fill("p7\nnobody")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Erase 1 person").click()
    problems[page.url] = browsers.violations(page)
    assert {place: wrong for place, wrong in problems.items() if wrong} == {}


def test_on_a_phone_the_menu_is_a_button(opened, service):
    token = service.tokens.create("a desk with a rather long name, of the second floor", ["admin"], None)[1]
    for look in ("phone", "small and dark"):
        page = opened("/login", **LOOKS[look])
        page.locator("#token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="spend").wait_for()
        assert page.locator("header.top").bounding_box()["height"] < 64
        assert not page.get_by_role("link", name="Webhooks").is_visible()
        page.locator("summary", has_text="Menu").click()
        assert browsers.violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.get_by_role("link", name="Webhooks").click()
        page.get_by_role("heading", name="Webhooks").wait_for()
        page.locator("summary", has_text="Menu").click()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in").wait_for()


def test_the_login_is_accessible_and_lets_a_token_in(opened, service):
    text = service.tokens.create("desk", ["read"], None)[1]
    page = opened("/matters", color_scheme="dark")
    assert page.url.endswith("/login?next=/matters")
    assert browsers.violations(page) == []
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Matters", exact=True).wait_for()
    assert page.evaluate("document.cookie") == ""
    assert text not in page.content()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()


def test_a_dark_page_is_dark(opened):
    def brightness(scheme):
        page = opened("/", color_scheme=scheme)
        return sum(map(int, page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)")))

    assert brightness("dark") < 150 < 600 < brightness("light")


def test_a_printed_certificate_contains_nothing_else(opened, service):
    job = ask(service, "p1")
    page = opened(f"/requests/{job.id}/certificate.html", color_scheme="dark")
    page.emulate_media(media="print")
    text = page.evaluate("document.body.innerText")
    assert service.certificate(job) in text
    assert "Log out" not in text
    assert "Overview" not in text
    assert "Copy" not in text
    assert page.pdf().startswith(b"%PDF")


# Behaviour


def test_a_person_can_be_erased_with_the_keyboard_alone(opened, vault):
    page = opened("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"

    def tab_to(label):
        for _ in range(30):
            page.keyboard.press("Tab")
            focused = page.evaluate("(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", focused
            if focused == label:
                return
        raise AssertionError(f"{label} cannot be reached")

    tab_to("Erase")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Erase people").wait_for()
    tab_to("Ids, one per line")
    page.keyboard.type("p9")
    tab_to("Continue")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="What will happen").wait_for()
    tab_to("Erase 1 person")
    page.keyboard.press("Space")
    page.get_by_role("heading", name="1 row erased").wait_for()
    assert vault.find(["p9"])[0].state == "erased"


@pytest.mark.parametrize("scripts", [False, True])
def test_an_erasure_ends_with_a_receipt_to_save_with_and_without_javascript(opened, vault, tmp_path, scripts):
    page = opened("/erase", java_script_enabled=scripts, accept_downloads=True)
    page.locator("#ids").fill("p11\np12")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Erase 2 people").click()
    page.get_by_role("heading", name="2 rows erased").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save receipt 2").click()
    saved.value.save_as(tmp_path / "receipt.json")
    text = (tmp_path / "receipt.json").read_text()
    pem = b"".join(public_pem(key["x"]) for key in vault.jwks())
    assert check_receipt(text, "p12", pem)["kind"] == "unlearn"
    assert "p12" not in page.url
    page.goto("/receipt")
    page.locator("#receipt").fill(text)
    page.locator("#id").fill("p12")
    page.get_by_role("button", name="Check").click()
    page.get_by_role("heading", name="The receipt is for this id").wait_for()
    page.goto("/verify")
    page.get_by_role("button", name="Verify now").click()
    page.wait_for_url("**/verify")


def test_the_overview_is_live_keeps_the_focus_and_can_be_paused(opened, service):
    first = ask(service, "p1")
    page = opened("/")
    page.locator(f'a[href="/requests/{first.id}"]').focus()
    page.evaluate("window.stayed = true")
    second = ask(service, "p2")
    page.locator(f'a[href="/requests/{second.id}"]').wait_for()
    assert page.evaluate("window.stayed")
    assert page.evaluate("document.activeElement.getAttribute('href')") == f"/requests/{first.id}"
    assert page.locator("dl.tiles dd").first.text_content() == "38"
    page.get_by_role("button", name="Pause").click()
    assert "paused" in page.locator("[data-live-at]").text_content()
    page.get_by_role("button", name="Resume").click()
    third = ask(service, "p3")
    page.locator(f'a[href="/requests/{third.id}"]').wait_for()


def test_a_live_page_whose_session_ended_redirects_to_the_login(opened, service):
    record, text = service.tokens.create("desk", ["read"], None)
    service.tokens.create("other", ["read"], None)
    page = opened("/login")
    page.locator("#token").fill(text)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="spend").wait_for()
    service.tokens.revoke(record.id)
    page.get_by_role("heading", name="Log in").wait_for()


def test_the_progress_of_a_verification_is_updated(opened, service):
    job = running(service)
    page = opened("/verify")
    bar = page.get_by_role("progressbar", name="Rows learned")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("40", "100")
    job.done = 90
    page.locator('progress[value="90"]').wait_for()
    job.record_verdict(Verdict((Check("ledger", True, "every hash fits"),), 1.5), service.clock())
    page.get_by_role("heading", name="Verification passed").wait_for()
    page.get_by_role("button", name="Verify again").wait_for()


def test_the_page_of_a_request_is_updated(opened, service, clock):
    service.options = Options(window=timedelta(hours=24))
    job = ask(service, "p1")
    page = opened(f"/requests/{job.id}")
    page.get_by_text("can be cancelled until then", exact=False).first.wait_for()
    clock.pass_(hours=25)
    service.run_due()
    page.get_by_role("heading", name="Certificate").wait_for()
    page.get_by_role("button", name="Copy").wait_for()


def test_ids_are_read_from_a_file_without_uploading_it(opened, tmp_path):
    (tmp_path / "ids.txt").write_text("p1\np2\n")
    page = opened("/erase")
    page.get_by_label("Ids, one per line, from a file").set_input_files(tmp_path / "ids.txt")
    page.wait_for_function("document.getElementById('ids').value === 'p1\\np2\\n'")


def test_the_offline_receipt_page_runs_under_our_headers(opened, service, vault):
    ask(service, "p1")
    [receipt] = service.issue_receipts(["p1"])
    page = opened("/receipt/check.html")
    page.locator("#receipt").fill(receipt.to_json())
    page.locator("#key").fill(public_pem(vault.jwks()[0]["x"]).decode())
    page.locator("#person").fill("p1")
    page.get_by_role("button", name="Check").click()
    page.locator("#result.good").wait_for()


# Isolation


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_another_site_cannot_send_our_forms(browser, service, address, vault, host):
    """A page elsewhere sends a form with everything but what it cannot know; from another port, and another name."""
    fields = {"ids": "p1", "reason": "x", "regulation": "gdpr", "proof": "x" * 43}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    site = FastAPI()

    @site.get("/")
    def evil():
        return HTMLResponse(
            f'<form method="post" action="{address}/matters">{inputs}</form><script>document.forms[0].submit()</script>'
        )

    with browsers.listening(site) as elsewhere:
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        if host == "localhost":  # cookies know no ports: what another port sets is sent to us, too
            context.add_cookies([{"name": "expunge_form", "value": "x" * 43, "url": address}])
        with page.expect_response(f"{address}/matters") as answered:
            page.goto(elsewhere.replace("localhost", host), wait_until="commit")
        assert answered.value.status == 403
        context.close()
    assert service.matters.list_all() == []


def test_pages_load_nothing_from_other_hosts(opened, service, clock, address):
    page = opened("/")
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    for place in busy(service, clock):
        page.goto(place)
    assert {url for url in urls if not url.startswith(address)} == set()
    assert not [url for url in urls if "p1" in url.rpartition("/")[2].split("?")[0]]
    assert json.dumps(urls).count("/static/style.css") > 0
    assert service.queue.page(JobFilter(("done",)))
