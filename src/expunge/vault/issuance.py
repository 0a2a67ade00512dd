"""Issuing: receipts for people, made from the ledger and the vault's key when somebody names an id; none is kept."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import (
    ExpungeError,
    InvalidCertificate,
    InvalidFile,
    InvalidInput,
    InvalidSetting,
    Unfinished,
    UnknownId,
    format_positions,
)
from .certificates.commitments import Commitments, merkle_root
from .certificates.notary import current_time
from .certificates.payload import SOFTWARE, receipt_fields, statement_payload
from .certificates.personal_receipts import UNKNOWN_KIND, PersonalReceipt, build_receipts, verify_receipt
from .ledger.records import Record
from .requests.lookup import Holding, IdLookup, find_holdings, find_similar
from .results import PersonOutcome, Receipt

if TYPE_CHECKING:
    from .writer import Writer

_UNKNOWN_STATEMENT = (
    "not known here: the vault holds no row of this id, and the id is not among those that it has erased"
)
_NO_RECEIPTS_RESTORED = (
    "was done when an old copy of the folder caught up: a certificate of that is there, and no receipts"
)
_NO_RECEIPTS_CLONED = (
    "made this vault as a clone, with these people erased already: the vault that it is a clone of has receipts"
)


def issue_receipts(
    writer: "Writer",
    ids: Sequence[bytes],
    request: int | None,
    *,
    skip_unknown: bool,
    lenient: bool = False,
) -> dict[bytes, PersonalReceipt]:
    """The receipts of people, by their ids: of this request, or of those that erased them.

    With ``lenient`` a request that gives no receipts now (it is not certified yet, or its leaves are damaged) is left
    out instead of refused.
    """
    wanted = list(dict.fromkeys(ids))
    by = {one: h.request for one, h in zip(wanted, find_holdings(writer.context, wanted), strict=True)}
    if request is not None:
        by = dict.fromkeys(wanted, request)
    by_request = dict[int, list[bytes]]()
    for one, number in by.items():
        if number is not None:
            by_request.setdefault(number, []).append(one)
    found = dict[bytes, PersonalReceipt]()
    for number, people in by_request.items():
        try:
            found |= _issue_for_request(writer, number, people)
        except (ExpungeError, OSError):
            if not lenient:
                raise
    if not skip_unknown and (missing := [k for k, one in enumerate(ids) if one not in found]):
        raise _no_receipt_error(request, missing, len(ids))
    return found


def _issue_for_request(writer: "Writer", number: int, ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
    """Return the receipts of one request, for those of these ids that it was about."""
    asked, logged = writer.index.read_request_record(number), writer.index.read_request(number)
    if logged is not None and (logged.kind == "restore" or logged.state == "restored"):
        raise InvalidSetting(f"request {number} {_NO_RECEIPTS_RESTORED}")
    if logged is not None and logged.kind == "cloned":
        raise InvalidSetting(f"request {number} {_NO_RECEIPTS_CLONED}")
    if asked is None or logged is None or "receipts" not in asked.body:
        raise InvalidSetting(f"there is no request {number} that gives receipts; expunge log tells which there are")
    if logged.certificate is None:
        raise Unfinished(f"request {number} is not certified yet: ask again once the signing key is there")
    made = build_receipts(*_load_tree(writer, asked, ids), ids, logged.certificate)
    there = {one: receipt for one, receipt in zip(ids, made, strict=True) if receipt is not None}
    for one in list(there)[:1]:  # all have the same certificate, which somebody may have changed in the ledger
        _check_issued(writer, one, there[one])
    return there


@dataclass(frozen=True, eq=False)
class OutcomeBuilder:
    """What people get after an erasure, made in the pass that carried it out.

    Attributes
    ----------
    writer : Writer
        The vault, still locked.
    receipt : Receipt or None
        Of the erasure; None if nobody had rows.
    leaves : sequence of bytes
        The commitments to everybody whom it erased.
    receipts, attest_unknown : bool
        Whether people get receipts, and unknown ones a statement.
    """

    writer: "Writer"
    receipt: Receipt | None
    leaves: Sequence[bytes]
    receipts: bool
    attest_unknown: bool

    def build(self, lookup: IdLookup, ids: Sequence[bytes]) -> tuple[PersonOutcome, ...]:
        """Return what became of each id asked for, in that order; a paper that cannot be made is left out.

        ``named`` is what was found before the erasure.
        """
        before = lookup.holdings()
        unknown = [one for one in dict.fromkeys(ids) if one not in before or before[one].state == UNKNOWN_KIND]
        alike, made = set[bytes](), dict[bytes, PersonalReceipt]()
        # The erasure is carried out: whatever goes wrong from here on must not look as if it were not. Who misses a
        # paper asks for it again, and is told why there is none.
        with suppress(Exception):
            alike = find_similar(self.writer.context, unknown)
        with suppress(Exception):
            if self.receipts:
                made |= self._issue_new([one for one, was in before.items() if was.state == "present"])
                earlier = [one for one, was in before.items() if was.state == "erased"]
                made |= issue_receipts(self.writer, earlier, None, skip_unknown=True, lenient=True) if earlier else {}
            if self.attest_unknown:
                made |= sign_unknown_ids(self.writer, unknown)

        def outcome(person: bytes) -> PersonOutcome:
            was = before.get(person, Holding(UNKNOWN_KIND))
            if was.state == "present":
                assert self.receipt is not None  # somebody with rows was erased
                return PersonOutcome("erased", was.rows, self.receipt.request, made.get(person))
            if was.request is None:
                return PersonOutcome("unknown", receipt=made.get(person), similar=person in alike)
            return PersonOutcome("earlier", request=was.request, receipt=made.get(person))

        return tuple(map(outcome, ids))

    def _issue_new(self, ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
        """Return the receipts of those who were erased just now; nothing has to be looked up or checked for them."""
        if self.receipt is None or self.receipt.certificate is None:
            return {}
        identity = self.writer.identity
        of = Commitments(identity.key, identity.vault, self.receipt.request)
        made = zip(ids, build_receipts(of, self.leaves, ids, self.receipt.certificate), strict=True)
        return {one: paper for one, paper in made if paper is not None}


def _check_issued(writer: "Writer", person: bytes, receipt: PersonalReceipt) -> None:
    """Refuse to hand out a receipt that would not pass."""
    from .certificates.jws import PublicKey

    try:
        verify_receipt(receipt, person.decode(), [PublicKey.from_x(x) for x in writer.notary.known_keys])
    except InvalidCertificate as error:
        raise InvalidFile(
            f"{writer.ledger.path} was changed: no receipt of request {receipt.request}: {error}"
        ) from None


def _no_receipt_error(request: int | None, missing: Sequence[int], total: int) -> UnknownId:
    what, way_out = f"that request {request} was not about", ""
    if request is None:
        what, way_out = "that are not erased", "; for a receipt of another request, name it (--request, request=)"
        way_out += "; --attest-unknown (attest_unknown) signs that an id is not in the vault"
    return UnknownId(f"ids {what}: {len(missing):,} of {total:,}, {format_positions(missing)}{way_out}")


def _load_tree(writer: "Writer", record: Record, ids: Sequence[bytes]) -> tuple[Commitments, list[bytes]]:
    """The commitments of a request, and its leaves. If there is only one, it is of one of these ids, or of none."""
    of = Commitments(writer.identity.key, writer.identity.vault, record.request)
    wanted, people = str(record.body["receipts"]), int(record.body["people"])
    if people == 1:
        return of, [leaf for leaf in of.compute(ids) if merkle_root([leaf]).hex() == wanted]
    leaves = writer.leaves.read(record.request, wanted)
    if len(leaves) != people or merkle_root(leaves).hex() != wanted:
        raise InvalidFile(f"the leaves of request {record.request} are damaged: no receipt of it can be made")
    return of, leaves


def sign_unknown_ids(writer: "Writer", ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
    """Signed statements that these ids are not in the vault, which must be true."""
    held = find_holdings(writer.context, ids)
    if known := [k for k, holding in enumerate(held) if holding.state != UNKNOWN_KIND]:
        raise InvalidInput(f"ids that the vault knows: {len(known):,} of {len(ids):,}, {format_positions(known)}")
    from .certificates.jws import UNKNOWN_TYPE

    signer, vault, newest = writer.notary.require_signer(), writer.identity.vault, writer.newest
    of = Commitments(writer.identity.key, vault, newest)
    said = {"kind": UNKNOWN_KIND, "rows": 0, "people": 1, "software": SOFTWARE, "says": _UNKNOWN_STATEMENT}

    def one(id_: bytes) -> PersonalReceipt:
        about = receipt_fields(merkle_root(of.compute([id_])).hex(), fold_case=writer.snapshot.schema.fold_case)
        fields = {**said, **about, "head": writer.ledger.tip.hash}
        text = signer.sign(statement_payload(vault, newest, current_time(), fields), UNKNOWN_TYPE)
        return PersonalReceipt(vault, newest, of.salt(id_), 0, (), text)

    return {id_: one(id_) for id_ in dict.fromkeys(ids)}
