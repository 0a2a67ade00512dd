"""Personal receipts: a certificate for one person, who can check it offline. The id is not in it.

A receipt is the operator's signed word that a request to a vault was about this id: the certificate has the root of a
Merkle tree over the commitments to everybody in the request, and the receipt leads from one of them to the root.
"""

import hashlib
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
from ..tables.ids import id_bytes
from . import base64url
from .commitments import SALT_BYTES, Commitments, commitment
from .merkle import HASH_BYTES, Tree, root_from_path
from .plain import MOST_WHOLE, plain_json

if TYPE_CHECKING:
    from .jws import PublicKey

TYPE, VERSION = "expunge-receipt", 1
UNKNOWN = "unknown"
KINDS = ("unlearn", "rectify", "add", "readmit", UNKNOWN)  # what there are receipts for
MOST_BYTES = 10**6
_FIELDS = {"type", "version", "vault", "request", "salt", "index", "path", "certificate"}
_LONGEST_PATH = 53
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PersonalReceipt:
    """What one person gets of a request."""

    vault: str  # the vault's name, a UUID
    request: int
    salt: bytes
    index: int  # of the commitment in the tree
    path: tuple[bytes, ...]
    certificate: str

    @property
    def name(self) -> str:
        """A name for its file, which tells nothing, and which no other receipt has, nor a statement of another type."""
        typ = self.certificate.partition(".")[0].encode()  # who was readmitted is unknown as of the same request
        return hashlib.sha256(b"expunge receipt" + self.salt + typ).hexdigest()[:16]

    def to_json(self) -> str:
        """The receipt as a file's text."""
        fields = {
            "type": TYPE,
            "version": VERSION,
            "vault": self.vault,
            "request": self.request,
            "salt": base64url.encoded(self.salt),
            "index": self.index,
            "path": [base64url.encoded(one) for one in self.path],
            "certificate": self.certificate,
        }
        return json.dumps(fields, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> "PersonalReceipt":
        """Read a receipt, which anybody may have written."""
        if len(data) > MOST_BYTES:
            raise _no_receipt(f"it has more than {MOST_BYTES:,} bytes")
        try:
            text = data.decode() if isinstance(data, bytes) else data
            fields = plain_json(text)
        except (ValueError, RecursionError):
            raise _no_receipt("it is not plain JSON in UTF-8") from None
        if not isinstance(fields, dict) or fields.get("type") != TYPE:
            raise _no_receipt(f"it has no type {TYPE!r}")
        if _whole(fields.get("version"), "version") != VERSION:
            raise _no_receipt(f"its version is not {VERSION}; check it with the software that made it")
        if fields.keys() != _FIELDS:
            raise _no_receipt(f"its fields must be {', '.join(sorted(_FIELDS))}")
        if not isinstance(path := fields["path"], list) or len(path) > _LONGEST_PATH:
            raise _no_receipt(f"its path must be a list of at most {_LONGEST_PATH} hashes")
        return cls(
            vault=_uuid(fields["vault"]),
            request=_whole(fields["request"], "request", least=1),
            salt=_bytes(fields["salt"], "salt", SALT_BYTES),
            index=_whole(fields["index"], "index"),
            path=tuple(_bytes(one, "path", HASH_BYTES) for one in path),
            certificate=_ascii(fields["certificate"]),
        )


def read(path: Path) -> PersonalReceipt:
    """Read a receipt's file."""
    try:
        return PersonalReceipt.from_json(files.read(path, most=MOST_BYTES))
    except InvalidFile as error:  # it is too large
        raise InvalidCertificate(str(error)) from None


def issued(
    of: Commitments, leaves: Sequence[bytes], ids: Sequence[bytes], certificate: str
) -> list[PersonalReceipt | None]:
    """The receipts of these ids, or None for an id that was not in the request.

    Parameters
    ----------
    of : Commitments
        Those of the request.
    leaves : sequence of bytes
        The commitments to everybody in the request, sorted.
    ids : sequence of bytes
        Ids in their one form (UTF-8, NFC).
    certificate : str
        The request's certificate, whose payload has the root over ``leaves``.
    """
    tree = Tree(leaves)

    def one(person: bytes, leaf: bytes) -> PersonalReceipt | None:
        index = bisect_left(leaves, leaf)
        if index == len(leaves) or leaves[index] != leaf:
            return None
        return PersonalReceipt(of.vault, of.request, of.salt(person), index, tree.path(index), certificate)

    return [one(person, leaf) for person, leaf in zip(ids, of.of(ids), strict=True)]


def check_receipt(receipt: bytes | str, id: str | int, public_key_pem: bytes) -> dict[str, Any]:  # noqa: A002
    """Check a personal receipt, offline, and return what its certificate says.

    Parameters
    ----------
    receipt : bytes or str
        The text of the receipt's file.
    id : str or int
        Whose receipt it should be.
    public_key_pem : bytes
        The public key that must have signed it, or several, one PEM block after the other. Anybody can make a key: be
        sure that it is the operator's.
    """
    from . import jws

    return checked_receipt(PersonalReceipt.from_json(receipt), id, jws.public_keys(public_key_pem, "public_key_pem"))


def checked_receipt(receipt: PersonalReceipt, person: str | int, keys: Sequence["PublicKey"]) -> dict[str, Any]:
    """What the certificate in a receipt says, if one of these keys signed it and it is about this id."""
    from . import jws

    payload = jws.checked(receipt.certificate, keys, types=(jws.TYPE, jws.UNKNOWN_TYPE))
    [named] = id_bytes(person, fold_case=payload.get("fold_case") is True)
    said = payload.get("jti"), payload.get("request")
    if said != (f"{receipt.vault}/{receipt.request}", receipt.request) or type(said[1]) is not int:
        raise InvalidCertificate("the certificate in this receipt is of another request, or of another vault")
    kind, people, root = payload.get("kind"), payload.get("people"), payload.get("receipts")
    if kind not in KINDS or (kind == UNKNOWN) != (jws.header(receipt.certificate)["typ"] == jws.UNKNOWN_TYPE):
        raise InvalidCertificate("the certificate in this receipt is of a kind that there are no receipts for")
    if type(people) is not int or people > MOST_WHOLE or not isinstance(root, str) or not _HEX.fullmatch(root):
        raise InvalidCertificate("the certificate in this receipt has no root of receipts in it")
    leaf = commitment(receipt.salt, receipt.vault, receipt.request, named)
    try:
        found = root_from_path(leaf, receipt.index, people, receipt.path)
    except ValueError:
        raise InvalidCertificate(f"the path in this receipt does not fit a certificate of {people:,} people") from None
    if found.hex() != root:
        raise InvalidCertificate("this is not a receipt for this id, or its salt or path was changed")
    return payload


def _no_receipt(why: str) -> InvalidCertificate:
    return InvalidCertificate(f"this is not a receipt of a vault: {why}")


def _whole(value: object, name: str, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MOST_WHOLE:
        raise _no_receipt(f"its {name} must be a whole number of at least {least}")
    return value


def _bytes(value: object, name: str, count: int) -> bytes:
    try:
        found = base64url.decoded(value)
    except ValueError:
        found = b""
    if len(found) != count:
        raise _no_receipt(f"its {name} must be {count} bytes in base64url")
    return found


def _uuid(value: object) -> str:
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise _no_receipt("its vault must be a UUID in small letters")


def _ascii(value: object) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise _no_receipt("its certificate must be a compact JWS")
    return value
