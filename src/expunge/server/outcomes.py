"""Outcomes: what is kept of a request once it is over, without whose it was."""

from collections.abc import Sequence
from typing import Any, Literal

from ..errors import ExpungeError
from ..vault import PersonOutcome, Receipt

SIMILAR = "_similar"  # for how many unknown ids a similar one is here: only callers who may erase are told
_LONGEST = 500  # characters of a reason


def outcome_of(receipt: Receipt) -> dict[str, Any]:
    """What is kept of a vault's receipt."""
    names = ("request", "rows", "people", "skipped", "known", "clipped")
    return {name: getattr(receipt, name) for name in names} | {"seconds": round(receipt.seconds, 6)}


def erasure_outcome(people: Sequence[PersonOutcome], receipt: Receipt | None) -> dict[str, Any]:
    """What became of the people of one erasure, which may have been carried out together with others.

    ``request`` is the one that erased them: an earlier one if they had no rows any more, none if they never had any.
    """
    erased = [person for person in people if person.state == "erased"]
    earlier = sorted({person.request for person in people if person.state == "earlier" and person.request is not None})
    number = receipt.request if receipt is not None and erased else None
    return {
        "rows": sum(person.rows for person in erased),
        "erased": len(erased),
        "erased_earlier": sum(person.state == "earlier" for person in people),
        "earlier": earlier,
        "unknown": sum(person.state == "unknown" for person in people),
        "request": earlier[-1] if number is None and earlier else number,
        "seconds": 0.0 if receipt is None else round(receipt.seconds, 6),
        SIMILAR: sum(person.similar for person in people),
    }


def erasure_state(outcome: dict[str, Any]) -> Literal["done", "not_known"]:
    """Return the final state of an erasure: people of whom the vault knows none were not erased."""
    return "done" if outcome["erased"] or outcome["erased_earlier"] else "not_known"


def was_repeated(outcome: dict[str, Any]) -> bool:
    """Whether an erasure erased nobody because earlier requests had: its certificate is that of the last of them."""
    return not outcome.get("erased") and bool(outcome.get("erased_earlier"))


def why(error: BaseException) -> str:
    """Return the reason that people read for an error: a vault's own messages name nobody, others are only logged."""
    if isinstance(error, ExpungeError):
        return str(error)[:_LONGEST]
    return (isinstance(error, OSError) and error.strerror) or "an unexpected error; the log of the service has details"
