"""What commands share on the command line: the parser, options, and values that options take."""

import argparse
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from . import terminal

if TYPE_CHECKING:
    from ..vault import Vault
    from ..vault.requests.caller import Said

    Commands: TypeAlias = argparse._SubParsersAction["Parser"]
Run: TypeAlias = Callable[[Namespace], int | None]
Fill: TypeAlias = "Callable[[Parser], None]"


class UsageError(Exception):
    """A command line that cannot be understood."""

    exit_code = 2


class StoreOnce(argparse.Action):
    """Store a value, and refuse an option that is given twice: argparse would silently take the last."""

    def __call__(self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        if option_string is not None and self in parser.given:
            raise argparse.ArgumentError(self, "given more than once; it takes one value")
        parser.given.add(self)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that knows no abbreviations, takes values that begin with a dash, and raises what is wrong.

    An option with a value may be given once, unless its action is "append".
    """

    fill: "Fill | None" = None  # adds the options as soon as they are needed: most commands are not the one that is run

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.given = set[argparse.Action]()  # in the command line that is being read
        for name in (None, "store"):
            self.register("action", name, StoreOnce)
        self._negative_number_matcher = re.compile(r"-(\.?\d|inf|nan)", re.IGNORECASE)  # -1e5 and -7x are values, too

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help or the version; argparse itself keeps silent if it cannot be written."""
        if file is not None and file is sys.stderr:
            super()._print_message(message, file)
        elif message:
            terminal.say(message, end="")

    def complete(self) -> Self:
        """Add the options, unless that was done."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        self.given.clear()
        known, rest = super().parse_known_args(self._joined(sys.argv[1:] if args is None else args), namespace)
        if rest:  # said here, where the command is known
            self.error(f"unrecognized arguments: {_named(rest)}")
        return known, rest

    def _joined(self, words: Sequence[str]) -> list[str]:
        """Write ``--id -x`` as ``--id=-x``: an id, a column or a file may begin with a dash."""
        known, joined = self._option_string_actions, list[str]()
        for word in words:
            before = known.get(joined[-1]) if joined else None
            takes_value = before is not None and before.nargs is None
            if takes_value and re.match(r"-[^-]", word) and word not in known:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined


def _named(words: Sequence[str]) -> str:
    """The options among words that nobody knows, and how many others there are: any of those may be an id."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    others = len(words) - len(options)
    return " and ".join([*options, *([terminal.counted(others, "word", "words")] if others else [])])


def command(commands: "Commands", run: Run, *options: Fill, name: str | None = None) -> None:
    """Add a command and what it takes; its help is the docstring of the function that runs it."""

    def fill(parser: Parser) -> None:
        for add in options:
            add(parser)

    text = run.__doc__ or ""
    added = commands.add_parser(name or run.__name__, help=text.split("\n")[0], description=text)
    added.set_defaults(run=run)
    added.fill = fill


def group(commands: "Commands", name: str, text: str, fill: "Callable[[Commands], None]") -> None:
    """Add a command that has commands of its own."""
    added = commands.add_parser(name, help=text, description=text)
    added.fill = lambda parser: fill(below(parser))


def below(parser: Parser) -> "Commands":
    """Let a parser have commands; without one it shows its help and is a usage error."""

    def show_help(args: Namespace) -> int:
        parser.print_help(sys.stderr)
        return UsageError.exit_code

    parser.set_defaults(run=show_help)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


# Options


def add_data(parser: Parser) -> None:
    """The table. Words stay text: a path would lose a slash of s3://."""
    text = "CSV, Parquet or Arrow: files, globs, folders or URIs such as s3://bucket/folder."
    parser.add_argument("data", metavar="DATA", nargs="+", help=text)


def add_hosts(added: Parser) -> None:
    """Add the option for hosts that webhooks may reach at private addresses."""
    added.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="A host that may be posted to although its address is private; may repeat.",
    )


def add_vault(parser: Parser) -> None:
    """The vault, how long to wait for it, and the form of the answer."""
    parser.add_argument(
        "--vault", metavar="FOLDER", type=Path, required=True, help="The vault, a folder whose name ends in .vault."
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", type=seconds, default=10.0, help="Time to wait for another writer (default: 10)."
    )
    add_json(parser)


def add_read_only(parser: Parser) -> None:
    """Whether the command may change anything."""
    text = "Change nothing at all; refuse (exit code 12) while an accepted request is not finished."
    parser.add_argument("--read-only", action="store_true", help=text)


def add_key(parser: Parser) -> None:
    """The key that signs."""
    parser.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help="The private key that signs certificates; default: EXPUNGE_KEY, or the one beside the vault.",
    )
    parser.add_argument(
        "--sign-with",
        metavar="COMMAND",
        help="A command, or unix:PATH of a socket, that holds the key and signs; default: EXPUNGE_SIGN_WITH.",
    )


def add_public_key(parser: Parser) -> None:
    """The public half of a key that a program holds."""
    text = "The public half (PEM) of the key that --sign-with holds."
    parser.add_argument("--public-key", metavar="FILE", type=Path, help=text)


def add_caller(parser: Parser) -> None:
    """Who asked, and why."""
    parser.add_argument(
        "--reference", metavar="TEXT", default="", help="What you call this request, such as a ticket; for the ledger."
    )
    add_actor(parser, "Who asked for it, for the ledger")
    text = "Say both in the certificate, too."
    parser.add_argument("--in-certificate", action="store_true", help=text)


def add_actor(parser: Parser, what: str) -> None:
    """Who it is that does something."""
    parser.add_argument("--actor", metavar="TEXT", default="", help=f"{what}; default: the user of this process.")


def actor(args: Namespace) -> str:
    """Return who does something: what --actor says, or the user that runs this process, or its number."""
    import getpass

    try:
        return args.actor or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def add_receipts(parser: Parser) -> None:
    """Receipts for the people."""
    text = "Write a receipt for each person into this folder, which they can check offline."
    parser.add_argument("--receipts", metavar="DIR", type=Path, help=text)


def add_attest(parser: Parser) -> None:
    """Statements about ids that are not there."""
    text = "Leave out ids that are not in the vault, and write a signed statement that says so into --receipts."
    parser.add_argument("--attest-unknown", action="store_true", help=text)


def signing(args: Namespace) -> dict[str, Any]:
    """Who signs: what an option names, or what a variable does."""
    key, command = getattr(args, "key", None), getattr(args, "sign_with", None)
    if key is None and command is None:
        key, command = os.environ.get("EXPUNGE_KEY") or None, os.environ.get("EXPUNGE_SIGN_WITH") or None
    return {"key": key, "sign_with": command}


def said(args: Namespace) -> "Said":
    """Return what the caller says. A certificate is handed out: it names the user of this process only if asked to."""
    if args.in_certificate and not (args.reference or args.actor):
        raise UsageError("--in-certificate says what --reference and --actor say: give one of them")
    who = args.actor if args.in_certificate else actor(args)
    return {"reference": args.reference, "actor": who, "in_certificate": args.in_certificate}


def add_json(parser: Parser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs; errors, too.")


def add_ids(parser: Parser) -> None:
    """The people."""
    parser.add_argument("--id", metavar="ID", action="append", default=[], help="An id; may be given many times.")
    parser.add_argument(
        "--ids-from",
        metavar="FILE",
        type=Path,
        help="A file with one id per line, in UTF-8; - reads standard input.",
    )


def add_skip_erased(parser: Parser) -> None:
    """What to do about rows of people who were erased."""
    parser.add_argument("--skip-erased", action="store_true", help="Leave out rows of erased ids instead of refusing.")


def add_targets(parser: Parser) -> None:
    """The columns to predict."""
    parser.add_argument("--target", metavar="COLUMN", action="append", help="The column to predict; may be repeated.")


def add_id_column(parser: Parser) -> None:
    """The column that says whose a row is, under its old name as well."""
    parser.add_argument("--id-column", metavar="COLUMN", help="The column of the ids.")
    parser.add_argument("--id", dest="old_id", metavar="COLUMN", help="The old name of --id-column, soon removed.")


# Values


def whole(least: int, most: int = 2**63) -> Callable[[str], int]:
    """Whole numbers from ``least`` to ``most``."""

    def value(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        if number > most:
            raise ArgumentTypeError(f"must be at most {most:,}, got {text!r}")
        return number

    return value


def seconds(text: str) -> float:
    """Read a time to wait."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return number


def share(text: str) -> float:
    """Read a share from 0 to 1, as a number or in per cent; 5 would be 500 %, which nobody means."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"must be a share from 0 to 1, such as 0.05 or 5%, got {text!r}")
    return number


def ids(args: Namespace) -> list[str]:
    """The ids of options and of a file, in the order given."""
    from ..errors import InvalidInput

    found = list(args.id)
    if args.ids_from is not None:
        found += _lines(args.ids_from)
    if not found:
        raise InvalidInput("name at least one id, with --id or --ids-from")
    return found


def _lines(path: Path) -> list[str]:
    """The ids in a file or on standard input, one per line."""
    from ..errors import InvalidInput
    from ..vault.tables import id_lines

    if str(path) != "-":
        data = path.read_bytes()
    elif sys.stdin is None:
        raise InvalidInput("--ids-from - reads standard input, which is closed")
    else:
        data = sys.stdin.buffer.read()
    try:
        return id_lines(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not UTF-8 text; give one id per line, in UTF-8") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def id_column(args: Namespace) -> str | None:
    """The column of the ids, by its new name or its old one."""
    if args.old_id is None:
        return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types
    if args.id_column not in (None, args.old_id):
        raise UsageError("--id is the old name of --id-column: give one of them")
    terminal.note("--id is now --id-column here; the old name will be removed in the next release")
    args.id_column, args.old_id = args.old_id, None  # said once
    return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types


def opened(args: Namespace) -> "Vault":
    """Open the vault, and show what it has to say."""
    from ..vault import Vault

    read_only = getattr(args, "read_only", False)
    vault = Vault.open(args.vault, **signing(args), wait=args.wait, read_only=read_only)
    for text in vault.notes:
        terminal.note(text)
    return vault
