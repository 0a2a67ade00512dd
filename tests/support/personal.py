"""Personal receipts without a vault: certificates that are signed here, and every way to change one."""

import json
import unicodedata

import jwt

from expunge.vault.certificates.commitments import Commitments
from expunge.vault.certificates.jws import UNKNOWN_TYPE
from expunge.vault.certificates.merkle import root
from expunge.vault.certificates.payload import payload_text
from expunge.vault.certificates.personal import issued

VAULT = "6c1e8f56-8a54-4b3c-9a1d-8f3b1d5c7e42"
OTHER_VAULT = "0d7f4c1e-2b6a-4f8e-b1c3-5a9e7d2f4b60"


def as_bytes(person):
    return unicodedata.normalize("NFC", person).encode()


def payload_for(leaves, number=2, name=VAULT, **says):
    """What a certificate says whose receipts have these leaves."""
    fields = {
        "version": 1,
        "iss": f"expunge vault {name}",
        "jti": f"{name}/{number}",
        "iat": 1_760_000_000,
        "kind": "unlearn",
        "request": number,
        "rows": len(leaves),
        "people": len(leaves),
        "epoch": number,
        "commitment": "ab" * 32,
        "previous": "cd" * 32,
        "schema": "ef" * 32,
        "software": "expunge 0.1.0",
        "not_covered": ["copies of the data outside the vault"],
        "receipts": root(leaves).hex(),
    }
    return {field: value for field, value in {**fields, **says}.items() if value is not None}


def signed(key, payload, **headers):
    """A certificate with any payload and header."""
    text = payload if isinstance(payload, str) else payload_text(payload)
    named = {"kid": key.public.name, "typ": "expunge-certificate+jws", **headers}
    return jwt.PyJWS().encode(text.encode(), key.key, algorithm="EdDSA", headers=named)


def receipts(key, crowd, *, number=2, name=VAULT, headers=(), **says):
    """The receipts of a crowd, in their order, of a request of this number to the vault of this name."""
    ids = [as_bytes(person) for person in crowd]
    of = Commitments(b"k" * 32, name, number)
    leaves = sorted(of.of(ids))
    certificate = signed(key, payload_for(leaves, number, name, **says), **dict(headers))
    return issued(of, leaves, ids, certificate)


def unknown(key, person, **says):
    """The statement that an id was never there."""
    fields = {"kind": "unknown", "rows": 0, "head": "12" * 32, **says}
    [made] = receipts(key, [person], headers={"typ": UNKNOWN_TYPE}, **fields)
    return made


def changed(receipt, **fields):
    """A receipt's file with other fields; None leaves a field out."""
    content = {**json.loads(receipt.to_json()), **fields}
    return json.dumps({name: value for name, value in content.items() if value is not None})
