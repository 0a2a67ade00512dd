"""Certificates: a second library reads them, nobody can change them, they name nobody; and what a lost key means."""

import base64
import hashlib
import hmac
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from joserfc import jws as jose
from joserfc.errors import BadSignatureError
from joserfc.jwk import OKPKey

import expunge
from expunge.errors import InvalidCertificate, InvalidFile, InvalidSetting
from expunge.vault import Vault
from expunge.vault.certificates import jws as certificates
from expunge.vault.certificates.jws import SigningKey, load_public_keys, unverified_payload, verify_statement
from expunge.vault.certificates.payload import canonical_json, state_commitment
from expunge.vault.ledger.ledger import Ledger

from support import odd
from support.tampering import DEEP
from support.vaults import everything, made, people, put_back, random_table

# RFC 9864 has a new name, Ed25519, for what every library reads as EdDSA.
pytestmark = [
    pytest.mark.filterwarnings("ignore:EdDSA is deprecated via RFC 9864"),
]


@pytest.fixture
def busy(vault):
    """A vault that has seen a request of every kind, and the digest after each."""
    path, digests = vault.places.vault, [vault.digest()]
    for ask in (
        lambda: vault.unlearn(["person-1", "person-2"]),
        lambda: vault.add(random_table(["new-1", "new-2"], seed=1)),
        lambda: vault.rectify(random_table(["new-1"], seed=2)),
        lambda: vault.readmit(["person-1"]),
        lambda: made(path, random_table(people(), seed=3), replace=True, skip_erased=True),
    ):
        ask()
        digests.append(vault.digest())
    shutil.copytree(path, path.parent / "copy")
    vault.unlearn(["person-3"])
    digests.append(vault.digest())
    put_back(path.parent / "copy", path)
    restored = Vault.open(path)
    return restored, [*digests, restored.digest()]


def read_by_another(certificate, pem):
    """Header and payload, by a library that does not sign ours."""
    registry = jose.JWSRegistry(algorithms=["EdDSA"])
    found = jose.deserialize_compact(certificate, OKPKey.import_key(pem), algorithms=["EdDSA"], registry=registry)
    return found.headers(), json.loads(found.payload)


def parts(certificate):
    return [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in certificate.split(".")]


def test_another_library_reads_every_certificate_and_it_says_what_was_done(busy):
    vault, _ = busy
    pem = vault.places.public.read_bytes()
    records = {r.request: r for r in Ledger(vault.places.ledger).read()[0] if r.is_request}
    previous = None
    kinds = ["train", "unlearn", "add", "rectify", "readmit", "train", "unlearn", "restore"]
    assert [r.kind for r in vault.requests] == kinds
    for request in vault.requests:
        header, payload = read_by_another(request.certificate, pem)
        assert header == {"alg": "EdDSA", "typ": "expunge-certificate+jws", "kid": vault.public_keys()[0]}
        receipts = {"receipts"} if request.kind in ("unlearn", "add", "rectify", "readmit") else set()
        completion = {"complete"} if request.kind in ("unlearn", "rectify", "restore") else set()
        assert set(payload) == receipts | completion | {
            "commitment", "epoch", "iat", "iss", "jti", "kind", "not_covered", "people", "previous", "request", "rows",
            "schema", "software", "version",
        }  # fmt: skip
        name = vault.status().vault
        assert (payload["iss"], payload["jti"]) == (f"expunge vault {name}", f"{name}/{request.number}")
        said = (payload["request"], payload["epoch"], payload["kind"], payload["rows"], payload["people"])
        assert said == (request.number, request.number, request.kind, request.rows, request.people)
        assert payload["previous"] == records[request.number].end.hash != previous
        previous = payload["previous"]
        assert payload["software"] == f"expunge {expunge.__version__}"
        assert len(payload["not_covered"]) >= 3
        assert (
            payload
            == verify_statement(request.certificate, load_public_keys(vault.places.public))
            == unverified_payload(request.certificate)
        )
        assert vault.certificate_path(request.number).read_text() == request.certificate + "\n"


def test_the_key_is_named_by_its_thumbprint(vault):
    key = OKPKey.import_key(vault.places.public.read_bytes())
    assert vault.public_keys() == [key.thumbprint()]


def test_only_the_newest_certificate_fits_the_state_and_the_older_fit_nothing_that_is_left(busy):
    vault, digests = busy
    with vault._lock_for_writing() as writer:
        salt = writer.snapshot.manifest.salt
    commitments = [unverified_payload(r.certificate)["commitment"] for r in vault.requests]
    assert len(set(commitments)) == len(commitments)
    expected = hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(vault.digest())).hexdigest()
    assert commitments[-1] == expected == state_commitment(salt, vault.digest())
    assert expected not in commitments[:-1]
    assert not {state_commitment(salt, digest) for digest in digests[:-1] if digest != digests[-1]} & set(commitments)


def test_no_certificate_and_no_record_has_a_digest_an_id_or_a_value(busy):
    vault, digests = busy
    told = {name: content for name, content in everything(vault.places.vault).items() if not name.startswith("v.vault")}
    payloads = [json.dumps(unverified_payload(r.certificate)).encode() for r in vault.requests]
    with vault._lock_for_writing() as writer:
        manifest, (X, _) = (
            writer.snapshot.manifest,
            writer.snapshot.rows.take(np.flatnonzero(writer.snapshot.rows.live)),
        )
    assert X.all()
    values = {repr(value) for column in X.T for value in column.tolist() if value} | {
        repr(bound) for side in (manifest.inputs, manifest.targets) for bound in (*side.low, *side.high)
    }
    secrets = [*digests, manifest.salt, *(learner.sum for learner in manifest.learners), "person-", "new-", *values]
    for content in (*told.values(), *payloads):
        assert not [secret for secret in secrets if secret.encode() in content]
    assert b"bounds" not in b"".join([*told.values(), *payloads])


def test_signing_again_gives_the_same_bytes(vault):
    key = SigningKey.load(vault.places.key)
    text = canonical_json(unverified_payload(vault.receipt.certificate))
    assert key.sign(text) == key.sign(text) == vault.receipt.certificate


def test_what_was_changed_is_refused_by_us_and_by_another_library(vault):
    certificate, keys, pem = (
        vault.receipt.certificate,
        load_public_keys(vault.places.public),
        vault.places.public.read_bytes(),
    )
    header, payload, signature = certificate.split(".")
    other = unverified_payload(certificate) | {"rows": 29}
    changed = base64.urlsafe_b64encode(json.dumps(other).encode()).rstrip(b"=").decode()
    for forged in (
        f"{header}.{changed}.{signature}",
        f"{header}.{payload}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
        f"{header}.{payload}.",
    ):
        with pytest.raises(InvalidCertificate, match="the signature was not made with this key"):
            verify_statement(forged, keys)
        with pytest.raises((BadSignatureError, ValueError)):
            read_by_another(forged, pem)
    for bit in range(0, 8 * len(certificate), 97):
        data = bytearray(certificate.encode())
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidCertificate):
            verify_statement(data.decode("latin-1"), keys)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "EdDSA"])
def test_a_signature_of_another_kind_or_key_is_refused(vault, algorithm):
    _, payload, _ = parts(vault.receipt.certificate)
    pem = vault.places.public.read_bytes()
    if algorithm == "none":
        header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"expunge-certificate+jws"}').rstrip(b"=").decode()
        forged = f"{header}.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}."
    elif algorithm == "HS256":  # the public key, taken for a shared secret
        signed = b".".join(
            base64.urlsafe_b64encode(part).rstrip(b"=")
            for part in (b'{"alg":"HS256","typ":"expunge-certificate+jws"}', payload)
        )
        mac = hmac.digest(pem, signed, "sha256")
        forged = f"{signed.decode()}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    else:
        forged = SigningKey.generate().sign(payload.decode())
    with pytest.raises(InvalidCertificate):
        verify_statement(forged, load_public_keys(vault.places.public))


def test_a_signature_of_the_key_on_something_else_is_no_certificate(vault):
    key = SigningKey.load(vault.places.key)
    private = OKPKey.import_key(key.pem())
    text = canonical_json(unverified_payload(vault.receipt.certificate))
    registry = jose.JWSRegistry(algorithms=["EdDSA"])
    token = jose.serialize_compact(
        {"alg": "EdDSA", "typ": "JWT"}, text, private, algorithms=["EdDSA"], registry=registry
    )
    with pytest.raises(InvalidCertificate, match="is not a certificate of a vault"):
        verify_statement(token, [key.public])
    for payload in ("[]", "7", "not JSON"):
        with pytest.raises(InvalidCertificate):
            verify_statement(key.sign(payload), [key.public])


def test_a_key_made_by_openssl_signs_and_is_never_copied(tmp_path):
    own = tmp_path / "own.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", own], check=True)  # noqa: S607
    vault = made(tmp_path / "v.vault", key=own)
    assert not vault.places.key.exists()
    public = subprocess.run(["openssl", "pkey", "-in", own, "-pubout"], check=True, capture_output=True)  # noqa: S607
    assert vault.places.public.read_bytes() == public.stdout
    read_by_another(vault.receipt.certificate, public.stdout)
    assert Vault.open(tmp_path / "v.vault", key=own).unlearn(["person-1"]).certificate
    without = Vault.open(tmp_path / "v.vault").unlearn(["person-2"])
    assert without.certificate is None
    assert [r.state for r in Vault.open(tmp_path / "v.vault", key=own).requests] == ["certified"] * 3


def test_what_is_no_ed25519_key_is_refused(vault, tmp_path):
    wrong = generate_private_key(SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "ec.pem").write_bytes(wrong.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    secret = serialization.BestAvailableEncryption(b"password")
    own = SigningKey.load(vault.places.key).key
    (tmp_path / "locked.pem").write_bytes(own.private_bytes(pem, serialization.PrivateFormat.PKCS8, secret))
    (tmp_path / "none.pem").write_text("not a key")
    for name in ("ec.pem", "locked.pem", "none.pem"):
        with pytest.raises(InvalidFile):
            made(tmp_path / "w.vault", key=tmp_path / name)
        assert not (tmp_path / "w.vault").exists()
    (tmp_path / "ec.pub").write_bytes(
        wrong.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    for name in ("ec.pub", "none.pem", "ec.pem"):
        with pytest.raises(InvalidFile):
            load_public_keys(tmp_path / name)


# --- a key that is not there


def test_a_file_of_public_keys_is_read_as_the_page_reads_it(tmp_path):
    key, path = SigningKey.generate(), tmp_path / "keys.pub"
    for text, right in odd.pems(key.public.pem().decode(), SigningKey.generate().pem().decode()):
        path.write_text(text)
        if right:
            assert [one.thumbprint for one in load_public_keys(path)] == [key.public.thumbprint], text
        else:
            with pytest.raises(InvalidFile):
                load_public_keys(path)


def test_a_lost_key_holds_up_no_erasure_and_what_was_done_is_certified_in_order_when_it_is_back(vault, tmp_path):
    vault.places.key.rename(tmp_path / "away")
    first = vault.unlearn(["person-1"])
    assert (first.rows, first.certificate, first.path) == (1, None, None)
    (note,) = first.notes
    way_out = "name the key with --key, or what signs with --sign-with"
    problem = f"{vault.places.key} is missing: {way_out}"
    assert note == f"done, not certified: {problem}; it will be certified once the signing key is available"
    vault.add(random_table(["new-1"], seed=1))
    vault.readmit(["person-1"])
    again = Vault.open(vault.places.vault)
    assert [r.state for r in again.requests] == ["certified", "done", "done", "done"]
    assert again.status().uncertified == 3
    assert again.unlearn(["new-1"]).certificate is None
    verdict = again.verify()
    assert verdict.ok
    assert "4 wait for the signing key" in next(c.detail for c in verdict.checks if c.name == "certificates")
    assert not again.certificate_path(2).exists()

    (tmp_path / "away").rename(vault.places.key)
    Vault.open(vault.places.vault)  # that is enough
    assert [r.state for r in again.requests] == ["certified"] * 5
    signed = [r.request for r in Ledger(vault.places.ledger).read()[0] if r.kind == "signature"]
    assert signed == [1, 2, 3, 4, 5]
    keys = load_public_keys(vault.places.public)
    for request in again.requests:
        assert verify_statement(request.certificate, keys)["request"] == request.number
        assert again.certificate_path(request.number).read_text().strip() == request.certificate
    assert again.status().uncertified == 0
    assert again.verify().ok
    before = everything(vault.places.vault)
    Vault.open(vault.places.vault).verify()
    assert everything(vault.places.vault) == before


def test_the_next_request_certifies_what_waited_too(vault, tmp_path):
    vault.places.key.rename(tmp_path / "away")
    vault.unlearn(["person-1"])
    (tmp_path / "away").rename(vault.places.key)
    assert vault.unlearn(["person-2"]).certificate
    assert [r.state for r in vault.requests] == ["certified"] * 3


def test_who_was_erased_without_a_key_has_a_certificate_later(vault, tmp_path):
    vault.places.key.rename(tmp_path / "away")
    vault.unlearn(["person-1"])
    assert vault.unlearn(["person-1"]).certificate is None
    (tmp_path / "away").rename(vault.places.key)
    again = Vault.open(vault.places.vault).unlearn(["person-1"])
    assert verify_statement(again.certificate, load_public_keys(vault.places.public))["request"] == 2
    assert again.path.read_text().strip() == again.certificate


def test_a_key_that_is_lost_for_good_is_renewed_and_older_certificates_still_fit(vault):
    old = vault.public_keys()
    before = vault.receipt.certificate
    vault.places.key.unlink()
    vault.unlearn(["person-1"])
    name = vault.renew_key()
    assert vault.public_keys() == [name, *old]
    assert vault.places.key.stat().st_mode & 0o777 == 0o600
    assert [r.state for r in vault.requests] == ["certified", "certified"]
    keys = load_public_keys(vault.places.public)
    assert [key.thumbprint for key in keys] == [name, *old]
    for certificate in (before, vault.requests[1].certificate):
        verify_statement(certificate, keys)
    with pytest.raises(InvalidCertificate):
        verify_statement(vault.requests[1].certificate, keys[1:])
    newest, older = re.findall(rb"-----BEGIN.*?END PUBLIC KEY-----\n", vault.places.public.read_bytes(), re.DOTALL)
    read_by_another(before, older)
    read_by_another(vault.requests[1].certificate, newest)
    assert Vault.open(vault.places.vault).verify().ok


def test_training_anew_makes_no_key_in_place_of_one_that_is_away(vault, tmp_path):
    keys = vault.places.public.read_bytes()
    vault.places.key.rename(tmp_path / "away")
    anew = made(vault.places.vault, random_table(people(), seed=1), replace=True)
    assert anew.receipt.certificate is None
    assert not vault.places.key.exists()
    assert vault.places.public.read_bytes() == keys
    (tmp_path / "away").rename(vault.places.key)
    assert [r.state for r in Vault.open(vault.places.vault).requests] == ["certified"] * 2


def test_a_key_of_another_vault_signs_nothing_and_is_not_overwritten(vault, tmp_path):
    other = made(tmp_path / "other.vault")
    theirs = other.places.key.read_bytes()
    stranger = Vault.open(vault.places.vault, key=other.places.key)
    assert stranger.unlearn(["person-1"]).certificate is None
    stranger.renew_key()  # by name: from now on it signs for this vault, too
    assert other.places.key.read_bytes() == theirs
    assert [r.state for r in stranger.requests] == ["certified"] * 2
    vault.places.key.write_text("damaged")
    with pytest.raises(InvalidFile):
        Vault.open(vault.places.vault).renew_key()
    assert vault.places.key.read_text() == "damaged"


def test_a_file_of_public_keys_that_is_lost_is_made_again_from_the_ledger(vault):
    public = vault.places.public.read_bytes()
    vault.places.public.unlink()
    opened = Vault.open(vault.places.vault)
    assert opened.unlearn(["person-1"]).certificate
    assert vault.places.public.read_bytes() == public
    assert opened.verify().ok


def test_a_certificate_that_cannot_be_written_is_in_the_ledger(vault):
    shutil.rmtree(vault.places.certificates)
    vault.places.certificates.write_text("in the way")
    receipt = vault.unlearn(["person-1"])
    assert receipt.path is None
    assert "could not be written" in receipt.notes[0]
    assert verify_statement(receipt.certificate, load_public_keys(vault.places.public))["request"] == 2
    assert vault.requests[-1].certificate == receipt.certificate


def test_the_public_key_beside_the_certificates_is_found(vault, tmp_path, monkeypatch):
    path = vault.certificate_path(1)
    assert certificates.find_public_key_file(path) == vault.places.public
    monkeypatch.chdir(path.parent)
    assert certificates.find_public_key_file(Path(path.name)).samefile(vault.places.public)
    with pytest.raises(InvalidSetting, match="--public-key"):
        certificates.find_public_key_file(tmp_path / "elsewhere.jws")


@pytest.mark.parametrize(
    "text", [DEEP.decode(), "a.b.c", "..", "", "a.b", "\u00e9.b.c", "[].[].[]", *(["x" * 5000])], ids=range(8)
)
def test_a_certificate_of_any_other_text_is_refused(text, tmp_path):
    (tmp_path / "c.jws").write_text(text)
    deep = base64.urlsafe_b64encode(DEEP).rstrip(b"=").decode()
    header = base64.urlsafe_b64encode(b'{"alg":"EdDSA"}').rstrip(b"=").decode()
    for one in (text, f"{header}.{deep}.aaaa", f"{deep}.{deep}.aaaa"):
        with pytest.raises(InvalidCertificate):
            certificates.unverified_payload(one)
    with pytest.raises(InvalidCertificate):
        certificates.unverified_payload(certificates.read_statement(tmp_path / "c.jws"))
