"""Issuing: receipts for people, made from the ledger and the vault's key when somebody names an id; none is kept."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidFile, InvalidInput, InvalidSetting, Unfinished, UnknownId, positions
from .certificates.commitments import Commitments
from .certificates.merkle import root
from .certificates.notary import now
from .certificates.payload import SOFTWARE, statement
from .certificates.personal import UNKNOWN, PersonalReceipt, issued
from .ledger.records import SIGNATURE, Record
from .requests.naming import holdings

if TYPE_CHECKING:
    from .writer import Writer

_UNKNOWN_SAYS = "the vault holds no row of this id, and the id is not among those that it has erased"


def issue(writer: "Writer", ids: Sequence[bytes], request: int | None) -> list[PersonalReceipt]:
    """The receipts of people, in the order asked: of this request, or of those that erased them."""
    records, _ = writer.ledger.read()
    asked = {record.request: record for record in records if record.is_request}
    certificates = {r.request: str(r.body["certificate"]) for r in records if r.kind == SIGNATURE}
    numbers = [request] * len(ids) if request is not None else _erased_by(writer, ids)
    found = dict[int, PersonalReceipt]()
    for number in dict.fromkeys(numbers):
        places = [k for k, one in enumerate(numbers) if one == number]
        if number not in asked or "receipts" not in asked[number].body:
            raise InvalidSetting(f"there is no request {number} that gives receipts; expunge log tells which there are")
        if number not in certificates:
            raise Unfinished(f"request {number} is not certified yet: ask again once the signing key is there")
        mine = [ids[k] for k in places]
        made = issued(*_tree(writer, asked[number], mine), mine, certificates[number])
        found |= {k: one for k, one in zip(places, made, strict=True) if one is not None}
    if missing := sorted(set(range(len(ids))) - found.keys()):
        raise UnknownId(
            f"ids that request {request} was not about: {len(missing):,} of {len(ids):,}, {positions(missing)}"
        )
    return [found[k] for k in range(len(ids))]


def _erased_by(writer: "Writer", ids: Sequence[bytes]) -> list[int]:
    """The requests that erased people, all of whom must be erased."""
    held = [holding.request for holding in holdings(writer.site, ids)]
    if others := [k for k, number in enumerate(held) if number is None]:
        raise UnknownId(
            f"ids that are not erased: {len(others):,} of {len(ids):,}, {positions(others)}; "
            "for a receipt of another request, name it (--request, request=)"
        )
    return [number for number in held if number is not None]


def _tree(writer: "Writer", record: Record, ids: Sequence[bytes]) -> tuple[Commitments, list[bytes]]:
    """The commitments of a request, and its leaves. If there is only one, it is of one of these ids, or of none."""
    of = Commitments(writer.identity.key, writer.identity.vault, record.request)
    wanted, people = str(record.body["receipts"]), int(record.body["people"])
    if people == 1:
        return of, [leaf for leaf in of.of(ids) if root([leaf]).hex() == wanted]
    leaves = writer.leaves.read(record.request)
    if len(leaves) != people or root(leaves).hex() != wanted:
        raise InvalidFile(f"the leaves of request {record.request} are damaged: no receipt of it can be made")
    return of, leaves


def attest(writer: "Writer", ids: Sequence[bytes]) -> list[PersonalReceipt]:
    """Signed statements that these ids are not in the vault, which must be true."""
    held = holdings(writer.site, ids)
    if known := [k for k, holding in enumerate(held) if holding.state != UNKNOWN]:
        raise InvalidInput(f"ids that the vault knows: {len(known):,} of {len(ids):,}, {positions(known)}")
    from .certificates.jws import UNKNOWN_TYPE

    signer, vault, newest = writer.notary.signer(), writer.identity.vault, writer.newest
    of = Commitments(writer.identity.key, vault, newest)
    said = {"kind": UNKNOWN, "rows": 0, "people": 1, "software": SOFTWARE, "says": _UNKNOWN_SAYS}

    def one(id_: bytes) -> PersonalReceipt:
        fields = {**said, "receipts": root(of.of([id_])).hex(), "head": writer.ledger.tip.hash}
        text = signer.sign(statement(vault, newest, now(), fields), UNKNOWN_TYPE)
        return PersonalReceipt(vault, newest, of.salt(id_), 0, (), text)

    return [one(id_) for id_ in ids]
