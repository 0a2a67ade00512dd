"""Timestamps: what an authority says is taken only if it is of these data, and signed below a root that we name."""

import socket
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from expunge.errors import InvalidCertificate, InvalidFile, InvalidSetting, SigningFailed
from expunge.vault.certificates import timestamps
from expunge.vault.certificates.timestamps import load_roots, request_timestamp, sort_certificates, verify_timestamp

from support.authority import Authority, serving
from support.sampling import examples
from support.signing import dripping

DER = Encoding.DER
DATA = b"what existed at that time\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "tsa")


@pytest.fixture(scope="module")
def stamp(authority):
    with serving(authority.answer) as url:
        return request_timestamp(url, DATA)


@pytest.fixture(scope="module")
def roots(authority):
    return load_roots(authority.roots)


def test_a_stamp_says_when_and_openssl_agrees(authority, stamp, roots, tmp_path):
    when = verify_timestamp(stamp, DATA, roots)
    assert when.tzinfo is UTC
    assert abs(datetime.now(UTC) - when) < timedelta(hours=1)
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "stamp").write_bytes(stamp)
    words = ["openssl", "ts", "-verify", "-data", "data", "-in", "stamp", "-CAfile", str(authority.roots)]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0
    shown = subprocess.run(["openssl", "ts", "-reply", "-in", "stamp", "-text"], cwd=tmp_path, capture_output=True)  # noqa: S607
    assert when.strftime("%b %e %H:%M:%S %Y GMT") in shown.stdout.decode()


def test_a_stamp_of_something_else_or_below_another_root_is_refused(authority, stamp, roots, tmp_path):
    with pytest.raises(InvalidCertificate, match="of other data"):
        verify_timestamp(stamp, DATA + b"!", roots)
    other = load_roots(Authority(tmp_path / "other").roots)  # of the same names
    with pytest.raises(InvalidCertificate, match="below these roots"):
        verify_timestamp(stamp, DATA, other)
    assert verify_timestamp(stamp, DATA, [*other, *roots, *roots])


def test_a_certificate_that_may_not_stamp_or_had_ended_is_refused(authority, stamp, roots, tmp_path):
    theirs = authority.leaf.public_bytes(DER)
    assert theirs in stamp
    for usage in (ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.SERVER_AUTH):
        made = (authority.made_leaf(usage).public_bytes(DER) for _ in range(1000))
        forged = stamp.replace(theirs, next(one for one in made if len(one) == len(theirs)))
        if usage == ExtendedKeyUsageOID.TIME_STAMPING:
            assert verify_timestamp(forged, DATA, roots)
        else:
            with pytest.raises(InvalidCertificate, match="below these roots"):
                verify_timestamp(forged, DATA, roots)
    late = Authority(tmp_path / "late", ended=True)
    with serving(late.answer) as url, pytest.raises(InvalidCertificate, match="below these roots"):
        verify_timestamp(request_timestamp(url, DATA), DATA, load_roots(late.roots))


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_stamp_that_was_changed_anywhere_says_the_same_or_is_refused(stamp, roots, data):
    place = data.draw(st.integers(0, len(stamp) - 1))
    flip = data.draw(st.integers(1, 255))
    forged = stamp[:place] + bytes([stamp[place] ^ flip]) + stamp[place + 1 :]
    cut = data.draw(st.sampled_from([forged, stamp[:place], stamp[place:], stamp + forged[:place]]))
    try:
        when = verify_timestamp(cut, DATA, roots)
    except InvalidCertificate:
        return
    assert when == verify_timestamp(stamp, DATA, roots)  # a byte that nothing signs, such as the text of the status


def test_certificates_are_read_in_whatever_order_they_come(authority, stamp, roots):
    between = load_pem_x509_certificate((authority.roots.parent / "chain.pem").read_bytes())
    pair = sorted([authority.leaf.public_bytes(DER), between.public_bytes(DER)])
    right = sort_certificates(stamp)
    assert b"".join(pair) in right
    wrong = right.replace(b"".join(pair), b"".join(pair[::-1]))
    assert stamp in (right, wrong)
    assert sort_certificates(wrong) == sort_certificates(right) == right
    assert verify_timestamp(wrong, DATA, roots) == verify_timestamp(right, DATA, roots)


@given(data=st.binary(max_size=80) | st.lists(st.sampled_from(b"\x30\x02\xa0\x00\x80\x81\x01\x05\xff")).map(bytes))
def test_sorting_leaves_everything_else_alone(data):
    assert sorted(sort_certificates(data)) == sorted(data)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda stamp, tsa, query: stamp, "of other data, or with an old one"),
        (lambda stamp, tsa, query: b"", "0 bytes that are not an RFC 3161 timestamp"),
        (lambda stamp, tsa, query: b"<html>", "6 bytes that are not an RFC 3161"),
        (lambda stamp, tsa, query: tsa.answer(b"no query"), "refused: status 2"),
        (lambda stamp, tsa, query: bytes(2**18 + 1), "more than 262,144 bytes"),
        (lambda stamp, tsa, query: (500, {}, b""), "HTTP status 500"),
        (lambda stamp, tsa, query: (302, {"Location": "file:///etc/passwd"}, b""), "HTTP status 302; redirects"),
        (lambda stamp, tsa, query: (302, {"Location": "/elsewhere"}, b""), "HTTP status 302"),
        (lambda stamp, tsa, query: (307, {"Location": "http://127.0.0.1:1/"}, b""), "HTTP status 307"),
        (lambda stamp, tsa, query: (200, {"Content-Length": "9000"}, stamp[:-9]), "not an RFC 3161 timestamp"),
    ],
)
def test_an_authority_that_does_not_stamp_these_data_now_is_refused(authority, stamp, answer, message):
    with serving(lambda query: answer(stamp, authority, query)) as url, pytest.raises(SigningFailed, match=message):
        request_timestamp(url, DATA)


@pytest.mark.slow
def test_an_authority_that_does_not_answer_is_one_kind_of_error_too():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(SigningFailed, match="no answer within 0.5 seconds"):
            request_timestamp(f"http://127.0.0.1:{silent.getsockname()[1]}/", DATA, timeout=0.5)
        port = silent.getsockname()[1]
    late = pytest.raises(SigningFailed, match="no answer within 0.5 seconds")
    with serving(lambda _: (200, {}, dripping())) as url, late:
        request_timestamp(url, DATA, timeout=0.5)
    with pytest.raises(SigningFailed, match="could not be reached: Connection refused"):
        request_timestamp(f"http://127.0.0.1:{port}/", DATA)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tsa",
        "file:///etc/passwd",
        "ftp://host/",
        "http://",
        "http://[::1",
        "http://a b/",
        "http://h:x/",
        "http://me:pin@h/",
    ],
)
def test_only_http_and_https_are_asked(url):
    with pytest.raises(InvalidSetting, match="http://host/path"):
        request_timestamp(url, DATA)


@pytest.mark.parametrize(
    "text", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_root_is_refused(text, tmp_path):
    (tmp_path / "roots.pem").write_bytes(text)
    with pytest.raises(InvalidFile, match="no certificates in PEM"):
        load_roots(tmp_path / "roots.pem")


def test_a_stored_answer_is_read_up_to_a_size(tmp_path, stamp):
    (tmp_path / "head.tsr").write_bytes(stamp)
    assert timestamps.read_timestamp(tmp_path / "head.tsr") == stamp
    (tmp_path / "head.tsr").write_bytes(bytes(timestamps.MAX_RESPONSE_BYTES + 1))
    with pytest.raises(InvalidFile):
        timestamps.read_timestamp(tmp_path / "head.tsr")
