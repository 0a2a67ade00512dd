"""Signatures: the part of an audit that checks every key and every certificate that the ledger tells of.

Every payload is computed anew from the records of its request. The newest commitment is compared with the state by the
audit of the model; older ones cannot be, because their salts are gone.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExpungeError, InvalidCertificate
from ..saving import files
from .certificates import jws
from .certificates.jws import PublicKey
from .certificates.keyring import KEY_TYPE, key_payload
from .certificates.merkle import root
from .certificates.payload import certificate_payload, issuer, payload_text
from .disk.leaves import Leaves
from .ledger.history import history
from .ledger.records import DONE, KEY, SIGNATURE, START, Position, Record, of_kind, requests_in

if TYPE_CHECKING:
    from .writer import Writer


def check_signatures(writer: "Writer", records: Sequence[Record]) -> str:
    """Check that the newest key of its time signed each certificate, which says what its records say."""
    vault, public = writer.identity.vault, writer.places.public
    asked, done = requests_in(records), of_kind(records, DONE)
    payloads = {request: certificate_payload(vault, asked[request], record) for request, record in done.items()}
    keys, signed, unendorsed, after = list[PublicKey](), dict[int, str](), 0, START
    for record in records:
        if record.kind == KEY:
            unendorsed += not _introduced(vault, record, after, keys)
            keys.insert(0, PublicKey.of(str(record.body["x"])))
        elif record.kind == SIGNATURE:
            text = signed[record.request] = str(record.body["certificate"])
            if payload_text(jws.checked(text, keys[:1])) != payloads[record.request]:
                what = f"the certificate of request {record.request} says something else than the ledger"
                raise InvalidCertificate(what)
        after = record.end
    _check_public(public, keys)
    _check_others(writer, keys, {record.end.hash for record in asked.values()})
    told = [f"{len(signed)} signatures fit"]
    if unendorsed:
        told.append(f"{unendorsed} of the keys came without the word of the key before, which was lost")
    told += _missing(writer, asked, signed)
    if waiting := sum(request.state == "done" for request in history(records)):
        told.append(f"{waiting} wait for the signing key")
    return "; ".join(told)


def _introduced(vault: str, record: Record, after: Position, keys: Sequence[PublicKey]) -> bool:
    """Check what a key and the one before it signed; whether that one did."""
    body, newest = record.body, keys[0].name if keys else ""
    payload = key_payload(vault, after, str(body["time"]), str(body["x"]), newest)
    for text, by in ((body["statement"], PublicKey.of(str(body["x"]))), (body["endorsed"], keys[0] if keys else None)):
        if text and (by is None or payload_text(jws.checked(str(text), [by], types=(KEY_TYPE,))) != payload):
            raise InvalidCertificate("the record of a key says something else than its signature")
    if not body["statement"] or body["previous"] != newest:
        raise InvalidCertificate(
            "the record of a key is not signed by that key, or replaces another than the one before"
        )
    return bool(body["endorsed"]) or not keys


def _check_public(path: Path, keys: Sequence[PublicKey]) -> None:
    """Refuse a file of public keys that says something else than the ledger."""
    known, there = [key.name for key in keys], [key.name for key in jws.load_public(path)]
    if foreign := [name for name in there if name not in known]:
        raise InvalidCertificate(f"{path} holds keys that the ledger does not know: {', '.join(foreign)}")
    if there != known:
        raise InvalidCertificate(f"{path} does not hold the keys that the ledger knows: remove it, it is made again")


def _check_others(writer: "Writer", keys: Sequence[PublicKey], accepted: Set[str]) -> None:
    """Refuse a ledger that lacks a request whose certificate, signed by this vault, lies beside it."""
    folder = writer.places.certificates
    for name in sorted(files.names(folder)) if folder.is_dir() else ():
        try:
            payload = jws.checked(jws.read(folder / name), keys)
        except (OSError, ExpungeError):  # no certificate, or none that a key of this vault has signed
            continue
        if payload.get("iss") == issuer(writer.identity.vault) and payload.get("previous") not in accepted:
            raise InvalidCertificate(
                f"{folder / name} is a certificate of this vault that its ledger does not know: an older copy of "
                "folder and ledger was put back, or records were taken from it; put the newest back"
            )


def _missing(writer: "Writer", asked: Mapping[int, Record], signed: Mapping[int, str]) -> Iterator[str]:
    """What is lost without harm to the vault: copies of certificates, and what receipts are made of."""
    if lost := sum(not _exported(writer.notary.path(request), text) for request, text in signed.items()):
        yield f"{lost} of their files are missing from {writer.places.certificates}, or differ from the ledger"
    leaves = [record for record in asked.values() if "receipts" in record.body and record.body["people"] > 1]
    if lost := sum(not _rooted(writer.leaves, record) for record in leaves):
        yield f"{lost} of the files of leaves are missing from {writer.places.leaves}, or damaged"


def _rooted(leaves: Leaves, record: Record) -> bool:
    """Whether the receipts of a request can be made again."""
    try:
        wanted = str(record.body["receipts"])
        return root(leaves.read(record.request, wanted)).hex() == wanted
    except (OSError, ExpungeError):
        return False


def _exported(path: Path, certificate: str) -> bool:
    """Whether a certificate lies where people take it away."""
    try:
        return jws.read(path) == certificate
    except (OSError, ExpungeError):
        return False
