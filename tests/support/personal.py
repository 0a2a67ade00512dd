"""Personal receipts without a vault: certificates that are signed here, and every way to change one."""

import json
import unicodedata
from hashlib import sha256

import jwt

from expunge.tables.ids import id_bytes
from expunge.vault.certificates.commitments import Commitments, merkle_root
from expunge.vault.certificates.jws import UNKNOWN_TYPE
from expunge.vault.certificates.payload import canonical_json
from expunge.vault.certificates.personal_receipts import PersonalReceipt, build_receipts

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
        "receipts": merkle_root(leaves).hex(),
    }
    return {field: value for field, value in {**fields, **says}.items() if value is not None}


def signed(key, payload, **headers):
    """A certificate with any payload and header."""
    text = payload if isinstance(payload, str) else canonical_json(payload)
    named = {"kid": key.public.thumbprint, "typ": "expunge-certificate+jws", **headers}
    return jwt.PyJWS().encode(text.encode(), key.key, algorithm="EdDSA", headers=named)


def receipts(key, crowd, *, number=2, name=VAULT, headers=(), **says):
    """The receipts of a crowd, in their order, of a request of this number to the vault of this name."""
    ids = [as_bytes(person) for person in crowd]
    of = Commitments(b"k" * 32, name, number)
    leaves = sorted(of.compute(ids))
    certificate = signed(key, payload_for(leaves, number, name, **says), **dict(headers))
    return build_receipts(of, leaves, ids, certificate)


def texted(key, person, text, by):
    """The receipt of one person in request 1, with a text in its payload replaced before it is signed."""
    of, ids = Commitments(b"k" * 32, VAULT, 1), [as_bytes(person)]
    leaves = of.compute(ids)
    said = canonical_json(payload_for(leaves, 1))
    assert text in said
    [made] = build_receipts(of, leaves, ids, signed(key, said.replace(text, by)))
    return made


def folding(key, person):
    """The receipt of one person of a vault that folds the case of ids."""
    of, ids = Commitments(b"k" * 32, VAULT, 2), id_bytes(person, fold_case=True)
    leaves = of.compute(ids)
    [made] = build_receipts(of, leaves, ids, signed(key, payload_for(leaves, fold_case=True)))
    return made


def crowded(key, crowd, people=2):
    """Receipts of many, of a certificate of few: a path that leads down to the right is as long as one likes."""
    of, ids = Commitments(b"k" * 32, VAULT, 2), [as_bytes(person) for person in crowd]
    *hashes, below = [sha256(b"\0" + leaf).digest() for leaf in of.compute(ids)]
    beside = [below]  # of each leaf but the last: what is right of it, from the last to the first
    for one in reversed(hashes):
        beside.append(sha256(b"\1" + one + beside[-1]).digest())
    whole = beside.pop()
    certificate = signed(key, payload_for([b""] * people, receipts=whole.hex()))
    paths = [(beside[len(hashes) - 1 - k], *reversed(hashes[:k])) for k in range(len(hashes))]
    return [
        PersonalReceipt(VAULT, 2, of.salt(one), 0, path, certificate) for one, path in zip(ids, paths, strict=False)
    ]


def unknown(key, person, **says):
    """The statement that an id was never there."""
    fields = {"kind": "unknown", "rows": 0, "head": "12" * 32, **says}
    [made] = receipts(key, [person], headers={"typ": UNKNOWN_TYPE}, **fields)
    return made


def changed(receipt, **fields):
    """A receipt's file with other fields; None leaves a field out."""
    content = {**json.loads(receipt.to_json()), **fields}
    return json.dumps({name: value for name, value in content.items() if value is not None})
