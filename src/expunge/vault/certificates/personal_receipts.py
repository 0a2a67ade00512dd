"""Personal receipts: the proof for one person, who can check it offline. It does not contain the id.

A receipt proves that the operator signed that a request to a vault was about this id. The certificate has the root of a
Merkle tree over the commitments to everybody in the request, and the receipt leads from one commitment to the root.
"""

import hashlib
import importlib.resources
import json
import re
import uuid
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidCertificate, InvalidFile
from ...saving import files
from ...tables.ids import id_bytes
from . import encodings
from .commitments import HASH_BYTES, SALT_BYTES, Commitments, MerkleTree, person_commitment, root_from_path
from .encodings import MAX_SAFE_INTEGER, parse_plain_json


def offline_checker_page() -> str:
    """Return the HTML page that checks receipts in a browser, without a network; ASCII, so its bytes never vary."""
    return importlib.resources.files(__package__).joinpath("check.html").read_text("ascii")


if TYPE_CHECKING:
    from .jws import PublicKey

RECEIPT_TYPE, RECEIPT_VERSION = "expunge-receipt", 1
UNKNOWN_KIND = "unknown"
RECEIPT_KINDS = ("unlearn", "rectify", "add", "readmit", UNKNOWN_KIND)  # kinds of requests that have receipts
MAX_RECEIPT_BYTES = 10**6
_RECEIPT_FIELDS = {"type", "version", "vault", "request", "salt", "index", "path", "certificate"}
_MAX_PATH_LENGTH = 53
_SHA256_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PersonalReceipt:
    """The receipt of one person for a request."""

    vault: str  # the vault's name, a UUID
    request: int
    salt: bytes
    index: int  # of the commitment among the leaves
    path: tuple[bytes, ...]
    certificate: str

    @property
    def name(self) -> str:
        """A name for its file that reveals nothing and differs for every receipt and type of statement."""
        typ = self.certificate.partition(".")[
            0
        ].encode()  # a person can be readmitted and unknown as of the same request
        return hashlib.sha256(b"expunge receipt" + self.salt + typ).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the receipt as the text of a file."""
        fields = {
            "type": RECEIPT_TYPE,
            "version": RECEIPT_VERSION,
            "vault": self.vault,
            "request": self.request,
            "salt": encodings.encode_base64url(self.salt),
            "index": self.index,
            "path": [encodings.encode_base64url(sibling) for sibling in self.path],
            "certificate": self.certificate,
        }
        return json.dumps(fields, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> "PersonalReceipt":
        """Parse a receipt, which anyone may have written."""
        if len(data) > MAX_RECEIPT_BYTES:
            raise _not_a_receipt(f"it has more than {MAX_RECEIPT_BYTES:,} bytes")
        try:
            text = data.decode() if isinstance(data, bytes) else data
            fields = parse_plain_json(text)
        except (ValueError, RecursionError):
            raise _not_a_receipt("it is not plain JSON in UTF-8") from None
        if not isinstance(fields, dict) or fields.get("type") != RECEIPT_TYPE:
            raise _not_a_receipt(f"it has no type {RECEIPT_TYPE!r}")
        if _require_whole(fields.get("version"), "version") != RECEIPT_VERSION:
            raise _not_a_receipt(f"its version is not {RECEIPT_VERSION}; check it with the software that made it")
        if fields.keys() != _RECEIPT_FIELDS:
            raise _not_a_receipt(f"its fields must be {', '.join(sorted(_RECEIPT_FIELDS))}")
        if not isinstance(path := fields["path"], list) or len(path) > _MAX_PATH_LENGTH:
            raise _not_a_receipt(f"its path must be a list of at most {_MAX_PATH_LENGTH} hashes")
        return cls(
            vault=_require_uuid(fields["vault"]),
            request=_require_whole(fields["request"], "request", least=1),
            salt=_require_bytes(fields["salt"], "salt", SALT_BYTES),
            index=_require_whole(fields["index"], "index"),
            path=tuple(_require_bytes(sibling, "path", HASH_BYTES) for sibling in path),
            certificate=_require_ascii(fields["certificate"]),
        )


def read_receipt(path: Path) -> PersonalReceipt:
    """Read a receipt from a file."""
    try:
        return PersonalReceipt.from_json(files.read(path, max_bytes=MAX_RECEIPT_BYTES))
    except InvalidFile as error:  # it is too large
        raise InvalidCertificate(str(error)) from None


def build_receipts(
    commitments: Commitments, leaves: Sequence[bytes], ids: Sequence[bytes], certificate: str
) -> list[PersonalReceipt | None]:
    """Return the receipts of these ids, with None for an id that was not in the request.

    Parameters
    ----------
    commitments : Commitments
        The request's salts and commitments.
    leaves : sequence of bytes
        The commitments to everybody in the request, sorted.
    ids : sequence of bytes
        Ids in their canonical form (UTF-8, NFC).
    certificate : str
        The request's certificate, whose payload has the root over ``leaves``.
    """
    tree = MerkleTree(leaves)

    def build(person: bytes, leaf: bytes) -> PersonalReceipt | None:
        index = bisect_left(leaves, leaf)
        if index == len(leaves) or leaves[index] != leaf:
            return None
        return PersonalReceipt(
            commitments.vault, commitments.request, commitments.salt(person), index, tree.path(index), certificate
        )

    return [build(person, leaf) for person, leaf in zip(ids, commitments.compute(ids), strict=True)]


def check_receipt(receipt: bytes | str, id: str | int, public_key_pem: bytes) -> dict[str, Any]:  # noqa: A002
    """Check a personal receipt, offline, and return what its certificate says.

    Parameters
    ----------
    receipt : bytes or str
        The text of the receipt's file.
    id : str or int
        The id that the receipt should be for.
    public_key_pem : bytes
        The public key that must have signed it, or several, one PEM block after the other. Anyone can make a key: make
        sure that it is the operator's.
    """
    from . import jws

    return verify_receipt(
        PersonalReceipt.from_json(receipt), id, jws.parse_public_keys(public_key_pem, "public_key_pem")
    )


def verify_receipt(receipt: PersonalReceipt, person: str | int, keys: Sequence["PublicKey"]) -> dict[str, Any]:
    """Return the payload of the certificate in a receipt if one of these keys signed it and it is about this id."""
    from . import jws

    payload = jws.verify_statement(receipt.certificate, keys, types=(jws.CERTIFICATE_TYPE, jws.UNKNOWN_TYPE))
    [canonical_id] = id_bytes(person, fold_case=payload.get("fold_case") is True)
    name, request = payload.get("jti"), payload.get("request")
    if (name, request) != (f"{receipt.vault}/{receipt.request}", receipt.request) or type(request) is not int:
        raise InvalidCertificate("the certificate in this receipt is of another request, or of another vault")
    kind, people, root = payload.get("kind"), payload.get("people"), payload.get("receipts")
    if kind not in RECEIPT_KINDS or (kind == UNKNOWN_KIND) != (
        jws.unverified_header(receipt.certificate)["typ"] == jws.UNKNOWN_TYPE
    ):
        raise InvalidCertificate("the certificate in this receipt is of a kind that has no receipts")
    if (
        type(people) is not int
        or people > MAX_SAFE_INTEGER
        or not isinstance(root, str)
        or not _SHA256_HEX.fullmatch(root)
    ):
        raise InvalidCertificate("the certificate in this receipt has no root of receipts")
    leaf = person_commitment(receipt.salt, receipt.vault, receipt.request, canonical_id)
    try:
        actual_root = root_from_path(leaf, receipt.index, people, receipt.path)
    except ValueError:
        raise InvalidCertificate(f"the path in this receipt does not fit a certificate of {people:,} people") from None
    if actual_root.hex() != root:
        raise InvalidCertificate("this is not a receipt for this id, or its salt or path was changed")
    return payload


def _not_a_receipt(why: str) -> InvalidCertificate:
    return InvalidCertificate(f"this is not a receipt of a vault: {why}")


def _require_whole(value: object, name: str, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MAX_SAFE_INTEGER:
        raise _not_a_receipt(f"its {name} must be a whole number of at least {least}")
    return value


def _require_bytes(value: object, name: str, count: int) -> bytes:
    try:
        data = encodings.decode_base64url(value)
    except ValueError:
        data = b""
    if len(data) != count:
        raise _not_a_receipt(f"its {name} must be {count} bytes in base64url")
    return data


def _require_uuid(value: object) -> str:
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise _not_a_receipt("its vault must be a UUID in lower case")


def _require_ascii(value: object) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise _not_a_receipt("its certificate must be a compact JWS")
    return value
