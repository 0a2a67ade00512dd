"""Outcomes: what is kept of a request once it is over, without whose it was."""

from collections.abc import Sequence
from typing import Any

from ..errors import ExpungeError
from ..vault import Holding, Receipt

_LONGEST = 500  # characters of a reason


def outcome_of(receipt: Receipt) -> dict[str, Any]:
    """What is kept of a vault's receipt."""
    names = ("request", "rows", "people", "skipped", "known", "clipped")
    return {name: getattr(receipt, name) for name in names} | {"seconds": round(receipt.seconds, 6)}


def erasure_outcome(people: Sequence[Holding], receipt: Receipt | None) -> dict[str, Any]:
    """What became of the people of one erasure, which may have been carried out together with others.

    ``request`` is the one that erased them: an earlier one if they had no rows any more, none if they never had any.
    """
    present = [one for one in people if one.state == "present"]
    earlier = sorted({one.request for one in people if one.request is not None})
    number = receipt.request if receipt is not None and present else None
    return {
        "rows": sum(one.rows for one in present),
        "erased": len(present),
        "earlier": earlier,
        "unknown": sum(one.state == "unknown" for one in people),
        "request": earlier[-1] if number is None and earlier else number,
        "seconds": 0.0 if receipt is None else round(receipt.seconds, 6),
    }


def why(error: BaseException) -> str:
    """What is said of an error: those of a vault name nobody, of others only the kind is told."""
    if isinstance(error, ExpungeError):
        return str(error)[:_LONGEST]
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
