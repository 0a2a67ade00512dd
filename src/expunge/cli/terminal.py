"""Terminal output: answers on standard output; notes, errors and progress on standard error.

Text from data, such as names of columns and files, may contain anything. Control characters in it are escaped.
"""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO


def prepare() -> None:
    """Reserve the descriptors of closed standard streams, and make any text printable."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # an answer is not lost because of the encoding


def say(text: str, *, end: str = "\n") -> None:
    """Print an answer on standard output."""
    _standard_output().write(text + end)


def say_json(value: Any) -> None:
    """Print an answer as JSON, on one line."""
    import json

    say(json.dumps(value, default=str))


def binary_output() -> IO[bytes]:
    """Return standard output for bytes."""
    return _standard_output().buffer


def _standard_output() -> TextIO:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.stdout


def flush() -> None:
    """Flush standard output; raise OSError if it cannot be written."""
    if sys.stdout is not None:
        sys.stdout.flush()


@contextmanager
def guard_answer(done: str) -> Iterator[None]:
    """Flush the answer that is printed inside; if that fails, raise `AnswerLost`, which says what was done."""
    from ..errors import AnswerLost

    try:
        yield
        flush()
    except (OSError, MemoryError, ImportError) as error:
        why = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
        raise AnswerLost(f"{done}, but the answer could not be written: {why}") from error


def release() -> None:
    """Flush both streams, and discard what cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, because the interpreter flushes it once more at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def note(text: str) -> None:
    """Print a note on standard error, one line."""
    _write_stderr(f"note: {escape(text)}\n")


def complain(kind: str, text: str, code: int, *, as_json: bool, prefix: str = "error: ") -> None:
    """Print an error on standard error in one line, as text or JSON."""
    if as_json:
        import json

        _write_stderr(json.dumps({"error": {"type": kind, "message": text, "exit_code": code}}) + "\n")
    else:
        _write_stderr(f"{prefix}{escape(text)}\n")


def _write_stderr(text: str) -> None:
    """Write to standard error, and ignore failures."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            _discard(sys.stderr)


def escape(text: str) -> str:
    r"""Escape characters that are not printable, such as terminal escapes, as ``\x1b``."""
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
    """A line on standard error that is overwritten; silent unless standard error is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._next, self._length = 0.0, 0

    def show(self, text: str) -> None:
        """Replace the line by a text, at most ten times per second."""
        if self._on and time.monotonic() >= self._next:
            import shutil

            text = escape(text)[: shutil.get_terminal_size().columns - 1]
            _write_stderr("\r" + text.ljust(self._length))
            self._next, self._length = time.monotonic() + 0.1, len(text)

    def clear(self) -> None:
        """Clear the line."""
        if self._length:
            _write_stderr("\r" + " " * self._length + "\r")
            self._next, self._length = 0.0, 0


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a callback for progress (stage, new rows, total), which shows a counter."""
    line, done = ProgressLine(quiet=quiet), dict[str, int]()

    def report(what: str, rows: int, of: int | None) -> None:
        stage = what.partition(" (")[0]  # the part in parentheses, such as lost workers, may change
        done[stage] = done.get(stage, 0) + rows
        line.show(f"{what}: {done[stage]:,}{'' if of is None else f' of {of:,}'} rows")

    try:
        yield report
    finally:
        line.clear()
