"""The command ``expunge``: parses, calls, prints.

`entry` is what a shell starts. It imports next to nothing before it is ready for Ctrl-C, and a command imports what it
needs when it runs: ``expunge --help`` loads the standard library only.
"""

import sys

_LOG = "interrupted; run expunge log to see what was carried out"
_WITHOUT_REQUESTS = ("certificate", "paper", "schema")


def entry() -> None:
    """Run the command that the shell names, and end with its exit code."""
    words = sys.argv[1:]
    try:
        from .program import run

        code = run(words)
    except KeyboardInterrupt:
        code = _interrupted(words)
    sys.exit(code)


def _interrupted(words: list[str]) -> int:
    """Say in one line that Ctrl-C was pressed; whether a request was accepted before is not known here."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses it twice gets one line as well
    from .terminal import complain

    text = "interrupted" if words[:1] and words[0] in _WITHOUT_REQUESTS else _LOG
    complain("Interrupted", text, 130, as_json="--json" in words, prefix="")
    return 130
