"""Talking to a signer: bytes out, bytes back, within a time and a size, whatever the other side does.

What goes wrong is a `SigningFailed`, which never repeats what was sent.
"""

import os
import select
import selectors
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import InvalidSetting, SigningFailed

SOCKET = "unix:"
_MOST_REPEATED = 200  # characters of what a program complained about
_RUN = 12  # so many characters in a row that were also sent are no accident
_PIECE = select.PIPE_BUF  # a pipe that can be written to takes so many bytes without waiting


def check_named(text: str) -> None:
    """Refuse a text that names neither a program nor a socket."""
    if text.startswith(SOCKET):
        if len(text) == len(SOCKET) or "\0" in text:
            raise InvalidSetting("--sign-with unix: needs the path of a socket, such as unix:/run/signer")
        return
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidSetting(f"--sign-with is not a command: {str(error).lower()}") from None
    if not words or not words[0] or "\0" in text:
        raise InvalidSetting("--sign-with needs a command, or unix: and the path of a socket")


def ask(named: str, data: bytes, *, most: int, wait: float, hidden: str) -> tuple[str, bytes]:
    """Ask the program or socket of this name; returns who that is, and the answer."""
    if named.startswith(SOCKET):
        path = named.removeprefix(SOCKET)
        who = f"the signer at {path}"
        return who, _to_socket(who, path, data, most=most, wait=wait)
    words = shlex.split(named)
    who = f"the signer {Path(words[0]).name}"  # no more: arguments may be secret
    return who, _to_program(who, words, data, most=most, wait=wait, hidden=hidden)


def _to_program(who: str, words: Sequence[str], data: bytes, *, most: int, wait: float, hidden: str) -> bytes:
    """Run a program with data on its standard input, and return what it writes to standard output.

    It has our environment and none of our files, and a process group of its own, which is killed if it takes too long.
    No error repeats the data, or the ``hidden`` text that the data encodes.
    """
    ends = time.monotonic() + wait
    with _started(words, who) as program:
        exchange = _Exchange(program, data, most)
        in_time = exchange.run(ends)
        try:
            if len(exchange.said) > most:
                raise SigningFailed(_too_long(who, most))
            code = program.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SigningFailed(_too_late(who, wait)) from None
        finally:
            if not in_time:  # it may have ended itself, and have left somebody who holds on to its answer
                _kill(program)
        exchange.read_complaint()
    if code:
        ending = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise SigningFailed(f"{who} {ending}{_repeated(exchange.complaint, data.decode(), hidden)}")
    return exchange.said


def _to_socket(who: str, path: str, data: bytes, *, most: int, wait: float) -> bytes:
    """Send data to a Unix socket, say that no more comes, and return what it answers."""
    ends, said = time.monotonic() + wait, b""
    try:
        with socket.socket(socket.AF_UNIX) as there:
            there.settimeout(wait)
            there.connect(path)
            there.sendall(data)
            there.shutdown(socket.SHUT_WR)
            while len(said) <= most:
                if (left := ends - time.monotonic()) <= 0:
                    raise TimeoutError
                there.settimeout(left)
                if not (piece := there.recv(_PIECE)):
                    return said
                said += piece
    except TimeoutError:
        raise SigningFailed(_too_late(who, wait)) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SigningFailed(f"{who} could not be asked: {reason}") from None
    raise SigningFailed(_too_long(who, most))


@contextmanager
def _started(words: Sequence[str], who: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; afterwards its pipes are closed, and it is gone."""
    pipe = subprocess.PIPE
    try:
        program = subprocess.Popen(  # noqa: S603 - the user named the program
            words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, close_fds=True, process_group=0
        )
    except OSError as error:
        raise SigningFailed(f"{who} could not be started: {os.strerror(error.errno or 0)}") from None
    try:
        yield program
    finally:
        for end in (program.stdin, program.stdout, program.stderr):
            assert end is not None
            end.close()
        if program.poll() is None:
            _kill(program)
            program.wait()


def _kill(program: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError, PermissionError):  # of nobody, or of another user's process alone
        os.killpg(program.pid, signal.SIGKILL)


class _Exchange:
    """What was said on both sides of a program."""

    def __init__(self, program: subprocess.Popen[bytes], data: bytes, most: int) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        self._into, self._out, self._err = program.stdin, program.stdout.fileno(), program.stderr.fileno()
        self._left, self._most = data, most
        self.said = self.complaint = b""
        os.set_blocking(self._err, False)

    def run(self, ends: float) -> bool:
        """Write the data and read until the answer ends; False if it is too long, or if time is up before."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._into, selectors.EVENT_WRITE)
            ready.register(self._out, selectors.EVENT_READ)
            ready.register(self._err, selectors.EVENT_READ)
            while len(self.said) <= self._most and (left := ends - time.monotonic()) > 0:
                for key, _ in ready.select(left):
                    if not self._moved(key.fd):
                        ready.unregister(key.fileobj)
                        if key.fileobj is self._into:
                            self._into.close()
                        elif key.fd == self._out:
                            return True
        return False

    def read_complaint(self) -> bool:
        """Read more of what the program complains about, if there is more; the beginning is kept."""
        try:
            piece = os.read(self._err, _PIECE)
        except BlockingIOError:
            return True
        self.complaint = (self.complaint + piece)[:_PIECE]
        return bool(piece)

    def _moved(self, fd: int) -> bool:
        """Write or read a piece where that is possible; False at the end."""
        if fd == self._err:
            return self.read_complaint()
        if fd == self._out:
            piece = os.read(fd, _PIECE)
            self.said += piece
            return bool(piece)
        try:
            self._left = self._left[os.write(fd, self._left[:_PIECE]) :]
        except BrokenPipeError:  # it wants no more; what it answers counts
            return False
        return bool(self._left)


def _too_long(who: str, most: int) -> str:
    return f"{who} answered with more than {most:,} bytes, which is no signature"


def _too_late(who: str, wait: float) -> str:
    return f"{who} did not answer within {wait:g} seconds"


def _repeated(complaint: bytes, *hidden: str) -> str:
    """What a program complained about, in short; nothing if it holds a part of what it got."""
    text = " ".join("".join(c if c.isprintable() else " " for c in complaint.decode(errors="replace")).split())
    text = text[:_MOST_REPEATED]
    runs = {text[k : k + _RUN] for k in range(len(text) - _RUN + 1)}
    if any(run in secret for run in runs for secret in hidden):
        return " (what it said repeats what it got, and is not shown)"
    return f": {text}" if text else ""
