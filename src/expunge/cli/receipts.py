"""What a request answers: a receipt on standard output, which must not get lost unnoticed."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    from ..vault import Receipt


def print_receipt(
    receipt: "Receipt",
    done: str,
    args: Namespace,
    *,
    skipped: tuple[str, str] = ("", ""),
    folder: "ReceiptFolder | None" = None,
) -> None:
    """Print a receipt; a script must not take an answer that was lost for a refusal."""
    from dataclasses import asdict, replace

    from ..errors import AnswerLost

    with guard_answer(f"request {receipt.request} was carried out"):
        if args.json:
            fields = asdict(replace(receipt, outcomes=()))
            del fields["outcomes"]
            if receipt.kind == "unlearn":
                fields["similar"] = _count_similar(receipt, folder)
            terminal.say_json(fields | (folder.json_fields() if folder else {}))
        else:
            terminal.say(
                "\n".join(
                    [
                        *_format_lines(receipt, done, skipped, _count_similar(receipt, folder)),
                        *(folder.text_lines() if folder else ()),
                    ]
                )
            )
    for text in receipt.notes:
        terminal.note(text)
    if folder and folder.problem:
        raise AnswerLost(f"request {receipt.request} was carried out, but {folder.problem}")


def _count_similar(receipt: "Receipt", folder: "ReceiptFolder | None") -> int:
    """For how many ids that are not known a similar one is in the vault."""
    return sum(outcome.similar for outcome in receipt.outcomes) + (folder.similar if folder else 0)


def similar_hint(count: int) -> list[str]:
    """What people are told about unknown ids of which a similar one is in the vault."""
    if not count:
        return []
    return [f"a similar id is here for {count:,} of them: look at case, quotes, zeros, signs and decimals"]


def _format_lines(receipt: "Receipt", done: str, skipped: tuple[str, str], similar: int) -> Iterator[str]:
    """What a receipt says to people."""
    said = done.format(
        request=f"request {receipt.request}",
        rows=pluralize(receipt.rows, "row", "rows"),
        people=pluralize(receipt.people, "person", "people"),
        learners=pluralize(receipt.learners, "learner", "learners"),
    )
    yield said + (f", in {receipt.seconds * 1e3:,.1f} ms" if receipt.seconds else "")
    if receipt.known:
        yield pluralize(receipt.known, "of these people was there already", "of these people were there already")
    if receipt.clipped:
        yield pluralize(receipt.clipped, "value was", "values were") + " outside the bounds and moved to the bound"
    if receipt.skipped:
        yield pluralize(receipt.skipped, *skipped) + " left out"
        yield from similar_hint(similar)
    if receipt.seconds and receipt.earlier:
        requests = "request" if len(receipt.earlier) == 1 else "requests"
        people = pluralize(receipt.erased_earlier, "person was", "people were")
        yield f"{people} erased earlier, by {requests} {', '.join(map(str, receipt.earlier))}"
    where = receipt.path or ("in the ledger" if receipt.certificate else "not yet")
    yield f"request {receipt.request}, certificate: {terminal.escape(str(where))}"


@contextmanager
def guard_answer(done: str) -> Iterator[None]:
    """Print an answer and flush it; if that fails, the error says what was done all the same."""
    from ..errors import AnswerLost

    try:
        yield
        terminal.flush()
    except (OSError, MemoryError, ImportError) as error:
        why = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
        raise AnswerLost(f"{done}, but the answer could not be written: {why}") from error


if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Vault
    from .arguments import Commands

_MAX_LISTED = 20  # people whose files are named one by one
_UNKNOWN = "unknown"  # the state of an id, and the kind of the statement about it


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    add_command(commands, receipts, add_ids, _add_request, add_attest_unknown, add_key, add_vault)


def _add_request(parser: Parser) -> None:
    text = "The request that they are of; default: for each id the one that erased it."
    parser.add_argument("--request", metavar="NUMBER", type=whole_number(1), help=text)
    parser.add_argument("--receipts", metavar="DIR", type=Path, required=True, help="The folder for the receipts.")


def receipts(args: Namespace) -> None:
    """Write the receipts of people again; nothing is changed."""
    wanted, unknown, vault, handed = read_ids(args), list[str](), open_vault(args), ReceiptFolder(args)
    if args.attest_unknown:
        wanted, unknown, handed.similar = split_known_ids(vault, wanted)
    if wanted:
        handed.write(lambda: vault.personal_receipts(wanted, request=args.request), defer_errors=False)
    if unknown:
        handed.write(lambda: vault.attest_unknown(unknown), defer_errors=False)
    handed.print_summary(args)


def split_known_ids(vault: "Vault", ids: Sequence[str]) -> tuple[list[str], list[str], int]:
    """The ids that a vault holds or has erased, and those that it does not know, each once.

    The third part is for how many of the unknown ids it has a similar one.
    """
    held = dict(zip(ids, vault.find(ids), strict=True))
    known, unknown = ([one for one in held if (held[one].state == _UNKNOWN) is state] for state in (False, True))
    return known, unknown, sum(holding.similar for holding in held.values())


class WrittenReceipt(NamedTuple):
    """A receipt that was written."""

    id: str  # as it was given
    file: Path
    kind: str


class ReceiptFolder:
    """Receipts that were written to a folder, if there is one to write to."""

    def __init__(self, args: Namespace) -> None:
        self._folder: Path | None = args.receipts
        self._written, self.problem = list[WrittenReceipt](), ""
        self.similar = 0  # unknown ids of which a similar one is in the vault
        attests = getattr(args, "attest_unknown", False)
        self._again = "expunge receipts --attest-unknown" if attests else "expunge receipts"
        if self._folder is not None:  # before anything is changed: a folder that cannot be loses no answer then
            try:
                self._folder.mkdir(0o700, exist_ok=True, parents=True)
            except (FileExistsError, NotADirectoryError):
                raise UsageError(f"--receipts names a folder, and {self._folder} cannot be one") from None

    def write(
        self,
        issue: "Callable[[], Mapping[str, PersonalReceipt]]",
        *,
        defer_errors: bool = True,
        request: int | None = None,
    ) -> None:
        """Write receipts; what goes wrong is told after the answer, because the request was carried out."""
        from ..errors import ExpungeError
        from ..saving import files
        from ..saving.drafts import open_draft

        if self._folder is None or self.problem:
            return
        try:
            from ..vault.certificates import jws

            for one, receipt in issue().items():
                path = self._folder / f"{receipt.request:06}-{receipt.name}.json"
                with open_draft(path) as new:
                    files.write_all(new.fd, receipt.to_json().encode(), 0)
                    new.commit()
                self._written.append(WrittenReceipt(one, path, jws.unverified_payload(receipt.certificate)["kind"]))
        except (ExpungeError, OSError, MemoryError, ImportError) as error:
            if not defer_errors:
                raise
            again = self._again if request is None else f"{self._again} --request {request}"
            self.problem = f"the receipts could not be written: {error}; {again} makes them again"

    def json_fields(self) -> dict[str, Any]:
        """For JSON; nothing if no receipts were asked for."""
        if self._folder is None:
            return {}
        return {"receipts": [one._asdict() for one in self._written]}

    def text_lines(self) -> list[str]:
        """For people."""
        where = terminal.escape(str(self._folder))
        unknown = [one for one in self._written if one.kind == _UNKNOWN]
        known = [one for one in self._written if one.kind != _UNKNOWN]
        one = f"id is not known here: a signed statement in {where} says so, nothing of it was erased"
        many = f"ids are not known here: signed statements in {where} say so, nothing of them was erased"
        return [*_list_files(known, f"receipt in {where}", f"receipts in {where}"), *_list_files(unknown, one, many)]

    def print_summary(self, args: Namespace, *first: str, **fields: Any) -> None:
        """Print what was written, where that is the whole answer but for a first line, or other fields."""
        if args.json:
            terminal.say_json(fields | self.json_fields())
        else:
            terminal.say("\n".join([*first, *self.text_lines(), *similar_hint(self.similar)]))


def _list_files(written: Sequence[WrittenReceipt], one: str, many: str) -> list[str]:
    """How many were written, and whose is which if they are few."""
    if not written:
        return []
    told = pluralize(len({each.file for each in written}), one, many)
    if len(written) > _MAX_LISTED:
        return [told]
    return [told, terminal.format_table([(f"  {each.id}", each.file.name) for each in written])]
