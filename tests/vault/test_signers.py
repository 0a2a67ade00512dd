"""Signers outside give the bytes that a key of ours gives; every way to fail is one error, which tells nothing."""

import base64
import os
import re
import select
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws as jose
from joserfc.jwk import OKPKey

from expunge.errors import InvalidSetting, SigningFailed
from expunge.vault.certificates import jws
from expunge.vault.certificates.jws import CERTIFICATE_TYPE, HEAD_TYPE, SigningKey
from expunge.vault.certificates.signers import ExternalSigner, _parse_signature, make_external_signer

from support.signing import dripping, listening, python_signer

pytestmark = pytest.mark.filterwarnings("ignore:EdDSA is deprecated via RFC 9864")

DOCS = Path(__file__).parents[2] / "docs"
KEY = SigningKey.generate()
PAYLOAD = '{"kind":"unlearn","reference":"a secret reference","rows":1}'
SCRIPT = re.search(r"```sh\n(#!/bin/sh\n.*?)```", (DOCS / "signing.md").read_text(), re.DOTALL)[1]


def python(program):
    return shlex.join([sys.executable, "-c", program])


def failure(command, wait=30.0, public=KEY.public):
    with pytest.raises(SigningFailed) as caught:
        ExternalSigner(command, public, wait).sign(PAYLOAD)
    text = str(caught.value)
    signed = jws.signing_input(public, PAYLOAD, CERTIFICATE_TYPE).decode()
    for hidden in (PAYLOAD, signed):
        assert not [k for k in range(len(hidden) - 11) if hidden[k : k + 12] in text]
    assert caught.value.__cause__ is None
    assert not isinstance(caught.value, OSError)
    return text


@pytest.mark.parametrize("typ", [CERTIFICATE_TYPE, HEAD_TYPE])
@pytest.mark.parametrize("how", ["openssl", "python", "socket"])
def test_a_signer_outside_gives_the_bytes_that_the_key_itself_gives(tmp_path, how, typ):
    command = python_signer(tmp_path, KEY)
    if how == "socket":
        with listening(tmp_path / "s", KEY.key.sign):
            said = make_external_signer(f"unix:{tmp_path / 's'}", KEY.public).sign(PAYLOAD, typ)
    else:
        if how == "openssl":
            (tmp_path / "sign.sh").write_text(SCRIPT)
            command = f"sh {tmp_path / 'sign.sh'} {tmp_path / 'key.pem'}"
        said = make_external_signer(command, KEY.public).sign(PAYLOAD, typ)
    assert said == KEY.sign(PAYLOAD, typ)
    registry = jose.JWSRegistry(algorithms=["EdDSA"])
    key = OKPKey.import_key(KEY.public.pem())
    found = jose.deserialize_compact(said, key, algorithms=["EdDSA"], registry=registry)
    assert found.headers() == {"alg": "EdDSA", "kid": key.thumbprint(), "typ": typ}
    assert found.payload == PAYLOAD.encode()
    assert jws.verify_statement(said, [KEY.public], types=[typ])["rows"] == 1


def test_a_large_payload_gets_through_whole(tmp_path):
    payload = '{"a":"' + "x" * 500_000 + '"}'
    assert ExternalSigner(python_signer(tmp_path, KEY), KEY.public).sign(payload) == KEY.sign(payload)
    with listening(tmp_path / "s", KEY.key.sign):
        assert ExternalSigner(f"unix:{tmp_path / 's'}", KEY.public).sign(payload) == KEY.sign(payload)


FORMS = {
    "raw": lambda s: s,
    "base64": base64.b64encode,
    "base64 with a newline": lambda s: base64.b64encode(s) + b"\r\n",
    "base64url": base64.urlsafe_b64encode,
    "base64url without padding": lambda s: base64.urlsafe_b64encode(s).rstrip(b"="),
    "hex": lambda s: s.hex().encode() + b"\n",
    "HEX": lambda s: s.hex().upper().encode(),
}


@given(st.binary(min_size=64, max_size=64))
def test_a_signature_is_read_in_every_form(signature):
    assert {name for name, form in FORMS.items() if _parse_signature(form(signature)) != signature} == set()


@given(st.binary(max_size=200) | st.text("0123456789abcdefABCDEF+/-_=\n ", max_size=140).map(str.encode))
def test_anything_else_is_no_signature_and_no_traceback(said):
    found = _parse_signature(said)
    assert found is None or len(found) == 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 1000 > {} & cat > /dev/null; wait", "did not answer within 1 seconds"),
        ("sleep 1000 2> {} & cat > /dev/null", "answered with 0 bytes"),  # it ends, and the other holds on
    ],
)
def test_a_signer_that_hangs_is_killed_with_all_that_it_started(tmp_path, script, said):
    os.mkfifo(tmp_path / "held")
    alive = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = shlex.join(["sh", "-c", script.format(tmp_path / "held")])
        assert failure(command, wait=1.0).startswith(f"the signer sh {said}")
        assert select.select([alive], [], [], 60)[0], "what the signer had started still runs"
        assert os.read(alive, 1) == b""
    finally:
        os.close(alive)
    assert "within 1 seconds" in failure(python("import os,time; os.close(1); time.sleep(1000)"), wait=1.0)
    assert "within 1 seconds" in failure(python("while True: pass"), wait=1.0)


def test_a_signer_that_fails_says_why_unless_it_repeats_what_it_got():
    assert failure("false") == "the signer false exited with code 1"
    said = failure(python("import sys; sys.exit('no\\x1b[31m such\\nslot')"))
    assert said.endswith("exited with code 1: no [31m such slot")
    assert "was killed by signal 9" in failure(shlex.join(["sh", "-c", "kill -9 $$"]))
    assert failure(shlex.join(["sh", "-c", "sleep 2 > /dev/null & exit 3"])) == "the signer sh exited with code 3"
    assert len(failure(python("import sys; sys.exit('x ' * 100000)"))) < 300
    for echo in (
        "sys.stdin.read()",
        "sys.stdin.read()[7:40]",
        "base64.urlsafe_b64decode(sys.stdin.read().split('.')[1] + '==').decode()",
    ):
        assert "repeats what it was sent" in failure(python(f"import sys, base64; sys.exit({echo})"))


def test_a_signer_that_is_not_there_is_named_without_its_arguments():
    said = failure("/nowhere/at-all --pin 1234")
    assert said == "the signer at-all could not be started: No such file or directory"
    assert failure("/etc/passwd --pin 1234") == "the signer passwd could not be started: Permission denied"


def test_an_answer_that_is_no_signature_of_the_key_is_refused(tmp_path):
    other = SigningKey.generate()
    assert "was not made with the key" in failure(python_signer(tmp_path, other))
    assert "was not made with the key" in failure(python("print('A' * 86)"))
    assert "answered with 0 bytes" in failure("true")
    assert "not an Ed25519 signature" in failure("cat")
    assert "not an Ed25519 signature" in failure(python("print('not a signature')"))
    assert "more than 4,096 bytes" in failure("yes")


def test_what_a_signer_says_counts_also_if_it_did_not_read(tmp_path):
    payload = '{"a":"' + "x" * 500_000 + '"}'
    with pytest.raises(SigningFailed, match="answered with 0 bytes"):
        ExternalSigner("true", KEY.public).sign(payload)


def test_no_descriptor_of_ours_is_inherited(tmp_path):
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        number = ours.fileno()
        program = f"import os, sys\ntry: os.fstat({number})\nexcept OSError: sys.exit('closed')\nsys.exit('open')"
        assert failure(python(program)).endswith(": closed")


@pytest.mark.slow
def test_a_socket_that_does_not_sign_is_one_kind_of_error_too(tmp_path):
    def asked(answer, wait=30.0):
        with listening(tmp_path / "s", answer), pytest.raises(SigningFailed) as caught:
            ExternalSigner(f"unix:{tmp_path / 's'}", KEY.public, wait).sign(PAYLOAD)
        (tmp_path / "s").unlink()
        return str(caught.value)

    assert "did not answer within 1 seconds" in asked(lambda _: None, wait=1.0)
    assert "did not answer within 1 seconds" in asked(lambda _: dripping(), wait=1.0)
    assert "more than 4,096 bytes" in asked(lambda _: bytes(10**6))
    assert "answered with 0 bytes" in asked(lambda _: b"")
    assert "was not made with the key" in asked(SigningKey.generate().key.sign)
    assert "not an Ed25519 signature" in asked(lambda asked: asked)
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "refused"), ("x" * 200, "too long")):
        with pytest.raises(SigningFailed, match=reason):
            ExternalSigner(f"unix:{path}", KEY.public).sign(PAYLOAD)


@pytest.mark.parametrize("text", ["", "  ", "unix:", "sh -c 'x", "''", "a\0b", "unix:a\0b"])
def test_what_names_no_signer_is_refused_at_once(text):
    with pytest.raises(InvalidSetting, match="--sign-with"):
        make_external_signer(text, KEY.public)
