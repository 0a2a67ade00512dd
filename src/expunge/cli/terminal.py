"""What is printed, and where: answers on standard output, notes, errors and progress on standard error.

Text that comes from data, such as names of columns and files, may hold anything. It is shown as it is, except for
characters that a terminal obeys: those are shown escaped.
"""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO


def prepare() -> None:
    """Make sure that no file of ours gets the number of a standard stream that is closed, and that any text prints."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # an answer is not lost for want of a letter


def say(text: str, *, end: str = "\n") -> None:
    """Print an answer on standard output."""
    _standard_output().write(text + end)


def say_json(value: Any) -> None:
    """Print an answer for programs, on one line."""
    import json

    say(json.dumps(value, default=str))


def binary_output() -> IO[bytes]:
    """Standard output for bytes."""
    return _standard_output().buffer


def _standard_output() -> TextIO:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.stdout


def flush() -> None:
    """Write what is still buffered for standard output; raises OSError if it cannot be written."""
    if sys.stdout is not None:
        sys.stdout.flush()


def release() -> None:
    """Flush both streams; what cannot be written is thrown away."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)


def _discard(stream: TextIO) -> None:
    """Let a stream write to the null device: its buffer is flushed once more at the interpreter's end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def note(text: str) -> None:
    """Print a note on standard error, one line."""
    _write_stderr(f"note: {escape(text)}\n")


def complain(kind: str, text: str, code: int, *, as_json: bool, prefix: str = "error: ") -> None:
    """Print an error on standard error, one line: text for people, or an object for programs."""
    if as_json:
        import json

        _write_stderr(json.dumps({"error": {"type": kind, "message": text, "exit_code": code}}) + "\n")
    else:
        _write_stderr(f"{prefix}{escape(text)}\n")


def _write_stderr(text: str) -> None:
    """Write to standard error; that it cannot be written changes nothing."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            _discard(sys.stderr)


def escape(text: str) -> str:
    r"""Show characters that do not print, control characters and terminal escapes among them, as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pluralize(count: int, singular: str, plural: str) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{count:,} {singular if count == 1 else plural}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of cells in columns."""
    shown = [[escape(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in shown)


class ProgressLine:
    """A line on standard error that is written over again and again, if a person is looking."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._next, self._length = 0.0, 0

    def show(self, text: str) -> None:
        """Show a text in place of the last one, at most ten times a second."""
        if self._on and time.monotonic() >= self._next:
            import shutil

            text = escape(text)[: shutil.get_terminal_size().columns - 1]
            _write_stderr("\r" + text.ljust(self._length))
            self._next, self._length = time.monotonic() + 0.1, len(text)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._length:
            _write_stderr("\r" + " " * self._length + "\r")
            self._next, self._length = 0.0, 0


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield what a request calls with the rows that it has done more; a person sees them counted."""
    line, done = ProgressLine(quiet=quiet), dict[str, int]()

    def told(what: str, rows: int, of: int | None) -> None:
        stage = what.partition(" (")[0]  # what follows in brackets may change: how many workers were lost
        done[stage] = done.get(stage, 0) + rows
        line.show(f"{what}: {done[stage]:,}{'' if of is None else f' of {of:,}'} rows")

    try:
        yield told
    finally:
        line.clear()
