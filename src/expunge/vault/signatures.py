"""Signatures: the part of an audit that checks every key and every certificate that the ledger records.

Every payload is computed anew from the records of its request. The newest commitment is compared with the state by the
audit of the model; older ones cannot be, because their salts are gone. The ledger is read as a stream: what is kept in
memory are the requests that are not certified yet, and the names of the files in the folder of certificates.
"""

from collections.abc import Callable, Iterable, Sequence
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
from .ledger.records import DONE, KEY, SIGNATURE, START, Position, Record

if TYPE_CHECKING:
    from .writer import Writer


def check_signatures(writer: "Writer", read: Callable[[], Iterable[Record]]) -> str:
    """Check that the newest key of its time signed each certificate, which says what its records say.

    The files that people take away are compared as well: one that differs from the ledger is an error, one that is
    missing is a note, because people may have taken it away.
    """
    vault, folder = writer.identity.vault, writer.places.certificates
    names = {name for name in files.names(folder) if name.endswith(".jws")} if folder.is_dir() else set()
    uncertified = dict[int, tuple[Record, Record | None]]()  # requests, and that they are done
    keys, restores, after = list[PublicKey](), list[Record](), START
    signed = unendorsed = missing = lost_leaves = 0
    for record in read():
        if record.is_request:
            uncertified[record.request] = record, None
            lost_leaves += not _can_issue(writer.leaves, record)
        elif record.kind == KEY:
            unendorsed += not _introduced(vault, record, after, keys)
            keys.insert(0, PublicKey.of(str(record.body["x"])))
        elif record.kind == DONE:
            asked, _ = uncertified[record.request]
            certificate_payload(vault, asked, record)  # refuses what no vault writes
            uncertified[record.request] = asked, record
            restores += [asked] if asked.kind == "restore" else []
        elif record.kind == SIGNATURE:
            asked, done = uncertified.pop(record.request)
            text = str(record.body["certificate"])
            if done is None:
                raise LookupError(f"request {record.request} is certified and was never done")
            if payload_text(jws.checked(text, keys[:1])) != certificate_payload(vault, asked, done):
                what = f"the certificate of request {record.request} says something else than the ledger"
                raise InvalidCertificate(what)
            signed += 1
            path = writer.notary.path(record.request)
            missing += path.name not in names
            if writer.notary.is_exported(record.request, text):
                names.discard(path.name)
        after = record.end
    _check_public(writer.places.public, keys)
    if names:
        _check_others(writer, [folder / name for name in sorted(names)], keys, read)
    notes = [f"{signed} signatures fit"]
    if unendorsed:
        notes.append(f"{unendorsed} of the keys came without the word of the key before, which was lost")
    if missing:
        notes.append(f"{missing} of their files are missing from {folder}; the ledger has them")
    if lost_leaves:
        notes.append(f"{lost_leaves} of the files of leaves are missing from {writer.places.leaves}, or damaged")
    if waiting := sum(done is not None and not _is_restored(asked, restores) for asked, done in uncertified.values()):
        notes.append(f"{waiting} wait for the signing key")
    return "; ".join(notes)


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


def _check_others(
    writer: "Writer", paths: Sequence[Path], keys: Sequence[PublicKey], read: Callable[[], Iterable[Record]]
) -> None:
    """Refuse files among the certificates that are not, byte for byte, the ledger's certificate of that name.

    Harmless are, under a name that is no request's number: other statements of this vault (a head) and copies of a
    certificate; and a certificate that was written and not recorded, because its request was interrupted between them.
    """
    payloads = dict[Path, dict[str, object]]()
    for path in paths:
        try:
            text = jws.read(path)
            typ = jws.type_of(text)
            payload = jws.checked(text, keys, types=[typ])
        except ExpungeError:
            raise _foreign(path) from None
        if payload.get("iss") != issuer(writer.identity.vault):
            raise _foreign(path)
        if path.stem.isdecimal() and (typ != jws.TYPE or payload.get("request") != int(path.stem)):
            raise _foreign(path)  # whoever takes the file of one request gets the certificate of another
        if typ == jws.TYPE:
            payloads[path] = payload
    asked, done = dict[object, Record](), dict[object, Record]()
    wanted = {payload.get("request") for payload in payloads.values()}
    for record in read() if payloads else ():
        if record.request in wanted and (record.is_request or record.kind == DONE):
            (asked if record.is_request else done)[record.request] = record
    for path, payload in payloads.items():
        number = payload.get("request")
        if number in asked and number in done:
            expected = certificate_payload(writer.identity.vault, asked[number], done[number])
            known = payload_text(payload) == expected
        else:
            known = number in asked and payload.get("previous") == asked[number].end.hash
        if not known:
            raise InvalidCertificate(
                f"{path} is a certificate of this vault that its ledger does not know: an older copy of "
                "folder and ledger was put back, or records were taken from it; put the newest back"
            )


def _foreign(path: Path) -> InvalidCertificate:
    return InvalidCertificate(
        f"{path} was changed, or is no certificate of this vault: remove it; the ledger has the certificates"
    )


def _can_issue(leaves: Leaves, record: Record) -> bool:
    """Whether the receipts of a request, if it has any, can be made again."""
    if "receipts" not in record.body or record.body["people"] <= 1:
        return True
    try:
        wanted = str(record.body["receipts"])
        return root(leaves.read(record.request, wanted)).hex() == wanted
    except (OSError, ExpungeError):
        return False


def _is_restored(asked: Record, restores: Iterable[Record]) -> bool:
    """Whether an old copy of the folder was put back before the request was certified, so that a restore did it."""
    return any(int(restore.body.get("since", 0)) < asked.request < restore.request for restore in restores)
