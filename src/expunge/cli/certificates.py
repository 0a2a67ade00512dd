"""``expunge key`` and ``expunge certificate``: who signed, and what."""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import proofs, terminal
from .arguments import Parser, UsageError, add_json, add_vault, command, group, opened
from .receipts import answering

if TYPE_CHECKING:
    from .arguments import Commands


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, key, _add_new, add_vault)
    group(commands, "certificate", "Show and check certificates, offline.", _register_below)


def _register_below(commands: "Commands") -> None:
    command(commands, show, _add_file, add_json)
    command(commands, check, proofs.add_what, proofs.add_with, add_json)
    command(commands, proofs.page, add_json)


def _add_new(added: Parser) -> None:
    added.add_argument("--new", action="store_true", help="Make a new pair in place of one that is lost.")


def _add_file(added: Parser) -> None:
    added.add_argument("file", metavar="FILE", type=Path, help="A certificate.")


def key(args: Namespace) -> None:
    """Show the public keys of a vault, the newest first; make a new pair if the private key is lost."""
    vault = opened(args)
    if args.new:
        vault.renew_key()
    names, file = vault.public_keys(), vault.places.public
    with answering("a new key pair was made") if args.new else nullcontext():
        if args.json:
            terminal.say_json({"keys": names, "file": file})
        else:
            terminal.say(f"{terminal.escaped(str(file))}: {', '.join(names)}")


def show(args: Namespace) -> None:
    """Show what a certificate says, without checking who signed it."""
    from ..vault.certificates import jws

    _say_payload(jws.unchecked(jws.read(args.file)), args)
    if not args.json:
        terminal.say("not checked: expunge certificate check tells whether the signature fits")


def check(args: Namespace) -> None:
    """Check a certificate's signature, or what a personal receipt proves to the person with an id; offline."""
    if (args.file is None) == (args.receipt is None):
        raise UsageError("name one file: a certificate, or a receipt with --receipt")
    if (args.id is None) != (args.receipt is None):
        raise UsageError("--receipt and --id go together: the id is not in the receipt")
    from ..vault.certificates import jws, personal

    public: Path = args.public_key or jws.public_key_beside(args.file or args.receipt)
    keys = jws.load_public(public)
    if args.thumbprint is not None:
        keys = jws.pinned(keys, args.thumbprint)
    receipt = None if args.receipt is None else personal.read(args.receipt)
    text = receipt.certificate if receipt else jws.read(args.file)
    payload = personal.checked_receipt(receipt, args.id, keys) if receipt else jws.checked(text, keys)
    _say_payload(payload, args)
    if args.json:
        return
    terminal.say(f"the signature fits {terminal.escaped(public.name)}")
    if receipt is not None:
        terminal.say(f"it was made with the key {jws.header(text)['kid']}")
        terminal.say(proofs.proven(receipt, payload["kind"]))


def _say_payload(payload: Mapping[str, Any], args: Namespace) -> None:
    if args.json:
        return terminal.say_json(payload)
    lines = []
    for name, value in payload.items():
        first, *rest = value if isinstance(value, list) and value else [value]
        lines += [(name.replace("_", " "), _plain(name, first)), *(("", str(one)) for one in rest)]
    return terminal.say(terminal.table(lines))


def _plain(name: str, value: object) -> str:
    """A field of a certificate in plain words; anybody may have written it."""
    if name == "iat" and isinstance(value, int | float):
        from datetime import UTC, datetime

        with suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(value, UTC).isoformat()
    return str(value)
