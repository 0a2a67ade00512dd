"""Personal receipts on the command line: what one proves, in plain words, and the page that checks them."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .arguments import Parser

if TYPE_CHECKING:
    from ..vault.certificates.personal import PersonalReceipt

_DONE = {
    "unlearn": "erased the rows of exactly this id",
    "rectify": "replaced the rows of exactly this id",
    "add": "added rows of exactly this id",
    "readmit": "let exactly this id, which had been erased, come back",
}
_WORTH = (
    "This is the operator's signed word about this vault, and no more: "
    "it cannot show that this is the vault that is in use, or that there is no copy of it."
)
WHOSE_KEY = "anybody can make a key: compare the thumbprint above with one that you know from elsewhere"


def add_what(added: Parser) -> None:
    """What is checked."""
    added.add_argument("file", metavar="FILE", type=Path, nargs="?", help="A certificate.")
    text = "A personal receipt, in place of a certificate; --id says whose it should be."
    added.add_argument("--receipt", metavar="FILE", type=Path, help=text)
    added.add_argument("--id", metavar="ID", help="The id that the receipt should be for.")


def add_with(added: Parser) -> None:
    """The keys that it is checked with."""
    text = "The public key (PEM); default: the one beside the certificate's folder."
    added.add_argument("--public-key", metavar="FILE", type=Path, help=text)
    text = "The only key that counts, by its thumbprint (RFC 7638), which you know from elsewhere."
    added.add_argument("--thumbprint", metavar="KID", help=text)


def page(args: Namespace) -> None:
    """Print the page that checks receipts in a browser, in HTML, to be saved as a file."""
    from ..vault.certificates.page import page as html

    if args.json:
        terminal.say_json({"html": html()})
    else:
        terminal.say(html(), end="")


def check_no_receipt(file: Path) -> None:
    """Refuse a receipt that is taken for a certificate, with the way to check it."""
    from ..errors import ExpungeError, InvalidCertificate
    from ..vault.certificates import personal

    try:
        personal.read(file)
    except (ExpungeError, OSError):  # it is none; what it is tells whoever reads it as a certificate
        return
    raise InvalidCertificate(f"this is a receipt: check it with --receipt {file} --id ID")


def proven(receipt: "PersonalReceipt", kind: str) -> str:
    """What a receipt that was checked proves."""
    if kind in _DONE:
        return f"the receipt is for this id: request {receipt.request} to vault {receipt.vault} {_DONE[kind]}\n{_WORTH}"
    none = "had no row of exactly this id, and no mark that one was erased"
    said = f"as of its request {receipt.request} vault {receipt.vault} {none}"
    return f"the receipt is for this id, which is not known here: nothing was erased; {said}\n{_WORTH}"
