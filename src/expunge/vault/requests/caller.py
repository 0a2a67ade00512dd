"""The caller: who asked for a request and why, in the caller's own words."""

from dataclasses import dataclass
from typing import TypedDict

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
    in_certificate : bool
        Whether the certificate says it, too.
    """

    reference: str = ""
    actor: str = ""
    in_certificate: bool = False

    def __post_init__(self) -> None:
        for name in ("reference", "actor"):
            one_line(name, getattr(self, name))
        if self.in_certificate is not True and self.in_certificate is not False:
            raise InvalidSetting("in_certificate must be True or False")

    def unheard(self) -> tuple[str, ...]:
        """What to tell a caller whose words were not recorded, if there were any."""
        if not (self.reference or self.actor):
            return ()
        what = "reference" if self.reference else "actor"
        return (f"the {what} was not recorded: nothing was asked of the vault",)


class Said(TypedDict, total=False):
    """The fields of a `Caller`, as arguments of a request."""

    reference: str
    actor: str
    in_certificate: bool


def one_line(name: str, text: object) -> str:
    """Return what a caller says, or refuse what is not one line of text."""
    if not isinstance(text, str) or len(text) > _MOST or not text.isprintable():
        raise InvalidSetting(f"{name} must be one line of text of at most {_MOST} characters")
    return text
