"""Callers: who asked for a request and why, in the caller's own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ...errors import InvalidSetting

_MOST = 200  # characters


@dataclass(frozen=True)
class Caller:
    """What a caller says about a request. It goes into the ledger, and into the certificate only if that is asked for.

    Attributes
    ----------
    reference : str
        What the caller calls the request: the number of a ticket.
    actor : str
        Who asked, or on whose behalf.
    job : str
        The id of the request in the system that passes it on, by which it finds the request in the ledger again.
    in_certificate : bool
        Whether the certificate says the reference and the actor as well.
    despite_hold : str
        Why people are erased although they may be on legal hold; empty if nobody on hold may be.
    """

    reference: str = ""
    actor: str = ""
    job: str = ""
    in_certificate: bool = False
    despite_hold: str = ""

    def __post_init__(self) -> None:
        for name in ("reference", "actor", "job", "despite_hold"):
            one_line(name, getattr(self, name))
        if self.in_certificate is not True and self.in_certificate is not False:
            raise InvalidSetting("in_certificate must be True or False")

    def describe(self) -> dict[str, str]:
        """Return what the ledger's record says about this caller."""
        words = {"job": self.job, "reference": self.reference, "actor": self.actor}
        return words | {"despite_hold": self.despite_hold}

    def note_unsaved(self) -> tuple[str, ...]:
        """Return a note for a caller whose reference was not saved, if there was one."""
        return ("the reference was not saved, because no new request was needed",) if self.reference else ()


@dataclass(frozen=True)
class Erasure:
    """One caller's erasure, to be carried out together with those of others (`Vault.unlearn_group`).

    Parameters
    ----------
    ids : int, str or a sequence of them
        Whose rows to erase.
    reference, actor, job : str
        As in `Caller`.
    """

    ids: Any
    reference: str = ""
    actor: str = ""
    job: str = ""

    @property
    def caller(self) -> Caller:
        """Who asks for it."""
        return Caller(self.reference, self.actor, self.job)


class Said(TypedDict, total=False):
    """The fields of a `Caller`, as arguments of a request."""

    reference: str
    actor: str
    job: str
    in_certificate: bool


def caller_fields(callers: Sequence[Caller]) -> dict[str, Any]:
    """Return what the record of a request says about its callers: those who said anything."""
    described = [caller.describe() for caller in callers]
    return {
        "callers": [caller for caller in described if any(caller.values())],
        "in_certificate": any(caller.in_certificate for caller in callers),
    }


def one_line(name: str, text: object) -> str:
    """Return what a caller says, or refuse what is not one line of text."""
    if not isinstance(text, str) or len(text) > _MOST or not text.isprintable():
        raise InvalidSetting(f"{name} must be one line of text of at most {_MOST} characters")
    return text
