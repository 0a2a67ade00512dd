"""``expunge key``, ``head`` and ``certificate``: who signed, and what."""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import proofs, terminal
from .arguments import (
    Parser,
    UsageError,
    actor,
    add_actor,
    add_json,
    add_key,
    add_public_key,
    add_read_only,
    add_vault,
    command,
    group,
    opened,
)
from .receipts import answering

if TYPE_CHECKING:
    from .arguments import Commands


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, key, _add_new, _add_actor, add_public_key, add_key, add_read_only, add_vault)
    command(commands, head, _add_head, add_key, add_vault)
    group(commands, "certificate", "Show and check certificates, offline.", _register_below)


def _register_below(commands: "Commands") -> None:
    command(commands, show, _add_file, add_json)
    command(commands, check, proofs.add_what, proofs.add_with, add_json)
    command(commands, proofs.page, add_json)


def _add_new(added: Parser) -> None:
    text = "Let another key sign from now on: a new pair, or the one that --key or --sign-with names."
    added.add_argument("--new", action="store_true", help=text)


def _add_actor(added: Parser) -> None:
    add_actor(added, "Who asks for the new key, for the ledger")


def _add_head(added: Parser) -> None:
    added.add_argument("--out", metavar="FILE", type=Path, help="A new file for the head; default: standard output.")
    text = "Let this RFC 3161 authority stamp the head; its answer goes into FILE.tsr."
    added.add_argument("--timestamp", metavar="URL", help=text)


def _add_file(added: Parser) -> None:
    added.add_argument("file", metavar="FILE", type=Path, help="A certificate, a head or a report.")


def key(args: Namespace) -> None:
    """Show the thumbprints of a vault's public keys, the newest first; or let another key sign from now on."""
    if args.new and args.read_only:
        raise UsageError("--new makes a key, and --read-only changes nothing: give one of them")
    vault = opened(args)
    if args.new:
        vault.renew_key(public_key=args.public_key, actor=actor(args))
    elif args.public_key is not None:
        raise UsageError("--public-key names the public half of a new key: it goes with --new")
    with answering("another key signs from now on") if args.new else nullcontext():
        names, file = vault.public_keys(), vault.places.public
        if args.json:
            terminal.say_json({"keys": names, "file": file, "changes": vault.key_changes()})
        else:
            lines = [("signs now", names[0]), *(("signed before", name) for name in names[1:]), ("public keys", file)]
            terminal.say(terminal.table([(what, str(value)) for what, value in lines]))


def head(args: Namespace) -> None:
    """Print where the ledger ends, signed: published, it shows a ledger that was cut or rewritten later."""
    if args.timestamp is not None and args.out is None:
        raise UsageError("--timestamp needs --out FILE: the answer goes into FILE.tsr")
    from ..vault.certificates import anchors

    if args.timestamp is not None:
        from ..vault.certificates import timestamps  # before anything is done: the extra may not be there
    if args.out is not None:
        anchors.check_new(args.out)
    signed = opened(args).head()
    stamp = None if args.timestamp is None else timestamps.ask(args.timestamp, anchors.stamped_bytes(signed))
    written = [] if args.out is None else anchors.write_head(args.out, signed, stamp)
    if args.json:
        terminal.say_json({"head": signed, "files": written})
    else:
        terminal.say(signed if not written else f"the head is in {terminal.escaped(' and '.join(map(str, written)))}")


def show(args: Namespace) -> None:
    """Show what a certificate, head or report says, without checking who signed it."""
    from ..vault.certificates import jws

    proofs.check_no_receipt(args.file)
    _say_payload(jws.unchecked(jws.read(args.file)), args)
    if not args.json:
        terminal.say("not checked: expunge certificate check tells whether the signature fits")


def check(args: Namespace) -> None:
    """Check the signature of a certificate, head or report, or what a receipt proves about an id; offline."""
    if (args.file is None) == (args.receipt is None):
        raise UsageError("name one file: a certificate, or a receipt with --receipt")
    if args.file is not None:
        proofs.check_no_receipt(args.file)
    if (args.id is None) != (args.receipt is None):
        raise UsageError("--receipt and --id go together: the id is not in the receipt")
    from ..vault.certificates import jws, personal

    public: Path = args.public_key or jws.public_key_beside(args.file or args.receipt)
    keys = jws.load_public(public)
    if args.thumbprint is not None:
        keys = jws.pinned(keys, args.thumbprint)
    receipt = None if args.receipt is None else personal.read(args.receipt)
    text = receipt.certificate if receipt else jws.read(args.file)
    payload = (
        personal.checked_receipt(receipt, args.id, keys)
        if receipt
        else jws.checked(text, keys, types=[jws.type_of(text)])
    )
    _say_payload(payload, args)
    if args.json:
        return
    terminal.say(f"the signature fits {terminal.escaped(public.name)}")
    if receipt is not None:
        terminal.say(f"it was made with the key {jws.header(text)['kid']}")
        terminal.say(proofs.proven(receipt, payload["kind"]))
        if args.thumbprint is None:
            terminal.say(proofs.WHOSE_KEY)


def _say_payload(payload: Mapping[str, Any], args: Namespace) -> None:
    if args.json:
        return terminal.say_json(payload)
    lines = []
    for name, value in payload.items():
        first, *rest = value if isinstance(value, list) and value else [value]
        lines += [(name.replace("_", " "), _plain(name, first)), *(("", _plain(name, one)) for one in rest)]
    return terminal.say(terminal.table(lines))


def _plain(name: str, value: object) -> str:
    """A field of a certificate in plain words; anybody may have written it."""
    if name == "iat" and isinstance(value, int | float):
        from datetime import UTC, datetime

        with suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(value, UTC).isoformat()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "checks" and isinstance(value, dict):
        return f"{'ok' if value.get('ok') is True else 'WRONG'} {value.get('name')}: {value.get('detail')}"
    return str(value)
