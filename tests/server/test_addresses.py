"""Addresses: nothing that a caller names leads inside, and what was checked is what is connected to."""

import ipaddress
import socket
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidInput
from expunge.server import deliveries
from expunge.server.deliveries import (
    FAILURE_REASONS,
    PostResponse,
    PostTarget,
    Unreachable,
    check_url,
    is_public,
    parse_target,
    post_body,
    resolve,
)

from support.certificates import certificate
from support.receiver import receiving

# The special-purpose registry of IANA, and multicast and class E: what nobody on the Internet has.
INSIDE = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
    )
]


def any_address():
    inside = st.sampled_from(INSIDE).flatmap(
        lambda net: st.integers(int(net[0]), int(net[-1])).map(ipaddress.IPv4Address)
    )
    return st.one_of(inside, st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))


@given(any_address())
def test_an_address_is_public_unless_the_registry_reserves_it(ip):
    assert is_public(str(ip)) == (not any(ip in network for network in INSIDE))


@given(any_address())
def test_an_ipv4_address_inside_an_ipv6_address_is_judged_alike(ip):
    number = int(ip)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    six_to_four = ipaddress.IPv6Address((0x2002 << 112) | (number << 80))
    translated = ipaddress.IPv6Address((0x0064_FF9B << 96) | number)
    assert {is_public(str(one)) for one in (mapped, six_to_four, translated)} == {is_public(str(ip))}


@pytest.mark.parametrize(
    "text",
    [
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1", "2001:db8::1",
        "::7f00:1", "64:ff9b:1::1", "2001::1", "100::1", "3fff::1", "3fff:fff:ffff::1", "2001:20::1", "2620:4f:8000::1",
        "5f00::1", "100:0:0:1::1", "2001:1ff::1", "4000::1",
    ],
)  # fmt: skip
def test_these_ipv6_addresses_are_inside(text):
    assert not is_public(text)


@pytest.mark.parametrize("text", ["2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001::1", "3ffe::1"])
def test_a_public_ipv6_address_is_public(text):
    assert is_public(text)


def test_an_ipv4_relay_of_the_registry_is_inside():
    assert not is_public("192.88.99.1")


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://example.com/", "file:///etc/passwd", "//example.com", "http://", "http:///x", "https://a b/",
        "http://user@example.com/", "http://u:p@example.com/", "http://example.com:0/", "http://example.com:99999/",
        "http://[::1/", "http://exa\nmple.com/", "http://ex\u00e4mple.com/", "http://example.com\\@127.0.0.1/",
        "gopher://127.0.0.1/", "http://example.com/" + "x" * 2000, "javascript:alert(1)",
    ],
)  # fmt: skip
def test_what_is_no_url_for_a_post_is_refused(url):
    with pytest.raises(InvalidInput):
        parse_target(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "10.1.2.3", "169.254.169.254", "[::1]",
        "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "localhost", "LOCALHOST.", "x.localhost", "192.168.0.1.",
    ],
)  # fmt: skip
def test_an_address_that_leads_inside_by_itself_is_refused_before_anything_is_sent(host):
    with pytest.raises(InvalidInput, match="allow-host"):
        check_url(f"http://{host}/hook")


def test_a_host_that_is_allowed_by_name_passes_and_no_other():
    assert check_url("http://LocalHost:81/x?y=1", ["localhost"]) == PostTarget("http", "localhost", 81, "/x?y=1")
    with pytest.raises(InvalidInput):
        check_url("http://127.0.0.1/", ["localhost"])


def test_the_parts_of_a_url():
    assert parse_target("https://example.com") == PostTarget("https", "example.com", 443, "/")
    assert parse_target("http://[2606:4700::1]:8/a?b#c") == PostTarget("http", "2606:4700::1", 8, "/a?b")


def answers(monkeypatch, *lists):
    """Have the resolver give these addresses, one list after the other; return how often it was asked."""
    left, asked = list(lists), []

    def getaddrinfo(host, port, *rest, **more):
        asked.append(host)
        family = socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (one, port)) for one in (left.pop(0) if len(left) > 1 else left[0])]

    monkeypatch.setattr(deliveries.socket, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_with_one_private_address_among_others_is_refused(monkeypatch):
    answers(monkeypatch, ["1.1.1.1", "10.0.0.1"])
    with pytest.raises(InvalidInput):
        resolve(parse_target("http://rebind.example/"))
    assert [one[1][0] for one in resolve(parse_target("http://rebind.example/"), ["rebind.example"])] == [
        "1.1.1.1",
        "10.0.0.1",
    ]


@pytest.mark.parametrize("error", [OSError, UnicodeError])
def test_a_name_without_an_address_is_unreachable(monkeypatch, error):
    def getaddrinfo(*words, **more):
        raise error

    monkeypatch.setattr(deliveries.socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(Unreachable):
        resolve(parse_target("http://nowhere.example/"))
    monkeypatch.setattr(deliveries.socket, "getaddrinfo", lambda *words, **more: [])
    with pytest.raises(Unreachable):
        resolve(parse_target("http://nowhere.example/"))


def test_the_address_that_was_checked_is_connected_to_in_the_name_of_the_host(monkeypatch):
    with receiving() as receiver:
        asked = answers(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])  # the name leads elsewhere when asked again
        url = receiver.url("/a?b=1", host="hooks.example")
        answer = post_body(parse_target(url), b"body", {"x-it": "1"}, allowed=["hooks.example"])
    assert answer == PostResponse(200)
    assert asked == ["hooks.example"]
    ((path, headers, body),) = receiver.posts
    assert (path, body, headers["host"], headers["x-it"]) == ("/a?b=1", b"body", f"hooks.example:{receiver.port}", "1")


def test_an_address_that_does_not_answer_is_followed_by_the_next(monkeypatch):
    with receiving() as receiver:
        answers(monkeypatch, ["127.255.255.255", "127.0.0.1"])
        assert post_body(parse_target(receiver.url(host="two.example")), b"", {}, allowed=["two.example"]).status == 200


def test_a_host_of_which_no_address_answers_is_unreachable(monkeypatch):
    with receiving() as receiver:
        target = parse_target(receiver.url(host="dead.example"))
    answers(monkeypatch, ["127.0.0.1", "127.0.0.1"])  # where nobody listens any more
    with pytest.raises(Unreachable, match="^refused$"):
        post_body(target, b"", {}, allowed=["dead.example"])


def test_a_socket_that_is_not_connected_yet_is_cut_without_a_fault():
    target = parse_target("http://127.0.0.1:9/")
    connection = deliveries._PinnedConnection(target, resolve(target, ["127.0.0.1"]), 10.0)
    connection._raw = socket.socket()
    connection.abort()
    connection.close()


def test_nothing_is_sent_to_a_private_address():
    with receiving() as receiver, pytest.raises(InvalidInput):
        post_body(parse_target(receiver.url()), b"secret", {})
    assert receiver.posts == []


def test_a_redirect_is_an_answer_and_not_followed():
    with receiving() as other, receiving(status=307, headers={"Location": other.url()}) as receiver:
        assert post_body(parse_target(receiver.url()), b"x", {}, allowed=["127.0.0.1"]).status == 307
    assert (len(receiver.posts), other.posts) == (1, [])


def test_retry_after_is_read_if_it_is_a_number():
    for text, seconds in {"120": 120, "Wed, 21 Oct 2026 07:28:00 GMT": None, "-1": None, "9" * 30: None}.items():
        with receiving(status=503, headers={"Retry-After": text}) as receiver:
            assert post_body(parse_target(receiver.url()), b"", {}, allowed=["127.0.0.1"]) == PostResponse(503, seconds)


def test_who_accepts_and_keeps_silent_is_cut_off():
    with receiving(release=threading.Event()) as receiver, pytest.raises(Unreachable):
        post_body(parse_target(receiver.url()), b"", {}, allowed=["127.0.0.1"], timeout=0.1)


@pytest.mark.parametrize(
    "bytes_", [b"not HTTP at all\r\n\r\n", b"", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 " + b"x" * 70_000]
)
def test_who_does_not_speak_http_is_unreachable(bytes_):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(bytes_)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Unreachable):
            post_body(parse_target(f"http://127.0.0.1:{server.getsockname()[1]}/"), b"", {}, allowed=["127.0.0.1"])
        thread.join()


def test_who_drips_bytes_without_end_is_cut_off():
    with socket.create_server(("127.0.0.1", 0)) as server:
        enough = threading.Event()

        def drip():
            peer, _ = server.accept()
            with peer:
                try:
                    while not enough.wait(0.01):
                        peer.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(Unreachable):
            post_body(
                parse_target(f"http://127.0.0.1:{server.getsockname()[1]}/"),
                b"",
                {},
                allowed=["127.0.0.1"],
                timeout=0.2,
            )
        enough.set()
        thread.join()


def test_tls_asks_for_the_host_by_name_and_checks_its_certificate(tmp_path, monkeypatch):
    pem, context = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    names = []
    context.sni_callback = lambda sock, name, context: names.append(name)
    with receiving(context) as receiver:
        answers(monkeypatch, ["127.0.0.1"])
        right, wrong = (
            parse_target(receiver.url(host=host, scheme="https")) for host in ("hooks.example", "x.example")
        )
        allowed = ["hooks.example", "x.example"]
        assert post_body(right, b"over TLS", {}, allowed=allowed).status == 200
        with pytest.raises(Unreachable):
            post_body(wrong, b"secret", {}, allowed=allowed)
    assert names == ["hooks.example", "x.example"]
    assert [body for _, _, body in receiver.posts] == [b"over TLS"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_whose_time_was_over_before_it_was_made_is_not_used(scheme):
    with receiving() as receiver:
        target = parse_target(receiver.url(scheme=scheme))
        connection = deliveries._PinnedConnection(target, resolve(target, ["127.0.0.1"]), 10.0)
        connection.abort()
        with pytest.raises(TimeoutError):
            connection.request("POST", "/")
        connection.close()
    assert receiver.posts == []


# Reasons


def reason_of(url, **more):
    with pytest.raises(Unreachable) as found:
        post_body(parse_target(url), b"{}", {}, allowed=["127.0.0.1", "localhost", "no-such-host.invalid"], **more)
    assert str(found.value) in FAILURE_REASONS
    return str(found.value)


@contextmanager
def answering(raw):
    """A server that sends these bytes to whoever connects; None waits for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                if raw is None:
                    ended.wait(30)
                else:
                    connection.sendall(raw)

        ended = threading.Event()
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def test_a_post_that_fails_says_why():
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    assert reason_of(f"http://127.0.0.1:{closed}/") == "refused"
    assert reason_of("http://no-such-host.invalid/") == "dns"
    with answering(None) as port:
        assert reason_of(f"http://127.0.0.1:{port}/", timeout=0.2) == "timeout"
    with answering(b"220 mail.example ESMTP secret\r\n") as port:
        assert reason_of(f"http://127.0.0.1:{port}/") == "not-http"
    with answering(b"") as port:
        assert reason_of(f"http://127.0.0.1:{port}/") == "closed"
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        assert reason_of(f"https://127.0.0.1:{port}/") == "tls"
