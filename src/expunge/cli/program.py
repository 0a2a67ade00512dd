"""The program: parse the command line, run the command, flush, and report an error in one line.

Standard output is flushed before the exit code is decided. Output that cannot be written is then discarded: if the
interpreter flushed it at exit, a failure would replace the exit code by 120.
"""

from collections.abc import Callable

from ..versions import version_line
from . import REQUEST_COMMANDS, certificates, matters, paper, planning, queries, receipts, requests, service, terminal
from .arguments import Parser, UsageError, add_subcommands


def build_parser() -> Parser:
    """Build the parser of all commands; `Parser` adds their options when they are needed."""
    parser = Parser(prog="expunge", description="Regression models that can forget.")
    parser.add_argument("--version", action="version", version=version_line(), help="Print the version.")
    commands = add_subcommands(parser)
    for register in (
        requests.register,
        planning.register,
        queries.register,
        receipts.register,
        certificates.register,
        requests.register_backup,
        service.register,
        service.register_webhooks,
        matters.register,
        service.register_aliases,
        paper.register,
    ):
        register(commands)
    return parser


_EXTRAS = {"rfc3161_client": "timestamp", "matplotlib": "plan"}  # other packages are in the extra "vault"


def run(words: list[str], interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run a command, flush its output, and return its exit code."""
    terminal.prepare()
    try:
        code = _run_command(words)
        terminal.flush()
        return code
    except BrokenPipeError:  # the reader of the pipe has left; requests raise AnswerLost instead
        return 1
    except Exception as error:
        if interrupted():  # a library replaced KeyboardInterrupt, as NumPy does during import
            raise KeyboardInterrupt from error
        kind, text, code = _explain_error(error, words)
        terminal.complain(kind, text, code, as_json="--json" in words)
        return code
    finally:
        terminal.release()


def _run_command(words: list[str]) -> int:
    try:
        args = build_parser().parse_args(words)
    except SystemExit:  # after --help and --version; errors are raised as UsageError
        return 0
    code: int | None = args.run(args)
    return code or 0


def _explain_error(error: Exception, words: list[str]) -> tuple[str, str, int]:
    """Return an error's name, message and exit code; raise it again if it is unexpected."""
    kind = type(error).__name__
    if isinstance(error, UsageError):
        return kind, str(error), error.exit_code
    from ..errors import ExpungeError  # imported late, because --help and usage errors do not need it

    if isinstance(error, ExpungeError):
        return error.public_name(), str(error), error.exit_code
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return kind, (f"{error.filename}: {reason}" if error.filename else reason) + _suggest_remedy(error, words), 1
    if kind in ("OperationalError", "DatabaseError") and type(error).__module__ == "sqlite3":
        return kind, f"the database of the service cannot be used: {error}", 1
    if isinstance(error, MemoryError):
        return kind, "there is not enough memory", 1
    if isinstance(error, ModuleNotFoundError) and not (error.name or "expunge").startswith("expunge"):
        extra = "paper" if words[:1] == ["paper"] else _EXTRAS.get(str(error.name), "vault")
        return kind, f"this command needs {error.name}: pip install 'expunge[{extra}]'", 1
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):  # for instance without memory
        return kind, f"a library could not be loaded: {error.__cause__ or error}", 1
    raise error


def _suggest_remedy(error: OSError, words: list[str]) -> str:
    """Return what to add to a system error: that nothing was changed, or what to try."""
    command, locked = "".join(words[:1]), str(error.filename).endswith(".ledger")
    if command in REQUEST_COMMANDS and not {"-h", "--help"} & {*words}:
        return "; nothing was changed"
    if (
        command in ("find", "verify", "evaluate")
        and isinstance(error, PermissionError)
        and locked
        and "--read-only" not in words
    ):
        return "; with --read-only nothing needs to be written"
    return ""
