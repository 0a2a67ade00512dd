"""Receipts, certificates and files that are not what they should be: each must be refused in words."""

import base64
import uuid

from .personal import VAULT

B64 = base64.urlsafe_b64encode(bytes(31) + b"\1").rstrip(b"=").decode()

HEADERS = [{"typ": "JWT"}, {"typ": "expunge-head+jws"}, {"kid": "another"}, {"more": 1}, {"crit": ["b64"], "b64": True}]

# What a signed payload says; None leaves the field out.
PAYLOADS = [
    {"receipts": None}, {"receipts": 5}, {"receipts": "AB" * 32}, {"receipts": "ab" * 31}, {"people": None},
    {"people": True}, {"people": 1.5}, {"people": "1"}, {"people": 0}, {"people": -1}, {"people": 10**400},
    {"people": 2}, {"jti": None}, {"jti": []}, {"request": 3}, {"request": "2"}, {"kind": {}}, {"kind": None},
    {"kind": []}, {"kind": "train"}, {"kind": "unknown"}, {"kind": "toString"},
]  # fmt: skip

# In the text of a signed payload of one person in request 1: what is there, and what it is replaced by.
PAYLOAD_TEXTS = [
    ('"people":1', '"people":1.0'), ('"people":1', '"people":1e0'), ('"request":1', '"request":true'),
    ('"request":1', '"request":1.0'), ('"rows":1', '"rows":1e400'), ('"rows":1', '"rows":' + "9" * 400),
    ('"rows":1', '"rows":' + "[" * 25 + "]" * 25), ('"rows":1', '"rows":' + "[" * 500 + "]" * 500),
    ('"people":1', '"people":2,"people":1'), ('"rows":1', '"rows":{"a":1,"\\u0061":1}'),
]  # fmt: skip

# In the text of a receipt.
TEXTS = [
    ('"index": ', '"index": 1.5, "index": '), ('"version": 1', '"version": 1, "version": 1'),
    ('"path": [', '"path": [1e5], "path": ['), ('"version": 1', '"version": 1, "\\u0076ersion": 1'),
]  # fmt: skip

# Ids that are the same in one case, and two that are not.
FOLDED = [
    ("Alice", "aLICE"), ("stra\u00dfe", "STRASSE"), ("strasse", "STRA\u1e9eE"),
    ("\u0131\u015fIK", "\u0131\u015eik"),
    ("\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3"),
    ("\u13a0", "\uab70"), ("\ufb01", "FI"), ("\u1fb3", "\u0391\u0399"),
]  # fmt: skip
NOT_FOLDED = ("i\u015fik", "\u0131\u015f\u0131k")

# Fields of a receipt's file.
FIELDS = [
    {"type": None}, {"type": "other"}, {"version": None}, {"version": 2}, {"version": "1"}, {"version": True},
    {"vault": None}, {"vault": 5}, {"vault": VAULT.upper()}, {"vault": "{" + VAULT + "}"}, {"vault": "../.."},
    {"vault": uuid.UUID(VAULT).hex}, {"vault": "\ud800"}, {"request": 0}, {"request": -1}, {"request": 2.0},
    {"request": True}, {"request": 2**53}, {"request": 10**400}, {"request": "2"}, {"salt": None}, {"salt": 1},
    {"salt": ""}, {"salt": B64 + "="}, {"salt": B64[:-1]}, {"salt": B64[:-1] + "F"}, {"salt": "+" + B64[1:]},
    {"salt": B64 + "\n"}, {"salt": "\u00e9" * 43}, {"index": -1}, {"index": 0.0}, {"index": False}, {"index": []},
    {"path": None}, {"path": {}}, {"path": "x"}, {"path": [1]}, {"path": [None]}, {"path": [[B64]]},
    {"path": [B64] * 54}, {"certificate": None}, {"certificate": 1}, {"certificate": "\u00e9.b.c"}, {"more": 1},
    {"certificate": []}, {"__proto__": {}}, {"index": 1e400},
]  # fmt: skip


def pems(good, other):
    """Files that hold a public key, and whether they are ones; ``other`` is a private key in PEM."""
    begin, body, end = good.strip().split("\n")
    right = [
        good.replace("\n", "\r\n"), begin + body + end, "key:\n" + good, other + good, good + other, body + end + good,
        f"{begin}\n{body[:9]}\n\t{body[9:]}\n{end}", "-" + good, good + begin,
    ]  # fmt: skip
    wrong = [
        f"{begin}\n!!!\n{end}\n{good}", f"{good}{begin}\n{end}", begin + good, good.replace("=", ""),
        f"{begin}\nProc-Type: 4\n\n{body}\n{end}", f"{begin}\n{same_bytes(body[:-1])}=\n{end}",
        f"{begin}\n{body}{body}\n{end}", f"{begin}\u00a0{body}{end}", good.lower(), good[:-6], "",
    ]  # fmt: skip
    return [*((text, True) for text in right), *((text, False) for text in wrong)]


def files(good):
    """Whole files; ``good`` is the text of one that would pass."""
    return [
        b"", b"null", b"[]", b"\xff", b"\xef\xbb\xbf" + good.encode(), b"[" * 10**6, b'{"a":' * 10**5,
        b'{"type": NaN}', b" " * 10**6 + good.encode(), b'{"version": ' + b"9" * 5000 + b"}",
        good.encode("utf-16"), good.encode()[:-3],
    ]  # fmt: skip


def same_bytes(text):
    """Base64url of 32 or 64 bytes with a bit set that means nothing: lenient readers decode it to the same bytes."""
    return text[:-1] + chr(ord(text[-1]) + 1)  # the last is one of A, Q, g, w or of A, E, I, M ... 8
