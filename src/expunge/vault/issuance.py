"""Receipts for people, made from the ledger and the vault's key whenever an id is named; none is stored."""

from collections.abc import Sequence
from contextlib import suppress
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
from .disk.people import hash_ids, hashes_to_bytes
from .ledger.records import Record
from .requests import Unlearn, read_request
from .requests.lookup import IdLookup, find_holdings, find_similar
from .results import PersonOutcome, Receipt

if TYPE_CHECKING:
    from .writer import Writer

_UNKNOWN_STATEMENT = (
    "not known here: the vault holds no row of this id, and the id is not among those that it has erased"
)
_NO_RECEIPTS_RESTORED = (
    "was carried out when an old copy of the folder caught up: it has a certificate, but no receipts"
)
_NO_RECEIPTS_CLONED = (
    "made this vault as a clone, with these people erased already: ask the original vault for receipts"
)


def issue_receipts(
    writer: "Writer", ids: Sequence[bytes], request: int | None, *, skip_unknown: bool, lenient: bool = False
) -> dict[bytes, PersonalReceipt]:
    """Return the receipts of people, by their ids: of this request, or of the ones that erased them.

    With ``lenient`` a request that cannot give receipts now (it is not certified yet, or its leaves are damaged) is
    left out instead of refused.
    """
    people = list(dict.fromkeys(ids))
    if request is not None:
        by_request = {request: people} if people else {}
    else:
        by_request = dict[int, list[bytes]]()
        for person, holding in zip(people, find_holdings(writer.context, people), strict=True):
            if holding.request is not None:
                by_request.setdefault(holding.request, []).append(person)
    receipts = dict[bytes, PersonalReceipt]()
    for number, erased in by_request.items():
        try:
            receipts |= _issue_for_request(writer, number, erased)
        except (ExpungeError, OSError):
            if not lenient:
                raise
    if not skip_unknown and (missing := [k for k, person in enumerate(ids) if person not in receipts]):
        problem, hint = f"ids that request {request} was not about", ""
        if request is None:
            problem = "ids that are not erased"
            hint = "; for a receipt of another request, name it (--request, request=)"
            hint += "; --attest-unknown (attest_unknown) signs that an id is not in the vault"
        raise UnknownId(f"{problem}: {len(missing):,} of {len(ids):,}, {format_positions(missing)}{hint}")
    return receipts


def _issue_for_request(writer: "Writer", number: int, ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
    """Return the receipts of one request, for the ids among these that it included."""
    record, logged = writer.index.read_request_record(number), writer.index.read_request(number)
    if logged is not None and (logged.kind == "restore" or logged.state == "restored"):
        raise InvalidSetting(f"request {number} {_NO_RECEIPTS_RESTORED}")
    if logged is not None and logged.kind == "cloned":
        raise InvalidSetting(f"request {number} {_NO_RECEIPTS_CLONED}")
    if record is None or logged is None or "receipts" not in record.body:
        raise InvalidSetting(f"there is no request {number} with receipts; expunge log lists the requests")
    if logged.certificate is None:
        raise Unfinished(f"request {number} is not certified yet: try again when the signing key is available")
    issued = zip(ids, build_receipts(*_load_tree(writer, record, ids), ids, logged.certificate), strict=True)
    receipts = {person: receipt for person, receipt in issued if receipt is not None}
    for person in list(receipts)[:1]:  # all have the same certificate, which may have been changed in the ledger
        _check_issued(writer, person, receipts[person])
    return receipts


def build_outcomes(
    writer: "Writer",
    erasure: Receipt | None,
    leaves: Sequence[bytes],
    lookup: IdLookup,
    ids: Sequence[bytes],
    *,
    receipts: bool,
    attest_unknown: bool,
) -> tuple[PersonOutcome, ...]:
    """Return the outcome of an erasure for each id, in the order given; a receipt that cannot be made is left out.

    Parameters
    ----------
    writer : Writer
        The vault, still locked.
    erasure : Receipt or None
        Of the request; None if nobody had rows.
    leaves : sequence of bytes
        The commitments to everybody whom it erased.
    lookup : IdLookup
        The ids as they were found before the erasure.
    ids : sequence of bytes
        The ids of the request.
    receipts, attest_unknown : bool
        Whether people get receipts, and unknown ids a statement.
    """
    before = {person: holding for person, holding in lookup.holdings().items() if holding.state != UNKNOWN_KIND}
    unknown = [person for person in dict.fromkeys(ids) if person not in before]
    similar, issued = set[bytes](), dict[bytes, PersonalReceipt]()
    # The erasure is carried out: a failure from here on must not look as if it were not. A receipt that is missing can
    # be asked for again, and that call reports why there is none.
    if unknown:
        with suppress(Exception):
            similar = find_similar(writer.context, unknown)
    with suppress(Exception):
        if receipts:
            if erasure is not None and erasure.certificate is not None:  # new receipts need no lookup and no check
                erased = [person for person, holding in before.items() if holding.state == "present"]
                commitments = Commitments(writer.identity.key, writer.identity.vault, erasure.request)
                built = zip(erased, build_receipts(commitments, leaves, erased, erasure.certificate), strict=True)
                issued |= {person: receipt for person, receipt in built if receipt is not None}
            if earlier := [person for person, holding in before.items() if holding.state == "erased"]:
                issued |= issue_receipts(writer, earlier, None, skip_unknown=True, lenient=True)
        if attest_unknown and unknown:
            issued |= sign_unknown_ids(writer, unknown)
    still_open = _OpenPeople(writer)
    outcomes = []
    for person, hash_ in zip(ids, hashes_to_bytes(hash_ids(writer.identity.key, ids)), strict=True):
        holding, receipt = before.get(person), issued.get(person)
        if holding is None:
            outcomes.append(PersonOutcome("unknown", receipt=receipt, similar=person in similar))
        elif holding.state == "present":
            assert erasure is not None  # a person with rows was erased
            complete = not erasure.open or not still_open.contains(erasure.request, hash_)
            outcomes.append(PersonOutcome("erased", holding.rows, erasure.request, receipt, complete=complete))
        else:
            complete = not still_open.contains(holding.request or 0, hash_)
            outcomes.append(PersonOutcome("earlier", request=holding.request, receipt=receipt, complete=complete))
    return tuple(outcomes)


class _OpenPeople:
    """The people whose erasure is not complete, by the request that erased them."""

    def __init__(self, writer: "Writer") -> None:
        self._writer = writer
        self._found = dict[int, frozenset[bytes] | None]()  # None: which ones is not known

    def contains(self, request: int, hash_: bytes) -> bool:
        """Return whether the plan in use had looked at rows of a person whom this request erased."""
        if request not in self._found:
            self._found[request] = self._find(request)
        found = self._found[request]
        return found is None or hash_ in found

    def _find(self, request: int) -> frozenset[bytes] | None:
        manifest = self._writer.snapshot.manifest
        if manifest.planning is None or not manifest.planning.open or request < manifest.training:
            return frozenset()
        record = self._writer.index.read_request_record(request)
        if record is None or record.kind not in ("unlearn", "restore"):
            return None
        if not record.body["open"]:
            return frozenset()
        erasure = read_request(record, self._writer.lists)
        return frozenset(hashes_to_bytes(erasure.bury[: erasure.open])) if isinstance(erasure, Unlearn) else None


def _check_issued(writer: "Writer", person: bytes, receipt: PersonalReceipt) -> None:
    """Refuse to issue a receipt that would not pass verification."""
    from .certificates.jws import PublicKey

    try:
        verify_receipt(receipt, person.decode(), [PublicKey.from_x(x) for x in writer.notary.known_keys])
    except InvalidCertificate as error:
        raise InvalidFile(
            f"{writer.ledger.path} was changed: no receipt of request {receipt.request}: {error}"
        ) from None


def _load_tree(writer: "Writer", record: Record, ids: Sequence[bytes]) -> tuple[Commitments, list[bytes]]:
    """Return the commitments of a request, and its leaves. A single leaf is not stored: it is of one of the ids."""
    commitments = Commitments(writer.identity.key, writer.identity.vault, record.request)
    root, people = str(record.body["receipts"]), int(record.body["people"])
    if people == 1:
        return commitments, [leaf for leaf in commitments.compute(ids) if merkle_root([leaf]).hex() == root]
    leaves = writer.leaves.read(record.request, root)
    if len(leaves) != people or merkle_root(leaves).hex() != root:
        raise InvalidFile(f"the leaves of request {record.request} are damaged: no receipt of it can be made")
    return commitments, leaves


def sign_unknown_ids(writer: "Writer", ids: Sequence[bytes]) -> dict[bytes, PersonalReceipt]:
    """Return signed statements that these ids are not in the vault; refuse if one is."""
    holdings = find_holdings(writer.context, ids)
    if known := [k for k, holding in enumerate(holdings) if holding.state != UNKNOWN_KIND]:
        raise InvalidInput(f"ids that the vault knows: {len(known):,} of {len(ids):,}, {format_positions(known)}")
    from .certificates.jws import UNKNOWN_TYPE

    signer, vault, newest = writer.notary.require_signer(), writer.identity.vault, writer.newest
    commitments = Commitments(writer.identity.key, vault, newest)
    statements = dict[bytes, PersonalReceipt]()
    for person in dict.fromkeys(ids):
        root = merkle_root(commitments.compute([person])).hex()
        fields = {"kind": UNKNOWN_KIND, "rows": 0, "people": 1, "software": SOFTWARE, "says": _UNKNOWN_STATEMENT}
        fields |= receipt_fields(root, fold_case=writer.snapshot.schema.fold_case)
        fields |= {"head": writer.ledger.tip.hash}
        text = signer.sign(statement_payload(vault, newest, current_time(), fields), UNKNOWN_TYPE)
        statements[person] = PersonalReceipt(vault, newest, commitments.salt(person), 0, (), text)
    return statements
