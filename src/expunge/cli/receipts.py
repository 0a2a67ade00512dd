"""Receipts: the answer to a request on standard output, and files for the people whom it concerns.

A personal receipt is named after the request and the person's commitment: the name reveals nothing, and no two people
share one.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    add_attest_unknown,
    add_command,
    add_ids,
    add_key,
    add_vault,
    open_vault,
    read_ids,
    whole_number,
)
from .terminal import pluralize

if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Receipt, Vault
    from .arguments import Commands

_MAX_LISTED = 20  # receipts whose files are listed one by one
_UNKNOWN = "unknown"  # the state of an id, and the kind of the statement about it


def print_receipt(
    receipt: "Receipt",
    done: str,
    args: Namespace,
    *,
    skipped: tuple[str, str] = ("", ""),
    folder: "ReceiptFolder | None" = None,
) -> None:
    """Print a receipt; if that fails, the error says that the request was completed."""
    from dataclasses import asdict, replace

    from ..errors import AnswerLost

    with terminal.guard_answer(f"request {receipt.request} was completed"):
        if args.json:
            fields = asdict(replace(receipt, outcomes=()))
            del fields["outcomes"]
            if receipt.kind in ("unlearn", "rectify"):
                fields["complete"] = receipt.complete
            if receipt.kind == "unlearn":
                fields["similar"] = _count_similar(receipt, folder)
            terminal.say_json(fields | (folder.json_fields() if folder else {}))
        else:
            lines = [*_format_lines(receipt, done, skipped, _count_similar(receipt, folder))]
            terminal.say("\n".join(lines + (folder.text_lines() if folder else [])))
    for text in receipt.notes:
        terminal.note(text)
    if folder and folder.problem:
        raise AnswerLost(f"request {receipt.request} was completed, but {folder.problem}")


def _count_similar(receipt: "Receipt", folder: "ReceiptFolder | None") -> int:
    """Return how many unknown ids have a similar id in the vault."""
    return sum(outcome.similar for outcome in receipt.outcomes) + (folder.similar if folder else 0)


def similar_hint(count: int) -> list[str]:
    """Return the hint about unknown ids that have a similar id in the vault."""
    if not count:
        return []
    resembling = pluralize(count, "of them resembles", "of them resemble")
    return [f"{resembling} an id in the vault: check case, quotes, zeros, signs and decimals"]


def _format_lines(receipt: "Receipt", done: str, skipped: tuple[str, str], similar: int) -> Iterator[str]:
    """Format a receipt as text."""
    first = done.format(
        request=f"request {receipt.request}",
        rows=pluralize(receipt.rows, "row", "rows"),
        people=pluralize(receipt.people, "person", "people"),
        learners=pluralize(receipt.learners, "learner", "learners"),
    )
    yield first + (f", in {receipt.seconds * 1e3:,.1f} ms" if receipt.seconds else "")
    if receipt.known:
        yield pluralize(
            receipt.known, "of these people was already in the vault", "of these people were already in the vault"
        )
    if receipt.clipped:
        yield pluralize(receipt.clipped, "value was", "values were") + " outside the bounds and clipped"
    if receipt.skipped:
        yield pluralize(receipt.skipped, *skipped) + " skipped"
        yield from similar_hint(similar)
    if receipt.seconds and receipt.earlier:
        requests = "request" if len(receipt.earlier) == 1 else "requests"
        people = pluralize(receipt.erased_earlier, "person was", "people were")
        yield f"{people} erased earlier by {requests} {', '.join(map(str, receipt.earlier))}"
    if receipt.kind in ("unlearn", "rectify"):
        yield _describe_completion(receipt)
    where = receipt.path or ("in the ledger" if receipt.certificate else "not yet")
    yield f"request {receipt.request}, certificate: {terminal.escape(str(where))}"


def _describe_completion(receipt: "Receipt") -> str:
    """Return whether settings are in use that were chosen with the help of rows of these people."""
    if receipt.complete:
        return "complete: no setting in use was chosen with the help of rows of these people"
    people = pluralize(receipt.open, "person", "people")
    return f"not complete for {people}, whose rows a plan used to choose settings: complete with expunge replan"


def register(commands: "Commands") -> None:
    """Add the command of this module."""
    add_command(commands, receipts, add_ids, _add_request, add_attest_unknown, add_key, add_vault)


def _add_request(parser: Parser) -> None:
    text = "The request (default: for each id the request that erased it)."
    parser.add_argument("--request", metavar="NUMBER", type=whole_number(1), help=text)
    parser.add_argument("--receipts", metavar="DIR", type=Path, required=True, help="The folder for the receipts.")


def receipts(args: Namespace) -> None:
    """Write personal receipts again; the vault does not change."""
    ids, unknown = read_ids(args), list[str]()
    vault, folder = open_vault(args), ReceiptFolder(args)
    if args.attest_unknown:
        ids, unknown, folder.similar = split_known_ids(vault, ids)
    if ids:
        folder.write(lambda: vault.personal_receipts(ids, request=args.request), defer_errors=False)
    if unknown:
        folder.write(lambda: vault.attest_unknown(unknown), defer_errors=False)
    folder.print_summary(args)
    log, settled = vault.requests, vault.settled
    if any(log[number - 1].open and number < settled for number in folder.requests):
        path = terminal.escape(str(vault.certificate_path(settled)))
        terminal.note(
            f"since request {settled} no setting chosen with the help of these people is in use: "
            f"hand out {path} as well"
        )


def split_known_ids(vault: "Vault", ids: Sequence[str]) -> tuple[list[str], list[str], int]:
    """Return the ids that a vault has or has erased, the unknown ones, and how many of these have a similar id."""
    holdings = dict(zip(ids, vault.find(ids), strict=True))
    known = [id_ for id_, holding in holdings.items() if holding.state != _UNKNOWN]
    unknown = [id_ for id_, holding in holdings.items() if holding.state == _UNKNOWN]
    return known, unknown, sum(holding.similar for holding in holdings.values())


class WrittenReceipt(NamedTuple):
    """A personal receipt that was written."""

    id: str  # as it was given
    file: Path
    kind: str


class ReceiptFolder:
    """The personal receipts of a command, and the folder that they are written to, if any."""

    def __init__(self, args: Namespace) -> None:
        self._folder: Path | None = args.receipts
        self._written, self.problem = list[WrittenReceipt](), ""
        self.requests = set[int]()  # whose receipts were written
        self.similar = 0  # unknown ids that have a similar id in the vault
        attests = getattr(args, "attest_unknown", False)
        self._again = "expunge receipts --attest-unknown" if attests else "expunge receipts"
        if self._folder is not None:  # before anything changes, so that a wrong folder loses no answer
            try:
                self._folder.mkdir(0o700, exist_ok=True, parents=True)
            except (FileExistsError, NotADirectoryError):
                raise UsageError(f"--receipts: {self._folder} is not a folder") from None

    def write(
        self,
        issue: "Callable[[], Mapping[str, PersonalReceipt]]",
        *,
        defer_errors: bool = True,
        request: int | None = None,
    ) -> None:
        """Write receipts; errors are reported after the answer, because the request was completed."""
        from ..errors import ExpungeError
        from ..saving import files
        from ..saving.drafts import open_draft

        if self._folder is None or self.problem:
            return
        try:
            from ..vault.certificates import jws

            for id_, receipt in issue().items():
                path = self._folder / f"{receipt.request:06}-{receipt.name}.json"
                with open_draft(path) as draft:
                    files.write_all(draft.fd, receipt.to_json().encode(), 0)
                    draft.commit()
                kind = jws.unverified_payload(receipt.certificate)["kind"]
                self._written.append(WrittenReceipt(id_, path, kind))
                if kind != _UNKNOWN:
                    self.requests.add(receipt.request)
        except (ExpungeError, OSError, MemoryError, ImportError) as error:
            if not defer_errors:
                raise
            again = self._again if request is None else f"{self._again} --request {request}"
            self.problem = f"the receipts could not be written: {error}; {again} writes them again"

    def json_fields(self) -> dict[str, Any]:
        """Return the fields for JSON; none without a folder."""
        if self._folder is None:
            return {}
        return {"receipts": [receipt._asdict() for receipt in self._written]}

    def text_lines(self) -> list[str]:
        """Return the lines for text output."""
        where = terminal.escape(str(self._folder))
        unknown = [receipt for receipt in self._written if receipt.kind == _UNKNOWN]
        known = [receipt for receipt in self._written if receipt.kind != _UNKNOWN]
        singular = f"id is not known here and nothing was erased for it; signed statement in {where}"
        plural = f"ids are not known here and nothing was erased for them; signed statements in {where}"
        return [
            *_list_files(known, f"receipt in {where}", f"receipts in {where}"),
            *_list_files(unknown, singular, plural),
        ]

    def print_summary(self, args: Namespace, *first: str, **fields: Any) -> None:
        """Print the written receipts after some first lines, or with other JSON fields."""
        if args.json:
            terminal.say_json(fields | self.json_fields())
        else:
            terminal.say("\n".join([*first, *self.text_lines(), *similar_hint(self.similar)]))


def _list_files(written: Sequence[WrittenReceipt], singular: str, plural: str) -> list[str]:
    """Return the number of files, and if they are few, the file of each id."""
    if not written:
        return []
    total = pluralize(len({receipt.file for receipt in written}), singular, plural)
    if len(written) > _MAX_LISTED:
        return [total]
    return [total, terminal.format_table([(f"  {receipt.id}", receipt.file.name) for receipt in written])]
