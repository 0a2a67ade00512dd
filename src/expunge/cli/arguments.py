"""What commands share on the command line: the parser, options, and values that options take."""

import argparse
import logging
import os
import re
import sys
import warnings
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from . import terminal

if TYPE_CHECKING:
    from ..vault import Vault
    from ..vault.requests.request import CallerArgs

    Commands: TypeAlias = argparse._SubParsersAction["Parser"]
RunCommand: TypeAlias = Callable[[Namespace], int | None]
AddOptions: TypeAlias = "Callable[[Parser], None]"


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

    add_options: "AddOptions | None" = (
        None  # adds the options as soon as they are needed: most commands are not the one that is run
    )

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
        fill, self.add_options = self.add_options, None
        if fill is not None:
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        self.given.clear()
        known, rest = super().parse_known_args(self._join_values(sys.argv[1:] if args is None else args), namespace)
        if rest:  # said here, where the command is known
            self.error(f"unrecognized arguments: {_describe_unknown(rest)}")
        return known, rest

    def _join_values(self, words: Sequence[str]) -> list[str]:
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


def _describe_unknown(words: Sequence[str]) -> str:
    """The options among words that nobody knows, and how many others there are: any of those may be an id."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    others = len(words) - len(options)
    return " and ".join([*options, *([terminal.pluralize(others, "word", "words")] if others else [])])


def add_command(commands: "Commands", run: RunCommand, *options: AddOptions, name: str | None = None) -> None:
    """Add a command and what it takes; its help is the docstring of the function that runs it."""

    def fill(parser: Parser) -> None:
        for add in options:
            add(parser)

    text = run.__doc__ or ""
    added = commands.add_parser(name or run.__name__, help=text.split("\n")[0], description=text)
    added.set_defaults(run=run)
    added.add_options = fill


def add_command_group(commands: "Commands", name: str, text: str, fill: "Callable[[Commands], None]") -> None:
    """Add a command that has commands of its own."""
    added = commands.add_parser(name, help=text, description=text)
    added.add_options = lambda parser: fill(add_subcommands(parser))


def add_subcommands(parser: Parser) -> "Commands":
    """Let a parser have commands; without one it shows its help and is a usage error."""

    def show_help(args: Namespace) -> int:
        parser.print_help(sys.stderr)
        return UsageError.exit_code

    parser.set_defaults(run=show_help)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def add_data(parser: Parser) -> None:
    """The table. Words stay text: a path would lose a slash of s3://."""
    text = "CSV, Parquet or Arrow: files, globs, folders or URIs such as s3://bucket/folder."
    parser.add_argument("data", metavar="DATA", nargs="+", help=text)


def add_allow_host(parser: Parser) -> None:
    """Add the option for hosts that webhooks may reach at private addresses."""
    parser.add_argument(
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
        "--wait",
        metavar="SECONDS",
        type=parse_seconds,
        default=10.0,
        help="Time to wait for another writer (default: 10).",
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


def add_attest_unknown(parser: Parser) -> None:
    """Statements about ids that are not there."""
    text = "Leave out ids that are not in the vault, and write a signed statement that says so into --receipts."
    parser.add_argument("--attest-unknown", action="store_true", help=text)


def signing_options(args: Namespace) -> dict[str, Any]:
    """Who signs: what an option names, or what a variable does."""
    key, command = getattr(args, "key", None), getattr(args, "sign_with", None)
    if key is None and command is None:
        key, command = os.environ.get("EXPUNGE_KEY") or None, os.environ.get("EXPUNGE_SIGN_WITH") or None
    return {"key": key, "sign_with": command}


def caller_options(args: Namespace) -> "CallerArgs":
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


def whole_number(minimum: int, maximum: int = 2**63) -> Callable[[str], int]:
    """Whole numbers from ``least`` to ``most``."""

    def value(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise ArgumentTypeError(f"must be a whole number of at least {minimum}, got {text!r}")
        if number > maximum:
            raise ArgumentTypeError(f"must be at most {maximum:,}, got {text!r}")
        return number

    return value


def parse_seconds(text: str) -> float:
    """Read a time to wait."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return number


def parse_share(text: str) -> float:
    """Read a share from 0 to 1, as a number or in per cent; 5 would be 500 %, which nobody means."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"must be a share from 0 to 1, such as 0.05 or 5%, got {text!r}")
    return number


def read_ids(args: Namespace) -> list[str]:
    """The ids of options and of a file, in the order given."""
    from ..errors import InvalidInput

    found = list(args.id)
    if args.ids_from is not None:
        found += _read_id_lines(args.ids_from)
    if not found:
        raise InvalidInput("name at least one id, with --id or --ids-from")
    return found


def _read_id_lines(path: Path) -> list[str]:
    """The ids in a file or on standard input, one per line."""
    from ..errors import InvalidInput
    from ..tables import parse_id_list

    if str(path) != "-":
        data = path.read_bytes()
    elif sys.stdin is None:
        raise InvalidInput("--ids-from - reads standard input, which is closed")
    else:
        data = sys.stdin.buffer.read()
    try:
        return parse_id_list(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not UTF-8 text; give one id per line, in UTF-8") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def read_id_column(args: Namespace) -> str | None:
    """The column of the ids, by its new name or its old one."""
    if args.old_id is None:
        return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types
    if args.id_column not in (None, args.old_id):
        raise UsageError("--id is the old name of --id-column: give one of them")
    terminal.note("--id is now --id-column here; the old name will be removed in the next release")
    args.id_column, args.old_id = args.old_id, None  # said once
    return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types


def open_vault(args: Namespace) -> "Vault":
    """Open the vault, and show what it has to say."""
    from ..vault import Vault

    read_only = getattr(args, "read_only", False)
    vault = Vault.open(args.vault, **signing_options(args), wait=args.wait, read_only=read_only)
    for text in vault.notes:
        terminal.note(text)
    return vault


def add_cluster(parser: Parser) -> None:
    """Who helps."""
    parser.add_argument(
        "--workers", metavar="NUMBER", type=whole_number(1, 10_000), help="Start so many processes that share the work."
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="Share the work with a Dask cluster, such as tls://host:8786."
    )
    for name, what in (("ca", "certificate authority"), ("cert", "own certificate"), ("key", "key of --tls-cert")):
        parser.add_argument(f"--tls-{name}", metavar="FILE", type=Path, help=f"The {what} (PEM), for --dask tls://.")
    text = "Let --dask be a scheduler on another machine without TLS: anybody on the network can run code there."
    parser.add_argument("--insecure", action="store_true", help=text)


def check_cluster(args: Namespace) -> None:
    """Refuse options that cannot work, before anything that takes time."""
    if args.dask is None and (args.insecure or args.tls_ca or args.tls_cert or args.tls_key):
        raise UsageError("--tls-ca, --tls-cert, --tls-key and --insecure go with --dask")
    if args.workers is not None and args.dask is not None:
        raise UsageError("--workers starts a cluster and --dask joins one: give one of them")
    if args.dask is not None:
        _import_engine().security_for(args.dask, **_tls_options(args))
    elif args.workers is not None:
        _import_engine()


@contextmanager
def open_cluster(args: Namespace) -> Iterator[Any]:
    """Yield the cluster that options name, or None."""
    check_cluster(args)
    if args.workers is None and args.dask is None:
        yield None
        return
    with _connect(args) as found:
        yield found
        if found.lost_count:
            lost = terminal.pluralize(found.lost_count, "worker was", "workers were")
            terminal.note(f"{lost} lost; others did their work again")


def _connect(args: Namespace) -> Any:
    if args.workers is not None:
        return _import_engine().own_cluster(args.workers)
    return _import_engine().joined_cluster(args.dask, **_tls_options(args))


def _tls_options(args: Namespace) -> dict[str, Any]:
    return {"ca": args.tls_ca, "cert": args.tls_cert, "key": args.tls_key, "insecure": args.insecure}


def _import_engine() -> Any:
    try:
        from ..distributed import cluster
    except ImportError as error:
        raise UsageError(f"workers need {error.name}, which is not installed: pip install 'expunge[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # what it means is told in one line
    warnings.filterwarnings("ignore", module="distributed")
    return cluster
