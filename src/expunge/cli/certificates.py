"""``expunge key``, ``head`` and ``certificate``: keys, signed statements, and what a personal receipt proves."""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    actor,
    add_actor,
    add_command,
    add_command_group,
    add_json,
    add_key,
    add_public_key,
    add_read_only,
    add_vault,
    open_vault,
)

if TYPE_CHECKING:
    from ..vault.certificates.personal_receipts import PersonalReceipt
    from .arguments import Commands

_PROVEN_ACTIONS = {
    "unlearn": "erased the rows of exactly this id",
    "rectify": "replaced the rows of exactly this id",
    "add": "added rows of exactly this id",
    "readmit": "allowed exactly this id, which had been erased, to be added again",
}
_LIMITS_OF_PROOF = (
    "This is the operator's signed statement about this vault, and no more: "
    "it does not prove that this vault is the one in use, or that no copy of it exists."
)
_COMPARE_THUMBPRINT = "anyone can create a key: compare the thumbprint above with one that you know from elsewhere"


def register(commands: "Commands") -> None:
    """Add the commands of this module."""
    add_command(commands, key, _add_new, _add_actor, add_public_key, add_key, add_read_only, add_vault)
    add_command(commands, head, _add_head, add_key, add_vault)
    add_command_group(commands, "certificate", "Show and check certificates, offline.", _register_certificate_commands)


def _register_certificate_commands(commands: "Commands") -> None:
    add_command(commands, show, _add_file, add_json)
    add_command(commands, check, _add_file_or_receipt, _add_checking_keys, add_json)
    add_command(commands, page, add_json)


def _add_new(parser: Parser) -> None:
    text = "Sign with another key from now on: a new pair, or the key given by --key or --sign-with."
    parser.add_argument("--new", action="store_true", help=text)


def _add_actor(parser: Parser) -> None:
    add_actor(parser, "The person who asks for the new key; stored in the ledger")


def _add_head(parser: Parser) -> None:
    parser.add_argument("--out", metavar="FILE", type=Path, help="A new file for the head; default: standard output.")
    text = "Get a timestamp of the head from this RFC 3161 authority; it is written to FILE.tsr."
    parser.add_argument("--timestamp", metavar="URL", help=text)


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="A certificate, a head or a report.")


def _add_file_or_receipt(parser: Parser) -> None:
    """Add the file to check."""
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="A certificate.")
    text = "A personal receipt to check instead of a certificate; needs --id."
    parser.add_argument("--receipt", metavar="FILE", type=Path, help=text)
    parser.add_argument("--id", metavar="ID", help="The id that the receipt must be for.")


def _add_checking_keys(parser: Parser) -> None:
    """Add the keys to check with."""
    text = "The public keys (PEM); default: the file beside the certificate's folder."
    parser.add_argument("--public-key", metavar="FILE", type=Path, help=text)
    text = "Accept only the key with this thumbprint (RFC 7638), which you know from elsewhere."
    parser.add_argument("--thumbprint", metavar="KID", help=text)


def key(args: Namespace) -> None:
    """Show the thumbprints of a vault's public keys, newest first; or sign with another key from now on."""
    if args.new and args.read_only:
        raise UsageError("--new changes the key and --read-only changes nothing: give only one of them")
    vault = open_vault(args)
    if args.new:
        vault.renew_key(public_key=args.public_key, actor=actor(args))
    elif args.public_key is not None:
        raise UsageError("--public-key is the public half of a new key: it needs --new")
    with terminal.guard_answer("the signing key was changed") if args.new else nullcontext():
        names, file = vault.public_keys(), vault.places.public
        if args.json:
            terminal.say_json({"keys": names, "file": file, "changes": vault.key_changes()})
        else:
            lines = [
                ("signs now", names[0]),
                *(("signed before", name) for name in names[1:]),
                ("public keys", str(file)),
            ]
            terminal.say(terminal.format_table(lines))


def head(args: Namespace) -> None:
    """Print the signed end of the ledger; publish it, and later truncation or rewriting can be detected."""
    if args.timestamp is not None and args.out is None:
        raise UsageError("--timestamp needs --out FILE: the timestamp is written to FILE.tsr")
    from ..vault.certificates import statements

    if args.timestamp is not None:
        from ..vault.certificates import timestamps  # first of all, because the extra may not be installed
    if args.out is not None:
        statements.check_head_path(args.out)
    signed = open_vault(args).head()
    stamp = (
        None
        if args.timestamp is None
        else timestamps.request_timestamp(args.timestamp, statements.stamped_bytes(signed))
    )
    written = [] if args.out is None else statements.write_head(args.out, signed, stamp)
    if args.json:
        terminal.say_json({"head": signed, "files": written})
    else:
        terminal.say(signed if not written else f"head: {terminal.escape(' and '.join(map(str, written)))}")


def show(args: Namespace) -> None:
    """Show the content of a certificate, head or report, without checking its signature."""
    from ..vault.certificates import jws

    _refuse_receipt(args.file)
    _print_payload(jws.unverified_payload(jws.read_statement(args.file)), args)
    if not args.json:
        terminal.say("the signature was not checked; run expunge certificate check")


def check(args: Namespace) -> None:
    """Check the signature of a certificate, head or report, or what a receipt proves about an id, offline."""
    if (args.file is None) == (args.receipt is None):
        raise UsageError("give one file: a certificate, or a receipt with --receipt")
    if args.file is not None:
        _refuse_receipt(args.file)
    if (args.id is None) != (args.receipt is None):
        raise UsageError("--receipt and --id need each other: a receipt does not contain the id")
    from ..vault.certificates import jws, personal_receipts

    public: Path = args.public_key or jws.find_public_key_file(args.file or args.receipt)
    keys = jws.load_public_keys(public)
    if args.thumbprint is not None:
        keys = jws.select_pinned_key(keys, args.thumbprint)
    receipt = None if args.receipt is None else personal_receipts.read_receipt(args.receipt)
    text = receipt.certificate if receipt else jws.read_statement(args.file)
    payload = (
        personal_receipts.verify_receipt(receipt, args.id, keys)
        if receipt
        else jws.verify_statement(text, keys, types=[jws.statement_type(text)])
    )
    _print_payload(payload, args)
    if args.json:
        return
    terminal.say(f"the signature is valid for {terminal.escape(public.name)}")
    if receipt is not None:
        terminal.say(f"signed with the key {jws.unverified_header(text)['kid']}")
        terminal.say(_describe_proof(receipt, payload["kind"]))
        if args.thumbprint is None:
            terminal.say(_COMPARE_THUMBPRINT)


def page(args: Namespace) -> None:
    """Print the HTML page that checks receipts in a browser; save it as a file."""
    from ..vault.certificates.personal_receipts import offline_checker_page as html

    if args.json:
        terminal.say_json({"html": html()})
    else:
        terminal.say(html(), end="")


def _refuse_receipt(file: Path) -> None:
    """Raise if the file is a receipt instead of a certificate, and say how to check it."""
    from ..errors import ExpungeError, InvalidCertificate
    from ..vault.certificates import personal_receipts

    try:
        personal_receipts.read_receipt(file)
    except (ExpungeError, OSError):  # not a receipt: reading it as a certificate reports what is wrong
        return
    raise InvalidCertificate(f"this is a receipt: check it with --receipt {file} --id ID")


def _describe_proof(receipt: "PersonalReceipt", kind: str) -> str:
    """Describe what a verified receipt proves."""
    if kind in _PROVEN_ACTIONS:
        proven = f"request {receipt.request} to vault {receipt.vault} {_PROVEN_ACTIONS[kind]}"
        return f"the receipt is for this id: {proven}\n{_LIMITS_OF_PROOF}"
    state = (
        f"as of request {receipt.request}, vault {receipt.vault} had no row of exactly this id and no tombstone for it"
    )
    return f"the receipt is for this id, which is not known here: nothing was erased; {state}\n{_LIMITS_OF_PROOF}"


def _print_payload(payload: Mapping[str, Any], args: Namespace) -> None:
    if args.json:
        return terminal.say_json(payload)
    lines = []
    for name, value in payload.items():
        first, *rest = value if isinstance(value, list) and value else [value]
        lines += [
            (name.replace("_", " "), _format_field(name, first)),
            *(("", _format_field(name, item)) for item in rest),
        ]
    return terminal.say(terminal.format_table(lines))


def _format_field(name: str, value: object) -> str:
    """Format a field of a certificate, which is untrusted input."""
    if name == "iat" and isinstance(value, int | float):
        from datetime import UTC, datetime

        with suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(value, UTC).isoformat()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "checks" and isinstance(value, dict):
        return f"{'ok' if value.get('ok') is True else 'WRONG'} {value.get('name')}: {value.get('detail')}"
    return str(value)
