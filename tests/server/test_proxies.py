"""Proxies: forms sent through a proxy, a path prefix, and the configurations in docs/proxies.md as nginx runs them."""

import http.client
import io
import json
import re
import shutil
import socket
import subprocess
import zipfile
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from expunge.cli.arguments import UsageError
from expunge.cli.program import build_parser
from expunge.errors import InvalidSetting
from expunge.server import logs
from expunge.server.app import Limits, create_app
from expunge.server.database import Database, queue_path
from expunge.server.middleware import RESERVED_SEGMENTS, check_prefix, prefix_links
from expunge.server.process import ListenAddress, serve
from expunge.server.service import Options
from expunge.server.tokens import Tokens

from support.client import LocalClient
from support.processes import Served, small_vault, until
from support.routes import every_route

DOCS = Path(__file__).parents[2] / "docs" / "proxies.md"
PUBLIC = "https://privacy.example.com"


@pytest.fixture(autouse=True)
def nothing_was_logged():
    logs._seldom.clear()


@pytest.fixture
def token(service):
    return service.tokens.create("desk", ["admin"], timedelta(days=1))[1]


def proof_of(text):
    return text.split('name="proof" value="')[1].split('"')[0]


def log_in(client, token, **headers):
    proof = proof_of(client.get("/login", headers=headers).text)
    return client.post("/login", data={"token": token, "proof": proof}, headers=headers, follow_redirects=False)


# The Host header


def test_a_proxy_that_replaces_the_host_is_explained_on_the_page_and_in_the_log(client, token, capsys):
    answer = log_in(client, token, Host="127.0.0.1:8080", Origin=PUBLIC)
    assert answer.status_code == 403
    assert "replace the Host header" in answer.text
    assert "--public-url" in answer.text
    log_in(client, token, Host="127.0.0.1:8080", Origin=PUBLIC)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "foreign-form"]  # once in a while, however often it happens
    assert (line["level"], line["host"]) == ("warning", "127.0.0.1:8080")
    assert "privacy.example.com" not in json.dumps(lines)


def test_a_host_that_is_a_name_is_not_logged(client, token, capsys):
    log_in(client, token, Host="p7-canary.example", Origin=PUBLIC)
    assert "canary" not in capsys.readouterr().err


def test_with_a_public_url_forms_are_accepted_whatever_the_host(make, token):
    with LocalClient(create_app(make(public_url=PUBLIC + "/"))) as client:
        assert log_in(client, token, Host="127.0.0.1:8080", Origin=PUBLIC).status_code == 303
        for foreign in ("https://evil.example", "http://privacy.example.com", PUBLIC + ".evil.example", "null", ""):
            assert log_in(client, token, Host="127.0.0.1:8080", Origin=foreign).status_code == 403


def test_sec_fetch_site_same_origin_is_accepted(client, token):
    headers = {"Host": "127.0.0.1:8080", "Origin": PUBLIC}
    assert log_in(client, token, **headers, **{"Sec-Fetch-Site": "same-origin"}).status_code == 303
    for other in ("cross-site", "same-site", "none"):
        assert log_in(client, token, **headers, **{"Sec-Fetch-Site": other}).status_code == 403


def test_cookies_are_secure_if_the_public_url_is_https(make, token):
    with LocalClient(create_app(make(public_url=PUBLIC))) as client:
        there = client.get("/login", headers={"Host": "privacy.example.com"}).headers["set-cookie"]
        here = client.get("/login").headers["set-cookie"]
    assert there.startswith("__Host-expunge_form=")
    assert "Secure" in there
    assert here.startswith("expunge_form=")


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host"])
def test_access_through_a_proxy_needs_a_token(client, name):
    assert client.get("/api/v1/status").status_code == 200
    answer = client.get("/api/v1/status", headers={name: "192.0.2.7"})
    assert (answer.status_code, "proxy" in answer.json()["detail"]) == (403, True)


def test_a_public_url_needs_a_token(vault):
    with pytest.raises(InvalidSetting, match="token"):
        serve(vault, ListenAddress(port=0), Options(public_url=PUBLIC), Limits())


# A path prefix


@pytest.fixture
def below(make, token):
    service = make(public_url="https://example.com", root_path="/expunge")
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        client.headers["Origin"] = "http://localhost"
        yield client


@pytest.mark.parametrize("sent", ["/expunge", ""])
def test_below_a_prefix_every_link_and_redirect_and_cookie_has_it(below, token, sent):
    """A proxy may pass the prefix on or strip it."""
    first = below.get(f"{sent}/requests", follow_redirects=False)
    assert first.headers["location"] == "/expunge/login?next=/requests"
    shown = below.get(f"{sent}/login?next=/requests")
    assert shown.status_code == 200
    links = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', shown.text)
    assert "/expunge/login" in links
    assert any(link.startswith("/expunge/static/style.css?v=") for link in links)
    assert all(link.startswith("/expunge/") for link in links)
    assert "Path=/expunge;" in shown.headers["set-cookie"]
    cookies = {"expunge_form": shown.cookies["expunge_form"]}
    below.cookies.clear()
    data = {"token": token, "proof": proof_of(shown.text), "next": "/requests"}
    cookie = {"Cookie": f"expunge_form={cookies['expunge_form']}"}
    answer = below.post(f"{sent}/login", data=data, headers=cookie, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/expunge/requests")
    session = answer.headers["set-cookie"].split(";")[0]
    below.cookies.clear()
    page = below.get(f"{sent}/requests", headers={"Cookie": session})
    assert page.status_code == 200
    assert 'href="/expunge/requests" aria-current="page"' in page.text
    assert not re.search(r'(?:href|src|action)="/(?!expunge/)', page.text)
    style = next(link for link in links if "style.css" in link)
    assert below.get(style.removeprefix("" if sent else "/expunge")).headers["content-type"].startswith("text/css")


def test_below_a_prefix_the_api_and_openapi_and_opendsr_have_it(below, token):
    headers = {"Authorization": f"Bearer {token}"}
    answer = below.post("/expunge/api/v1/erasures", json={"ids": ["p1"]}, headers=headers | {"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["location"].startswith("/expunge/api/v1/requests/")
    assert below.get(answer.headers["location"], headers=headers).status_code == 200
    assert below.get("/expunge/openapi.json").json()["servers"] == [{"url": "/expunge"}]
    assert below.app.state.opendsr.address == "https://example.com/expunge"
    for path in ("/expunge", "/expunge/", "/expunge/readyz", "/readyz"):
        assert below.get(path, follow_redirects=False, headers=headers).status_code == 200
    assert below.get("/expungent/readyz").status_code == 404
    packed = zipfile.ZipFile(io.BytesIO(below.get("/expunge/fides/connector.zip", headers=headers).content))
    paths = re.findall(r"path: (/.*)", packed.read("expunge_config.yml").decode())
    assert len(paths) == 3
    assert all(path.startswith("/expunge/fides/") for path in paths)


def test_a_public_url_that_has_the_prefix_keeps_it():
    for public in ("https://example.com/expunge", "https://example.com/expunge/", "https://example.com"):
        assert Options(public_url=public, root_path="/expunge").base_url == "https://example.com/expunge"


def test_secure_cookies_of_a_prefix_are_not_those_of_a_whole_host(make, token):
    with LocalClient(create_app(make(public_url=PUBLIC, root_path="/expunge"))) as client:
        cookie = client.get("/login", headers={"Host": "privacy.example.com"}).headers["set-cookie"]
    assert cookie.startswith("__Secure-expunge_form=")
    assert "Path=/expunge;" in cookie


def test_text_on_a_page_is_not_prefixed():
    assert (
        prefix_links('<a href="/x">href=&#34;/y</a><a href="//z">', "/p")
        == '<a href="/p/x">href=&#34;/y</a><a href="//z">'
    )


@pytest.mark.parametrize(
    "bad", ["expunge", "/a//b", "/a b", "/../x", "/%2f", '/"x', "/requests", "/api/x", "/" + "a" * 300]
)
def test_a_prefix_that_cannot_be_used_is_refused(bad):
    with pytest.raises(InvalidSetting):
        check_prefix(bad)
    with pytest.raises(UsageError):
        build_parser().parse_args(["serve", "--vault", "a.vault", "--root-path", bad])


def test_no_path_of_the_service_can_be_a_prefix(client):
    assert {path.split("/")[1] for _, path in every_route(client.app)} - {""} <= RESERVED_SEGMENTS


# Real proxies


def block(language, number):
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)[number]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read().decode()
    finally:
        connection.close()


def logged_in(port, name, token, prefix=""):
    """Log in through a proxy as a browser would under this host name; return the status and the redirect."""
    browser = {"Host": name, "Origin": f"http://{name}"}
    _, headers, text = ask(port, "GET", f"{prefix}/login", **browser)
    form = urlencode({"token": token, "proof": proof_of(text)})
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": headers["set-cookie"].split(";")[0]}
    status, headers, text = ask(port, "POST", f"{prefix}/login", form, **browser, **kind)
    return status, headers.get("location"), text


def accepts(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def served(tmp_path):
    """Return a function that starts a service with a token."""
    started = []

    def start(*options):
        path = tmp_path / "spend.vault"
        small_vault(path)
        text = Tokens(Database(queue_path(path))).create("desk", ["admin"], timedelta(days=1))[1]
        started.append(Served(path, *options))
        return started[-1], text

    yield start
    for server in started:
        server.__exit__()


@pytest.fixture
def nginx(tmp_path):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    started = []

    def start(inside):
        port = free_port()
        folder = tmp_path / "nginx"
        folder.mkdir()
        temps = " ".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        inside = inside.replace("PORT", str(port))
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
            f"http {{ access_log off; {temps}\n{inside}\n}}"
        )
        command = ["nginx", "-e", f"{folder}/error.log", "-p", str(folder), "-c", f"{folder}/nginx.conf"]
        started.append(subprocess.Popen(command))
        until(lambda: accepts(port))
        return port

    yield start
    for process in started:
        process.terminate()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("public", [(), ("--public-url", "http://privacy.example.com")])
def test_default_nginx_is_reported_and_works_with_a_public_url(served, nginx, public):
    service, token = served(*public)
    port = nginx(f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://127.0.0.1:{service.port}; }} }}")
    status, where, text = logged_in(port, "privacy.example.com", token)
    if public:
        assert (status, where) == (303, "/")
    else:
        assert (status, "replace the Host header" in text) == (403, True)
        until(lambda: any(b'"foreign-form"' in line for line in service.lines))


@pytest.mark.slow
def test_nginx_as_documented(served, nginx):
    service, token = served()
    text = block("nginx", 0).replace("listen 443 ssl", "listen 127.0.0.1:PORT").replace(":8080", f":{service.port}")
    port = nginx(re.sub(r"ssl_certificate.*\n", "\n", text))
    assert logged_in(port, "privacy.example.com", token)[:2] == (303, "/")
    status, headers, _ = ask(port, "GET", "/readyz")
    assert (status, bool(re.fullmatch("[0-9a-f]{32}", headers["x-request-id"]))) == (200, True)


@pytest.mark.slow
def test_nginx_with_a_prefix_as_documented(served, nginx):
    service, token = served("--root-path", "/expunge")
    kept = block("nginx", 2).replace(":8080", f":{service.port}")
    taken = kept.replace("location /expunge/", "location /taken/expunge/").replace(
        f":{service.port};", f":{service.port}/;"
    )
    port = nginx(f"server {{ listen 127.0.0.1:PORT; {kept} {taken} }}")
    assert logged_in(port, "example.com", token, "/expunge")[:2] == (303, "/expunge/")
    assert logged_in(port, "example.com", token, "/taken/expunge")[:2] == (303, "/expunge/")


@pytest.mark.slow
def test_caddy_as_documented(served, tmp_path):
    if shutil.which("caddy") is None:
        pytest.skip("caddy is not installed")
    service, token = served("--root-path", "/expunge")
    port = free_port()
    blocks = (block("caddy", 0).replace("privacy.example.com", f"http://privacy.example.com:{port}"),
              block("caddy", 2).replace("example.com", f"http://example.com:{port}"))  # fmt: skip
    file = tmp_path / "Caddyfile"
    file.write_text("{\n\tadmin off\n}\n" + "\n".join(blocks).replace(":8080", f":{service.port}"))
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [shutil.which("caddy"), "run", "--config", str(file), "--adapter", "caddyfile"]
    caddy = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        until(lambda: accepts(port))
        for name, prefix in ((f"privacy.example.com:{port}", ""), (f"example.com:{port}", "/expunge")):
            assert logged_in(port, name, token, prefix)[:2] == (303, "/expunge/")
    finally:
        caddy.terminate()
        caddy.wait()


# Prediction workers


@pytest.fixture
def workers(served):
    """A service with a worker, and a function that replaces the ports of the documentation by its ports."""
    service, token = served("--predict-workers", "1", "--predict-port", "0")
    until(lambda: any(b'"predicting"' in line for line in service.lines))
    return token, lambda text: text.replace(":8080", f":{service.port}").replace(":8081", f":{service.predict_port}")


def check_routes(port, token):
    """Predictions reach the workers, whose metrics count them, and everything else the service."""
    header = {"Authorization": f"Bearer {token}", "Host": f"privacy.example.com:{port}"}
    body = json.dumps({"instances": [[0.4, 0.5]]})
    assert ask(port, "POST", "/invocations", body, **header, **{"Content-Type": "application/json"})[0] == 200
    assert ask(port, "GET", "/v2/health/ready", **header)[0] == 200
    assert ask(port, "GET", "/api/v1/status", **header)[0] == 200
    assert "/invocations" not in ask(port, "GET", "/metrics", **header)[2]  # of the service


@pytest.mark.slow
def test_nginx_routes_predictions_as_documented(workers, nginx):
    token, with_ports = workers
    port = nginx(f"server {{ listen 127.0.0.1:PORT; {with_ports(block('nginx', 1))} }}")
    check_routes(port, token)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["caddy", "haproxy"])
def test_caddy_and_haproxy_route_predictions_as_documented(workers, tmp_path, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (token, with_ports), port, file = workers, free_port(), tmp_path / "config"
    if program == "caddy":
        text = block("caddy", 1).replace("privacy.example.com", f"http://privacy.example.com:{port}")
        file.write_text("{\n\tadmin off\n}\n" + with_ports(text))
        command = [shutil.which("caddy"), "run", "--config", str(file), "--adapter", "caddyfile"]
    else:
        text = re.sub(r"bind :443 .*", f"bind 127.0.0.1:{port}", block("haproxy", 0))
        file.write_text(with_ports(text) + "\n")
        command = [shutil.which("haproxy"), "-f", str(file)]
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    proxy = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until(lambda: accepts(port))
        until(lambda: ask(port, "GET", "/healthz", Host=f"privacy.example.com:{port}")[0] == 200)
        check_routes(port, token)
    finally:
        proxy.terminate()
        proxy.wait()
