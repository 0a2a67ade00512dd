"""What ``make jose`` has judged in another language: certificates of a real vault, and receipts, true and forged.

Run as ``python -m support.jose FOLDER``: writes the cases, each with the verdict of the checker in Python.
"""

import base64
import json
import random
import sys
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from expunge.errors import InvalidCertificate, InvalidFile, InvalidInput
from expunge.vault.certificates import jws
from expunge.vault.certificates.jws import UNKNOWN_TYPE, SigningKey
from expunge.vault.certificates.personal_receipts import RECEIPT_KINDS, PersonalReceipt, verify_receipt

from . import odd
from .personal import OTHER_VAULT, changed, crowded, folding, receipts, signed, texted, unknown
from .vaults import made, random_table

# The same in every run, so that what is drawn below hits the same places.
KEY, STRANGER = (SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([k]) * 32)) for k in (1, 2))
KEYS = KEY.public.pem().decode()
BOTH = STRANGER.public.pem().decode() + "comment\n" + KEYS


def certificates(folder):
    """The certificates of a vault, true and damaged."""
    vault = made(folder / "v.vault")
    vault.unlearn(["person-1", "person-2"])
    vault.add(random_table(["new-1"], seed=1))
    vault.rectify(random_table(["person-3"], seed=2))
    vault.readmit(["person-1"])
    pem = vault.places.public.read_text()
    for logged in vault.requests:
        text = logged.certificate
        yield {"name": logged.kind, "text": text, "key": pem, "payload": jws.verify_statement(text, keys_in(pem))}
        head, body, signature = text.split(".")
        for forged in (f"{head}.{body}.{signature[::-1]}", f"{head}.{body[:-4]}.{signature}"):
            yield {"name": "forged", "text": forged, "key": pem, "payload": None}


def keys_in(pem):
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem.encode())
        file.flush()
        return jws.load_public_keys(Path(file.name))


def case(name, file, person="4711", keys=KEYS, thumbprint=""):
    """A receipt's file, and what Python says of it."""
    data = file.encode() if isinstance(file, str) else file
    payload, refusal = None, None
    try:
        known = keys_in(keys)
        known = jws.select_pinned_key(known, thumbprint) if thumbprint else known
        payload = verify_receipt(PersonalReceipt.from_json(data), person, known)
    except (InvalidCertificate, InvalidFile, InvalidInput) as error:
        refusal = str(error)
    verdict = {"payload": payload, "refusal": refusal}
    text = base64.b64encode(data).decode()
    return {"name": name, "file": text, "id": person, "keys": keys, "thumbprint": thumbprint, **verdict}


def field_of(receipt, field):
    return json.loads(receipt.to_json())[field]


def true_ones():
    for size in (*range(1, 18), 1000):
        crowd = [str(k) for k in range(size)]
        made_ = receipts(KEY, crowd)
        for k in {0, size // 2, size - 1}:
            yield case(f"{k} of {size}", made_[k].to_json(), crowd[k])
    for kind in RECEIPT_KINDS[:-1]:
        yield case(kind, receipts(KEY, ["4711", "4712"], kind=kind)[0].to_json())
    yield case("unknown", unknown(KEY, "4711").to_json())


def issued_ones(folder):
    """What vaults issue themselves, with ids as they are and in one case."""
    for fold_case in (False, True):
        vault = made(folder / f"issued-{fold_case}.vault", fold_case=fold_case)
        number = vault.unlearn(["person-1", "person-2", "person-3"]).request
        given = vault.personal_receipts(["person-1", "person-2", "person-3"], request=number)
        given |= vault.attest_unknown(["nobody"])
        pem = vault.places.public.read_text()
        for owner, receipt in given.items():
            for person in (owner, owner.title(), "person-4"):
                yield case(f"issued, fold_case={fold_case}", receipt.to_json(), person, pem)
    for person in (
        "Zo\u00eb",
        "Zoe\u0308",
        "\U0001f600",
        " 4711 ",
        "\u202e\x07<b>",
        "\ufeff4711",
        "\u1100\u1161\u11a8",
    ):
        yield case(ascii(person), receipts(KEY, ["4711", person])[1].to_json(), person)
    for person, typed in odd.FOLDED:
        yield case(f"{person!a} as {typed!a}", folding(KEY, person).to_json(), typed)
    yield case("two keys", receipts(KEY, ["4711"])[0].to_json(), keys=BOTH)
    yield case("pinned", receipts(KEY, ["4711"])[0].to_json(), keys=BOTH, thumbprint=KEY.public.thumbprint)
    yield case("late request", receipts(KEY, ["4711"], number=2**53 - 1)[0].to_json())
    yield case("order and blanks", json.dumps(dict(reversed(json.loads(GOOD.to_json()).items())), indent=4))


GOOD = receipts(KEY, ["4711", *map(str, range(20))])[0]


def forged_ones():
    for person in ("4712", "4711 ", "", "0"):
        yield case(f"id {person!r}", GOOD.to_json(), person)
    yield case("other key", GOOD.to_json(), keys=STRANGER.public.pem().decode())
    yield case("no key", GOOD.to_json(), keys="nothing")
    yield case("pinned elsewhere", GOOD.to_json(), thumbprint=STRANGER.public.thumbprint)
    yield case("pinned other", GOOD.to_json(), keys=BOTH, thumbprint=STRANGER.public.thumbprint)
    yield case("kid of another", receipts(STRANGER, ["4711"], headers={"kid": KEY.public.thumbprint})[0].to_json())
    for fields in ({"request": 3}, {"vault": OTHER_VAULT}, {"index": 1}, {"index": 2**53 - 1}, {"path": []}):
        yield case(f"changed {fields}", changed(GOOD, **fields))
    for field in ("salt", "certificate"):
        yield case(f"other text of the same {field}", changed(GOOD, **{field: odd.same_bytes(field_of(GOOD, field))}))
    for fields in odd.FIELDS:
        yield case(f"field {ascii(fields)[:60]}", changed(GOOD, **fields))
    for headers in odd.HEADERS:
        yield case(f"header {headers}", receipts(KEY, ["4711"], headers=headers)[0].to_json())
    for says in odd.PAYLOADS:
        yield case(f"payload {str(says)[:60]}", receipts(KEY, ["4711"], **says)[0].to_json())
    for kind, typ in (("unknown", jws.CERTIFICATE_TYPE), ("unlearn", UNKNOWN_TYPE), ("toString", jws.CERTIFICATE_TYPE)):
        yield case(f"{kind} as {typ}", receipts(KEY, ["4711"], headers={"typ": typ}, kind=kind)[0].to_json())
    yield case("not the same in one case", folding(KEY, odd.NOT_FOLDED[0]).to_json(), odd.NOT_FOLDED[1])
    for text, by in odd.PAYLOAD_TEXTS:
        yield case(f"payload with {by[:60]}", texted(KEY, "4711", text, by).to_json())
    for text, by in odd.TEXTS:
        yield case(f"file with {by}", GOOD.to_json().replace(text, by))
    for person, receipt in zip("12345", crowded(KEY, "12345"), strict=False):
        yield case(f"{person} of a crowd", receipt.to_json(), person)
    for keys, _ in odd.pems(KEYS, STRANGER.pem().decode()):
        yield case(f"keys {ascii(keys)[:60]}", GOOD.to_json(), keys=keys)
    for payload in ("[]", "1", "", "{", '{"a": NaN}', "null"):
        yield case(f"signed {payload}", changed(GOOD, certificate=signed(KEY, payload)))
    for place, data in enumerate(odd.files(GOOD.to_json())):
        yield case(f"file {place}", data)


def damaged_ones(count=600):
    """A byte of the file changed, taken out or put in, anywhere."""
    drawn, good = random.Random(0), GOOD.to_json().strip().encode()  # no secret is drawn
    for k in range(count):
        place, byte = drawn.randrange(len(good)), drawn.choice(b'Aa0_-.=+ \n"{}[],:\\e\xff')
        middle = drawn.choice([bytes([byte]), b"", bytes([byte]) + good[place : place + 1]])
        yield case(f"damage {k} at {place}: {middle!r}", good[:place] + middle + good[place + 1 :])


def main(folder):
    with tempfile.TemporaryDirectory() as scratch:
        cases = {
            "certificates": list(certificates(Path(scratch))),
            "receipts": [*true_ones(), *issued_ones(Path(scratch)), *forged_ones(), *damaged_ones()],
        }
    (folder / "cases.json").write_text(json.dumps(cases))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
