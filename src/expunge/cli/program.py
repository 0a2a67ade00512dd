"""From words to an exit code: parse, run the command, flush, and say in one line what went wrong.

Standard output is flushed before the exit code is decided. What cannot be written then is thrown away, so that the
interpreter has nothing left to flush at its end, which would end the process with its own code (120).
"""

from collections.abc import Callable

from ..versions import version_line
from . import REQUEST_COMMANDS, certificates, matters, paper, planning, queries, receipts, requests, service, terminal
from .arguments import Parser, UsageError, add_subcommands


def build_parser() -> Parser:
    """All commands and options."""
    made = Parser(prog="expunge", description="Regression models that can forget.")
    made.add_argument("--version", action="version", version=version_line(), help="Print the version.")
    commands = add_subcommands(made)
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
    return made


_EXTRAS = {"rfc3161_client": "timestamp", "matplotlib": "plan"}  # what is not of the vault's own


def run(words: list[str], interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run a command; returns its exit code, after everything that it said has left the process."""
    terminal.prepare()
    try:
        code = _run_command(words)
        terminal.flush()
        return code
    except BrokenPipeError:  # whoever read the answer has seen enough; a request says AnswerLost instead
        return 1
    except Exception as error:
        if interrupted():  # a library made another error of Ctrl-C, as NumPy does while it is imported
            raise KeyboardInterrupt from error
        kind, text, code = _explain_error(error, words)
        terminal.complain(kind, text, code, as_json="--json" in words)
        return code
    finally:
        terminal.release()


def _run_command(words: list[str]) -> int:
    try:
        args = build_parser().parse_args(words)
    except SystemExit:  # argparse ends so after --help and --version; what is wrong it raises as UsageError
        return 0
    code: int | None = args.run(args)
    return code or 0


def _explain_error(error: Exception, words: list[str]) -> tuple[str, str, int]:
    """What an error is called, what to say about it, and its exit code; one that nobody foresaw is raised again."""
    kind = type(error).__name__
    if isinstance(error, UsageError):
        return kind, str(error), error.exit_code
    from ..errors import ExpungeError  # only now: --help and usage errors do without

    if isinstance(error, ExpungeError):
        return error.public_name(), str(error), error.exit_code
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return kind, (f"{error.filename}: {reason}" if error.filename else reason) + _suggest_remedy(error, words), 1
    if kind in ("OperationalError", "DatabaseError") and type(error).__module__ == "sqlite3":
        return kind, f"the file of the service's queue cannot be used: {error}", 1
    if isinstance(error, MemoryError):
        return kind, "there is not enough memory", 1
    if isinstance(error, ModuleNotFoundError) and not (error.name or "expunge").startswith("expunge"):
        extra = "paper" if words[:1] == ["paper"] else _EXTRAS.get(str(error.name), "vault")
        return kind, f"this command needs {error.name}: pip install 'expunge[{extra}]'", 1
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):  # too little memory, for instance
        return kind, f"a library could not be loaded: {error.__cause__ or error}", 1
    raise error


def _suggest_remedy(error: OSError, words: list[str]) -> str:
    """What else to say about something that the system refused: what became of the request, or the way out."""
    command, locked = "".join(words[:1]), str(error.filename).endswith(".ledger")
    if command in REQUEST_COMMANDS and not {"-h", "--help"} & {*words}:
        return "; nothing was changed"
    if (
        command in ("find", "verify", "evaluate")
        and isinstance(error, PermissionError)
        and locked
        and "--read-only" not in words
    ):
        return "; with --read-only nothing has to be written"
    return ""
