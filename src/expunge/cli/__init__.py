"""The command ``expunge``: parses, calls, prints.

`entry` is what a shell starts. It imports next to nothing before it is ready for Ctrl-C, and a command imports what it
needs when it runs: ``expunge --help`` loads the standard library only.
"""

import signal
import sys
from types import FrameType

_INTERRUPTED_REQUEST = "interrupted; run expunge log to see what was carried out"
REQUEST_COMMANDS = ("train", "unlearn", "rectify", "add", "readmit", "rebound", "clone")


def entry() -> None:
    """Run the command that the shell names, and end with its exit code."""
    words, pressed = sys.argv[1:], list[int]()

    def note(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored
            signal.signal(signal.SIGINT, note)
        from .program import run

        code = run(words, lambda: bool(pressed))
    except BaseException as error:
        if not (pressed or isinstance(error, KeyboardInterrupt)):
            raise
        code = _report_interrupt(words)
    sys.exit(code)


def _report_interrupt(words: list[str]) -> int:
    """Say in one line that Ctrl-C was pressed; whether a request was accepted before is not known here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses it twice gets one line as well
    from .terminal import complain

    text = _INTERRUPTED_REQUEST if words[:1] and words[0] in REQUEST_COMMANDS else "interrupted"
    complain("Interrupted", text, 130, as_json="--json" in words, prefix="")
    return 130
