"""Certificates that anybody may have written: shown or refused in plain words, and nothing in them is obeyed."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from expunge.vault.certificates.jws import CERTIFICATE_TYPE, SigningKey

from support.commands import V
from support.sampling import examples

NASTY = "a\x1b[31m\x9b2J\u202e\x07\r\nb [bold]x[/bold]\ud800"
KEY = SigningKey.generate()
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 10**18, 2**63, 1e308, -0.0])
TEXTS = st.text() | st.sampled_from([NASTY, "\x1b]0;title\x07", "[link=file:///etc/passwd]x[/link]"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["iat", "iss", "jti", "kind", "request", "rows", "not_covered", "epoch"]) | TEXTS
anything = examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def certificate(payload, header=None):
    """A JWS of these bytes, signed."""
    header = {"alg": "EdDSA", "kid": KEY.public.thumbprint, "typ": CERTIFICATE_TYPE} if header is None else header
    signed = f"{b64(json.dumps(header).encode())}.{b64(payload)}"
    return f"{signed}.{b64(KEY.key.sign(signed.encode()))}"


@pytest.fixture
def asked(tmp_path, run):
    """Show and check a certificate, for people and for programs."""
    (tmp_path / "key.pub").write_bytes(KEY.public.pem())
    path = tmp_path / "c.jws"

    def ask(text):
        path.write_text(text)
        for command in (("show", path), ("check", path, "--public-key", tmp_path / "key.pub")):
            code, out, err = run("certificate", *command)
            assert code in (0, 13)
            assert all(line.isprintable() for line in [*out.split("\n"), *err.split("\n")])
            yield code, out
            code, out, err = run("certificate", *command, "--json")
            assert code in (0, 13)
            json.loads(out if code == 0 else err, parse_constant=pytest.fail)
            yield code, out

    return ask


@pytest.mark.slow
@anything
@given(st.dictionaries(FIELDS, VALUES, max_size=5))
@example({"iat": float("nan")})
@example({"iat": 10**400})
@example({"iat": [[1], {"a": [NASTY]}], NASTY: NASTY})
@example({"iat": "1e400"})
@example({})
def test_any_payload_is_shown_or_refused_and_nothing_in_it_is_obeyed(asked, payload):
    for code, out in asked(certificate(json.dumps(payload).encode())):
        assert code in (0, 13)
        assert "\x1b" not in out


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b'{"a": 1e400}',
        b'{"iat": 1e400}',
        b'{"iat": -1e400}',
        b'{"iat": NaN}',
        b'{"a": ' + b"9" * 4300 + b"}",
        b'{"a": ' + b"9" * 5000 + b"}",
        *(b'{"a": ' + b"[" * depth + b"]" * depth + b"}" for depth in (100, 500, 900, 990, 5_000, 200_000)),
        *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (100, 320, 500, 900, 990, 5_000, 100_000)),
    ],
    ids=lambda payload: f"{payload[:8]!r} {len(payload)}",
)
def test_odd_bytes_in_a_payload_are_shown_or_refused(asked, payload):
    list(asked(certificate(payload)))


@pytest.mark.slow
@anything
@given(VALUES | st.dictionaries(st.sampled_from(["alg", "typ", "kid", "b64", "crit", "jwk", "x5c"]), VALUES))
@example({"alg": "EdDSA", "typ": CERTIFICATE_TYPE, "b64": False})
@example({"alg": "EdDSA", "typ": CERTIFICATE_TYPE, "crit": ["b64"], "b64": False})
@example({"alg": ["EdDSA"], "typ": {}})
@example({"alg": {}, "kid": 5})
@example({"alg": "none"})
def test_odd_headers_are_refused_or_shown(asked, header):
    list(asked(certificate(b"{}", header)))


@pytest.mark.slow
@anything
@given(st.text(st.characters(max_codepoint=127)) | st.lists(st.text("aeyJ.-_="), min_size=3, max_size=3).map(".".join))
def test_odd_texts_are_refused(asked, text):
    assert {code for code, _ in asked(text)} == {13}


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_certificate_with_a_flipped_character_never_passes(spend_certificate, run, data):
    text, public = spend_certificate
    k = data.draw(st.integers(0, len(text) - 2))
    flipped = text[:k] + data.draw(st.sampled_from(sorted(set("aB3-_. =") - {text[k]}))) + text[k + 1 :]
    Path("flipped.jws").write_text(flipped)
    code, out, err = run("certificate", "check", "flipped.jws", "--public-key", public)
    assert (code, out) == (13, "")
    assert err.startswith("error: ")


@pytest.fixture
def spend_certificate(spend, ok):
    ok("unlearn", *V, "--id", "person-3")
    return Path("spend.certificates/000002.jws").read_text().strip(), "spend.pub"
