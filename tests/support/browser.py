"""A real browser: Debian's Chromium, driven by Playwright, and a service on a port of this machine for it to see."""

import os
import shutil
import socket
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import uvicorn

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install -y chromium; pip install playwright axe-playwright-python"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium():
    """Where the browser is, or None; EXPUNGE_CHROMIUM names another."""
    named = os.environ.get("EXPUNGE_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def missing():
    """What is missing for these tests, in words; empty if nothing is."""
    modules = [name for name in ("playwright", "axe_playwright_python") if find_spec(name) is None]
    lacking = [*modules, *([] if chromium() else ["Chromium"])]
    return f"there is no {' and no '.join(lacking)}: {INSTALL}" if lacking else ""


@contextmanager
def launched():
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def listening(app):
    """Serve an application on a free port of this machine; its address, by the name localhost."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{sock.getsockname()[1]}"  # the socket takes connections already
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def violations(page):
    """What axe-core finds wrong with a page, each with the elements that it is about."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found]


if __name__ == "__main__":
    raise SystemExit(missing() or 0)
