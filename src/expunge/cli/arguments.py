"""The parser, the options that several commands share, and the values of options."""

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
    from ..server.database import Database
    from ..vault import Vault
    from ..vault.requests.request import CallerArgs

    Commands: TypeAlias = argparse._SubParsersAction["Parser"]
RunCommand: TypeAlias = Callable[[Namespace], int | None]
AddOptions: TypeAlias = "Callable[[Parser], None]"


class UsageError(Exception):
    """A command line that cannot be understood."""

    exit_code = 2


class StoreOnce(argparse.Action):
    """Store a value and reject an option that is given twice; argparse would silently use the last one."""

    def __call__(self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        if option_string is not None and self in parser.given:
            raise argparse.ArgumentError(self, "given more than once; it takes one value")
        parser.given.add(self)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations that accepts values with a leading dash and raises `UsageError`.

    An option with a value may be given once, unless its action is "append".
    """

    add_options: "AddOptions | None" = None  # called only for the command that runs, to start quickly

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.given = set[argparse.Action]()  # in the current command line
        for name in (None, "store"):
            self.register("action", name, StoreOnce)
        self._negative_number_matcher = re.compile(r"-(\.?\d|inf|nan)", re.IGNORECASE)  # -1e5 and -7x are values

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command with the one that was probably meant; argparse would list them all."""
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:
            super()._check_value(action, value)
            return
        from difflib import get_close_matches

        meant = "".join(f" (did you mean {name}?)" for name in get_close_matches(value, action.choices, n=1))
        self.error(f"there is no command {value!r}{meant}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or version; unlike argparse, raise if it cannot be written."""
        if file is not None and file is sys.stderr:
            super()._print_message(message, file)
        elif message:
            terminal.say(message, end="")

    def complete(self) -> Self:
        """Add the options, once."""
        add_options, self.add_options = self.add_options, None
        if add_options is not None:
            add_options(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        self.given.clear()
        known, rest = super().parse_known_args(self._join_values(sys.argv[1:] if args is None else args), namespace)
        if rest:  # raised here, where the command is known
            self.error(f"unrecognized arguments: {_describe_unknown(rest)}")
        return known, rest

    def _join_values(self, words: Sequence[str]) -> list[str]:
        """Rewrite ``--id -x`` as ``--id=-x``: an id, a column or a file may begin with a dash."""
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
    """Name the unknown options, and only count other words, because any of them may be an id."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    others = len(words) - len(options)
    return " and ".join([*options, *([terminal.pluralize(others, "word", "words")] if others else [])])


def add_command(commands: "Commands", run: RunCommand, *options: AddOptions, name: str | None = None) -> None:
    """Add a command and its options; its help is the docstring of the function that runs it."""

    def add_all(parser: Parser) -> None:
        for add_option in options:
            add_option(parser)

    text = run.__doc__ or ""
    parser = commands.add_parser(name or run.__name__, help=text.split("\n")[0], description=text)
    parser.set_defaults(run=run)
    parser.add_options = add_all


def add_command_group(commands: "Commands", name: str, text: str, register: "Callable[[Commands], None]") -> None:
    """Add a command that has subcommands."""
    group = commands.add_parser(name, help=text, description=text)
    group.add_options = lambda parser: register(add_subcommands(parser))


def add_subcommands(parser: Parser) -> "Commands":
    """Give a parser subcommands; without one, it prints its help and fails with a usage error."""

    def show_help(args: Namespace) -> int:
        parser.print_help(sys.stderr)
        return UsageError.exit_code

    parser.set_defaults(run=show_help)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def add_data(parser: Parser) -> None:
    """Add the table as text; a `Path` would lose a slash of s3://."""
    text = "CSV, Parquet or Arrow: files, globs, folders or URIs such as s3://bucket/folder."
    parser.add_argument("data", metavar="DATA", nargs="+", help=text)


def add_allow_host(parser: Parser) -> None:
    """Add the hosts that webhooks may reach at private addresses."""
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="Allow webhooks to this host although its address is private; may be repeated.",
    )


def add_vault(parser: Parser) -> None:
    """Add the vault, the time to wait for its lock, and the output format."""
    parser.add_argument(
        "--vault", metavar="FOLDER", type=Path, required=True, help="The vault, a folder whose name ends in .vault."
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=parse_seconds,
        default=10.0,
        help="How long to wait for another writer (default: 10).",
    )
    add_json(parser)


def add_read_only(parser: Parser) -> None:
    """Add the option to change nothing."""
    text = "Change nothing; fail with exit code 12 while an accepted request is unfinished."
    parser.add_argument("--read-only", action="store_true", help=text)


def add_key(parser: Parser) -> None:
    """Add the key that signs, or the program that holds it."""
    parser.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help="The private key that signs certificates (default: EXPUNGE_KEY, or the key beside the vault).",
    )
    parser.add_argument(
        "--sign-with",
        metavar="COMMAND",
        help="A command, or unix:PATH of a socket, that holds the key and signs (default: EXPUNGE_SIGN_WITH).",
    )


def add_public_key(parser: Parser) -> None:
    """Add the public half of a key that a program holds."""
    text = "The public half (PEM) of the key that --sign-with holds."
    parser.add_argument("--public-key", metavar="FILE", type=Path, help=text)


def add_caller(parser: Parser) -> None:
    """Add the options that name the requester and the reason."""
    parser.add_argument(
        "--reference",
        metavar="TEXT",
        default="",
        help="Your name for this request, such as a ticket; stored in the ledger.",
    )
    add_actor(parser, "The person who asked for it; stored in the ledger")
    text = "Include --reference and --actor in the certificate."
    parser.add_argument("--in-certificate", action="store_true", help=text)


def add_actor(parser: Parser, what: str) -> None:
    """Add the option that names the person who performs the action."""
    parser.add_argument("--actor", metavar="TEXT", default="", help=f"{what} (default: the current user).")


def actor(args: Namespace) -> str:
    """Return --actor, or the current user."""
    return args.actor or current_user()


def current_user() -> str:
    """Return the name or number of the user of this process."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def add_receipts(parser: Parser) -> None:
    """Add the folder for personal receipts."""
    text = "Write a receipt for each person to this folder; they can check it offline."
    parser.add_argument("--receipts", metavar="DIR", type=Path, help=text)


def add_attest_unknown(parser: Parser) -> None:
    """Add the option for signed statements about unknown ids."""
    text = "Skip ids that are not in the vault, and write a signed statement about each to --receipts."
    parser.add_argument("--attest-unknown", action="store_true", help=text)


def signing_options(args: Namespace) -> dict[str, Any]:
    """Return the signer named by an option or, without one, by an environment variable."""
    key, command = getattr(args, "key", None), getattr(args, "sign_with", None)
    if key is None and command is None:
        key, command = os.environ.get("EXPUNGE_KEY") or None, os.environ.get("EXPUNGE_SIGN_WITH") or None
    return {"key": key, "sign_with": command}


def caller_options(args: Namespace) -> "CallerArgs":
    """Return the requester and the reason. A certificate is public, so it names the current user only on request."""
    if args.in_certificate and not (args.reference or args.actor):
        raise UsageError("--in-certificate needs --reference or --actor")
    name = args.actor if args.in_certificate else actor(args)
    return {"reference": args.reference, "actor": name, "in_certificate": args.in_certificate}


def add_json(parser: Parser) -> None:
    """Add the option for JSON output."""
    parser.add_argument("--json", action="store_true", help="Print JSON; errors as well.")


def add_ids(parser: Parser) -> None:
    """Add the options that name ids."""
    parser.add_argument("--id", metavar="ID", action="append", default=[], help="An id; may be repeated.")
    parser.add_argument(
        "--ids-from",
        metavar="FILE",
        type=Path,
        help="A file with one id per line, in UTF-8; - reads standard input.",
    )


def add_skip_erased(parser: Parser) -> None:
    """Add the option to skip rows of erased people."""
    parser.add_argument("--skip-erased", action="store_true", help="Skip rows of erased ids instead of failing.")


def add_targets(parser: Parser) -> None:
    """Add the columns to predict."""
    parser.add_argument("--target", metavar="COLUMN", action="append", help="The column to predict; may be repeated.")


def add_id_column(parser: Parser) -> None:
    """Add the column of the ids, under its old name as well."""
    parser.add_argument("--id-column", metavar="COLUMN", help="The column with the ids.")
    parser.add_argument("--id", dest="old_id", metavar="COLUMN", help="Deprecated: use --id-column.")


def whole_number(minimum: int, maximum: int = 2**63) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise ArgumentTypeError(f"must be a whole number of at least {minimum}, got {text!r}")
        if number > maximum:
            raise ArgumentTypeError(f"must be at most {maximum:,}, got {text!r}")
        return number

    return parse


def parse_seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return number


def parse_share(text: str) -> float:
    """Parse a share from 0 to 1, as a number or in per cent; 5 would be 500 % and is rejected."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"must be a share from 0 to 1, such as 0.05 or 5%, got {text!r}")
    return number


def read_ids(args: Namespace) -> list[str]:
    """Return the ids of options and of a file, in the order given."""
    from ..errors import InvalidInput

    ids = list(args.id)
    if args.ids_from is not None:
        ids += _read_id_lines(args.ids_from)
    if not ids:
        raise InvalidInput("give at least one id, with --id or --ids-from")
    return ids


def _read_id_lines(path: Path) -> list[str]:
    """Return the ids in a file or on standard input, one per line."""
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
        raise InvalidInput(f"{path}: not UTF-8; write one id per line, in UTF-8") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def read_id_column(args: Namespace) -> str | None:
    """Return the column of the ids, from --id-column or its old name."""
    if args.old_id is None:
        return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types
    if args.id_column not in (None, args.old_id):
        raise UsageError("--id is the old name of --id-column: give only one of them")
    terminal.note("--id is deprecated here and will be removed in the next release; use --id-column")
    args.id_column, args.old_id = args.old_id, None  # so that the note is printed once
    return args.id_column  # type: ignore[no-any-return]  # a Namespace has no types


def open_vault(args: Namespace) -> "Vault":
    """Open the vault and print its notes."""
    from ..vault import Vault

    read_only = getattr(args, "read_only", False)
    vault = Vault.open(args.vault, **signing_options(args), wait=args.wait, read_only=read_only)
    for text in vault.notes:
        terminal.note(text)
    return vault


@contextmanager
def open_queue(vault: "Vault") -> "Iterator[Database]":
    """Open the database of the vault's service, and close it."""
    from ..server.database import Database, queue_path

    database = Database(queue_path(vault.places.vault))
    try:
        yield database
    finally:
        database.close()


def add_cluster(parser: Parser) -> None:
    """Add the workers or the Dask cluster that share the work."""
    parser.add_argument(
        "--workers", metavar="NUMBER", type=whole_number(1, 10_000), help="Start this many processes to share the work."
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="Share the work with a Dask cluster, such as tls://host:8786."
    )
    for name, what in (
        ("ca", "certificate authority"),
        ("cert", "certificate of this process"),
        ("key", "key of --tls-cert"),
    ):
        parser.add_argument(f"--tls-{name}", metavar="FILE", type=Path, help=f"The {what} (PEM), for --dask tls://.")
    text = "Allow --dask on another machine without TLS: anyone on the network can then run code there."
    parser.add_argument("--insecure", action="store_true", help=text)


def check_cluster(args: Namespace) -> None:
    """Reject options that cannot work, before anything that takes time."""
    if args.dask is None and (args.insecure or args.tls_ca or args.tls_cert or args.tls_key):
        raise UsageError("--tls-ca, --tls-cert, --tls-key and --insecure need --dask")
    if args.workers is not None and args.dask is not None:
        raise UsageError("--workers starts a cluster and --dask joins one: give only one of them")
    if args.dask is not None:
        _import_engine().make_security(args.dask, **_tls_options(args))
    elif args.workers is not None:
        _import_engine()


@contextmanager
def open_cluster(args: Namespace) -> Iterator[Any]:
    """Yield the cluster named by the options, or None."""
    check_cluster(args)
    if args.workers is None and args.dask is None:
        yield None
        return
    engine = _import_engine()
    own = args.workers is not None
    with engine.own_cluster(args.workers) if own else engine.joined_cluster(args.dask, **_tls_options(args)) as cluster:
        yield cluster
        if cluster.lost_count:
            lost = terminal.pluralize(cluster.lost_count, "worker was", "workers were")
            terminal.note(f"{lost} lost; other workers repeated their tasks")


def _tls_options(args: Namespace) -> dict[str, Any]:
    return {"ca": args.tls_ca, "cert": args.tls_cert, "key": args.tls_key, "insecure": args.insecure}


def _import_engine() -> Any:
    try:
        from ..distributed import cluster
    except ImportError as error:
        raise UsageError(f"workers need {error.name}, which is not installed: pip install 'expunge[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # the command prints one line instead
    warnings.filterwarnings("ignore", module="distributed")
    return cluster
