"""Issuing: receipts for people, made from the ledger and the vault's key when somebody names an id; none is kept."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidCertificate, InvalidFile, InvalidInput, InvalidSetting, Unfinished, UnknownId, positions
from .certificates.commitments import Commitments
from .certificates.merkle import root
from .certificates.notary import now
from .certificates.payload import SOFTWARE, receipts_fields, statement
from .certificates.personal import UNKNOWN, PersonalReceipt, checked_receipt, issued
from .ledger.history import history
from .ledger.records import Record, requests_in
from .requests.naming import holdings

if TYPE_CHECKING:
    from .writer import Writer

_UNKNOWN_SAYS = "the vault holds no row of this id, and the id is not among those that it has erased"
_RESTORED = "was done when an old copy of the folder caught up: a certificate of that is there, and no receipts"


def issue(
    writer: "Writer", ids: Sequence[bytes], request: int | None, *, skip_unknown: bool
) -> dict[bytes, PersonalReceipt]:
    """The receipts of people, by their ids: of this request, or of those that erased them."""
    wanted = list(dict.fromkeys(ids))
    records, _ = writer.ledger.read()
    asked, logged = requests_in(records), {one.number: one for one in history(records)}
    by = {one: h.request for one, h in zip(wanted, holdings(writer.site, wanted), strict=True)}
    if request is not None:
        by = dict.fromkeys(wanted, request)
    found = dict[bytes, PersonalReceipt]()
    for number in {number for number in by.values() if number is not None}:
        if number in logged and (logged[number].kind == "restore" or logged[number].state == "restored"):
            raise InvalidSetting(f"request {number} {_RESTORED}")
        if number not in asked or "receipts" not in asked[number].body:
            raise InvalidSetting(f"there is no request {number} that gives receipts; expunge log tells which there are")
        if (certificate := logged[number].certificate) is None:
            raise Unfinished(f"request {number} is not certified yet: ask again once the signing key is there")
        mine = [one for one in wanted if by[one] == number]
        made = issued(*_tree(writer, asked[number], mine), mine, certificate)
        there = {one: receipt for one, receipt in zip(mine, made, strict=True) if receipt is not None}
        for one in list(there)[:1]:  # all have the same certificate, which somebody may have changed in the ledger
            _check(writer, one, there[one])
        found |= there
    if not skip_unknown and (missing := [k for k, one in enumerate(ids) if one not in found]):
        raise _not_there(request, missing, len(ids))
    return found


def _check(writer: "Writer", one: bytes, receipt: PersonalReceipt) -> None:
    """Refuse to hand out a receipt that would not pass."""
    from .certificates.jws import PublicKey

    try:
        checked_receipt(receipt, one.decode(), [PublicKey.of(x) for x in writer.notary.known])
    except InvalidCertificate as error:
        raise InvalidFile(
            f"{writer.ledger.path} was changed: no receipt of request {receipt.request}: {error}"
        ) from None


def _not_there(request: int | None, missing: Sequence[int], of: int) -> UnknownId:
    what, way_out = f"that request {request} was not about", ""
    if request is None:
        what, way_out = "that are not erased", "; for a receipt of another request, name it (--request, request=)"
        way_out += "; --attest-unknown (attest_unknown) signs that an id is not in the vault"
    return UnknownId(f"ids {what}: {len(missing):,} of {of:,}, {positions(missing)}{way_out}")


def _tree(writer: "Writer", record: Record, ids: Sequence[bytes]) -> tuple[Commitments, list[bytes]]:
    """The commitments of a request, and its leaves. If there is only one, it is of one of these ids, or of none."""
    of = Commitments(writer.identity.key, writer.identity.vault, record.request)
    wanted, people = str(record.body["receipts"]), int(record.body["people"])
    if people == 1:
        return of, [leaf for leaf in of.of(ids) if root([leaf]).hex() == wanted]
    leaves = writer.leaves.read(record.request, wanted)
    if len(leaves) != people or root(leaves).hex() != wanted:
        raise InvalidFile(f"the leaves of request {record.request} are damaged: no receipt of it can be made")
    return of, leaves


def attest(writer: "Writer", ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
    """Signed statements that these ids are not in the vault, which must be true."""
    held = holdings(writer.site, ids)
    if known := [k for k, holding in enumerate(held) if holding.state != UNKNOWN]:
        raise InvalidInput(f"ids that the vault knows: {len(known):,} of {len(ids):,}, {positions(known)}")
    from .certificates.jws import UNKNOWN_TYPE

    signer, vault, newest = writer.notary.signer(), writer.identity.vault, writer.newest
    of = Commitments(writer.identity.key, vault, newest)
    said = {"kind": UNKNOWN, "rows": 0, "people": 1, "software": SOFTWARE, "says": _UNKNOWN_SAYS}

    def one(id_: bytes) -> PersonalReceipt:
        about = receipts_fields(root(of.of([id_])).hex(), fold_case=writer.now.schema.fold_case)
        fields = {**said, **about, "head": writer.ledger.tip.hash}
        text = signer.sign(statement(vault, newest, now(), fields), UNKNOWN_TYPE)
        return PersonalReceipt(vault, newest, of.salt(id_), 0, (), text)

    return {id_: one(id_) for id_ in dict.fromkeys(ids)}
