"""Serving: where it listens and where it refuses to, one service per vault, and clients that dawdle."""

import asyncio
import fcntl
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import uvicorn

from expunge.errors import InvalidSetting, VaultBusy
from expunge.server import listener
from expunge.server.app import Limits
from expunge.server.database import Database, queue_path
from expunge.server.listener import HeadTimeoutProtocol, ListenAddress, build_config
from expunge.server.process import _hold_service_lock, serve
from expunge.server.service import Options
from expunge.server.tokens import Tokens

from support.processes import Served, small_vault


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),  # noqa: S104
        ("::", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host, local):
    assert ListenAddress(host).is_local is local


def test_it_does_not_listen_elsewhere_without_a_token_that_counts(vault):
    tokens = Tokens(Database(queue_path(vault.places.vault)))
    token, _ = tokens.create("a", ["read"], timedelta(days=1))
    tokens.revoke(token.id)
    with pytest.raises(InvalidSetting, match="create one"):
        serve(vault, ListenAddress("0.0.0.0", 0), Options(), Limits())  # noqa: S104 - it is refused


def test_a_certificate_needs_its_key(vault, tmp_path):
    with pytest.raises(InvalidSetting, match="both"):
        serve(vault, ListenAddress(certificate=tmp_path / "x"), Options(), Limits())


def test_an_address_that_is_taken_is_refused_and_lets_go_of_the_queue(vault):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for _ in range(2):
            with pytest.raises(InvalidSetting, match="cannot listen"):
                serve(vault, ListenAddress(port=taken.getsockname()[1]), Options(), Limits())
    with pytest.raises(InvalidSetting, match="65535"):
        ListenAddress(port=70_000).bind()


def test_a_vault_has_one_service(vault):
    path = queue_path(vault.places.vault)
    with _hold_service_lock(path):
        with pytest.raises(VaultBusy), _hold_service_lock(path):
            pass
        with pytest.raises(VaultBusy):
            serve(vault, ListenAddress(port=0), Options(), Limits())
    with _hold_service_lock(path):
        pass


def test_a_lock_that_somebody_else_holds_beside_the_vault_keeps_no_service_from_starting(vault):
    """Before the lock lay in a folder of its own, anybody who could write beside the vault could take it."""
    with vault.places.vault.with_suffix(".serving").open("w") as planted:
        fcntl.flock(planted, fcntl.LOCK_EX)
        with _hold_service_lock(queue_path(vault.places.vault)):
            pass


def test_no_connection_waits_for_more_before_it_sends():
    """Nagle's algorithm holds the second part of an answer back until the first is confirmed: 40 ms each time."""

    async def delays():
        found = asyncio.get_running_loop().create_future()

        def heard(reader, writer):
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with ListenAddress(port=0).bind() as sock:
            async with await asyncio.start_server(heard, sock=sock):
                _, writer = await asyncio.open_connection(*sock.getsockname())
                nodelay = await asyncio.wait_for(found, 30)
                writer.close()
        return not nodelay

    assert not asyncio.run(delays())


def test_a_service_whose_port_is_drawn_knows_its_own_address():
    with ListenAddress(port=0).bind() as sock:
        assert (
            ListenAddress().localhost_url(sock) == f"http://localhost:{sock.getsockname()[1]}" != "http://localhost:0"
        )
        assert ListenAddress(certificate=Path("x")).localhost_url(sock).startswith("https://")


# Clients that dawdle


async def answered(pieces, timeout, monkeypatch):
    """Send pieces to a server, each after the one before was read; return all that it answers until it closes."""
    monkeypatch.setattr(listener, "_HEAD_TIMEOUT", timeout)

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server = uvicorn.Server(build_config(app, ListenAddress(), 1.0))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    sock = socket.create_server(("127.0.0.1", 0))
    await server.startup([sock])
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    found = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await server.shutdown([sock])
    return found


@pytest.mark.parametrize("pieces", [[], [b"GET / HT"], [b"GET / HTTP/1.1\r\nHost: a\r\nX: y"]])
def test_a_head_that_does_not_come_is_not_waited_for(pieces, monkeypatch):
    assert asyncio.run(answered(pieces, 0.05, monkeypatch)) == b""


def test_after_an_answer_half_a_head_is_not_waited_for_either(monkeypatch):
    whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    found = asyncio.run(answered([whole, b"GET / HT"], 0.2, monkeypatch))
    assert found.count(b"HTTP/1.1 204") == 1


def test_a_head_in_time_is_answered(monkeypatch):
    request = [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n", b"\r\n", b"ab"]
    assert b"204" in asyncio.run(answered(request, 5.0, monkeypatch))


def test_a_head_that_is_too_long_or_no_http_is_refused(monkeypatch):
    for head in (b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000, b"\x16\x03\x01 hello\r\n\r\n"):
        assert asyncio.run(answered([head], 5.0, monkeypatch)).startswith(b"HTTP/1.1 4")


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "lengths", [b"Content-Length: 5\r\n" + CHUNKED, CHUNKED + b"Content-Length: 5\r\n", CHUNKED * 2]
)
def test_a_length_that_is_told_in_two_ways_is_refused_and_nothing_more_is_read(monkeypatch, lengths):
    smuggled = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + b"\r\n0\r\n\r\n" + smuggled
    found = asyncio.run(answered([request], 5.0, monkeypatch))
    assert (found.startswith(b"HTTP/1.1 400"), found.count(b"HTTP/1.1 ")) == (True, 1)
    assert b"connection: close" in found.lower()


def test_a_length_that_is_told_once_is_taken(monkeypatch):
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    assert b"204" in asyncio.run(answered([head + CHUNKED + b"\r\n0\r\n\r\n"], 5.0, monkeypatch))


def test_the_server_of_ours_is_the_one_that_is_used():
    assert build_config(None, ListenAddress(), 1.0).http is HeadTimeoutProtocol


@pytest.mark.slow
def test_a_whole_service_logs_json_and_nothing_else(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path) as service:
        assert service.ask("POST", "/api/v1/erasures", {"ids": ["p1"], "p2-secret": 1})[0] == 422
        assert service.ask("GET", "/nowhere/p3-secret")[0] == 404
        with socket.create_connection(("127.0.0.1", service.port)) as rude:
            rude.sendall(b"POST /api/v1/erasures HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert service.ask("GET", "/healthz")[0] == 200
        assert service.stop() == 0
        lines = service.lines
    assert all(line.startswith(b'{"time": ') for line in lines)
    assert not [line for line in lines if b"secret" in line]
