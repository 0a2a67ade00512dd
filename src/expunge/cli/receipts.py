"""What a request answers: a receipt on standard output, which must not get lost unnoticed."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import terminal
from .terminal import counted

if TYPE_CHECKING:
    from ..vault import Receipt
    from .handing import Handed


def show_receipt(
    receipt: "Receipt",
    done: str,
    args: Namespace,
    *,
    skipped: tuple[str, str] = ("", ""),
    handed: "Handed | None" = None,
) -> None:
    """Print a receipt; a script must not take an answer that was lost for a refusal."""
    from dataclasses import asdict, replace

    from ..errors import AnswerLost

    with answering(f"request {receipt.request} was carried out"):
        if args.json:
            fields = asdict(replace(receipt, outcomes=()))
            del fields["outcomes"]
            if receipt.kind == "unlearn":
                fields["similar"] = _similar(receipt, handed)
            terminal.say_json(fields | (handed.fields() if handed else {}))
        else:
            terminal.say(
                "\n".join(
                    [*_lines(receipt, done, skipped, _similar(receipt, handed)), *(handed.lines() if handed else ())]
                )
            )
    for text in receipt.notes:
        terminal.note(text)
    if handed and handed.problem:
        raise AnswerLost(f"request {receipt.request} was carried out, but {handed.problem}")


def _similar(receipt: "Receipt", handed: "Handed | None") -> int:
    """For how many ids that are not known a similar one is in the vault."""
    return sum(outcome.similar for outcome in receipt.outcomes) + (handed.similar if handed else 0)


def similar_hint(count: int) -> list[str]:
    """What people are told about unknown ids of which a similar one is in the vault."""
    if not count:
        return []
    return [f"a similar id is here for {count:,} of them: look at case, quotes, zeros, signs and decimals"]


def _lines(receipt: "Receipt", done: str, skipped: tuple[str, str], similar: int) -> Iterator[str]:
    """What a receipt says to people."""
    said = done.format(
        request=f"request {receipt.request}",
        rows=counted(receipt.rows, "row", "rows"),
        people=counted(receipt.people, "person", "people"),
        learners=counted(receipt.learners, "learner", "learners"),
    )
    yield said + (f", in {receipt.seconds * 1e3:,.1f} ms" if receipt.seconds else "")
    if receipt.known:
        yield counted(receipt.known, "of these people was there already", "of these people were there already")
    if receipt.clipped:
        yield counted(receipt.clipped, "value was", "values were") + " outside the bounds and moved to the bound"
    if receipt.skipped:
        yield counted(receipt.skipped, *skipped) + " left out"
        yield from similar_hint(similar)
    if receipt.seconds and receipt.earlier:
        requests = "request" if len(receipt.earlier) == 1 else "requests"
        people = counted(receipt.erased_earlier, "person was", "people were")
        yield f"{people} erased earlier, by {requests} {', '.join(map(str, receipt.earlier))}"
    where = receipt.path or ("in the ledger" if receipt.certificate else "not yet")
    yield f"request {receipt.request}, certificate: {terminal.escaped(str(where))}"


@contextmanager
def answering(done: str) -> Iterator[None]:
    """Print an answer and flush it; if that fails, the error says what was done all the same."""
    from ..errors import AnswerLost

    try:
        yield
        terminal.flush()
    except (OSError, MemoryError, ImportError) as error:
        why = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
        raise AnswerLost(f"{done}, but the answer could not be written: {why}") from error
