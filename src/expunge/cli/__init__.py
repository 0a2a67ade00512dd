"""The command ``expunge``: parses, calls, prints; no logic of its own.

`entry` is the entry point. It imports almost nothing before it handles Ctrl-C, and each command imports what it needs
when it runs: ``expunge --help`` loads only the standard library.
"""

import signal
import sys
from types import FrameType

_INTERRUPTED_REQUEST = "interrupted; run expunge log to see which requests were completed"
REQUEST_COMMANDS = ("train", "unlearn", "rectify", "add", "readmit", "rebound", "replan", "clone")


def entry() -> None:
    """Run the command in `sys.argv` and exit with its code."""
    words, signals = sys.argv[1:], list[int]()

    def on_interrupt(number: int, _: FrameType | None) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored on purpose
            signal.signal(signal.SIGINT, on_interrupt)
        from .program import run

        code = run(words, lambda: bool(signals))
    except BaseException as error:
        if not (signals or isinstance(error, KeyboardInterrupt)):
            raise
        code = _report_interrupt(words)
    sys.exit(code)


def _report_interrupt(words: list[str]) -> int:
    """Print one line about Ctrl-C and return its exit code; whether a request was accepted is not known here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not print a traceback
    from .terminal import complain

    text = _INTERRUPTED_REQUEST if words[:1] and words[0] in REQUEST_COMMANDS else "interrupted"
    if words[:1] == ["train"]:
        text += "; without a vault at that path nothing was learned"
    complain("Interrupted", text, 130, as_json="--json" in words, prefix="")
    return 130
