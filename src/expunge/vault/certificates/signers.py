"""Signers: a key file (`SigningKey`), a program, or a service that listens on a Unix socket.

A key in an HSM, a KMS or an agent never comes here: the signer gets the bytes to sign and returns the signature. The
signature is verified with the public key before it is used, so a signer can fail but not deceive. An exchange with a
signer is limited in time and size. If it goes wrong, the error is a `SigningFailed` that never repeats what was sent.
"""

import base64
import os
import re
import select
import selectors
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidSignature

from ...errors import InvalidSetting, SigningFailed
from .jws import CERTIFICATE_TYPE, PublicKey, compact_jws, signing_input

SOCKET_PREFIX = "unix:"
_MAX_COMPLAINT_CHARS = 200  # of a program's error output
_MIN_LEAK_CHARS = 12  # as many characters in a row that were also sent are no accident
_PIPE_CHUNK_BYTES = select.PIPE_BUF  # a writable pipe takes this many bytes without blocking


def check_signer_address(text: str) -> None:
    """Refuse a ``--sign-with`` that names neither a program nor a socket."""
    if text.startswith(SOCKET_PREFIX):
        if len(text) == len(SOCKET_PREFIX) or "\0" in text:
            raise InvalidSetting("--sign-with unix: needs the path of a socket, such as unix:/run/signer")
        return
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidSetting(f"--sign-with is not a command: {str(error).lower()}") from None
    if not words or not words[0] or "\0" in text:
        raise InvalidSetting("--sign-with needs a command, or unix: and the path of a socket")


def ask_signer(address: str, data: bytes, *, max_bytes: int, timeout: float, secret: str) -> tuple[str, bytes]:
    """Send data to the program or socket at this address; return its name for messages, and the answer."""
    if address.startswith(SOCKET_PREFIX):
        path = address.removeprefix(SOCKET_PREFIX)
        name = f"the signer at {path}"
        return name, _ask_socket(name, path, data, max_bytes=max_bytes, timeout=timeout)
    words = shlex.split(address)
    name = f"the signer {Path(words[0]).name}"  # without arguments, which may be secret
    return name, _ask_program(name, words, data, max_bytes=max_bytes, timeout=timeout, secret=secret)


def _ask_program(
    signer_name: str, words: Sequence[str], data: bytes, *, max_bytes: int, timeout: float, secret: str
) -> bytes:
    """Run a program with data on its standard input, and return its standard output.

    It inherits our environment but no open files, and runs in its own process group, which is killed if it takes too
    long. No error repeats the data, or the ``secret`` text that the data encodes.
    """
    deadline = time.monotonic() + timeout
    with _start_program(words, signer_name) as program:
        exchange = _ProgramExchange(program, data, max_bytes)
        in_time = exchange.run(deadline)
        try:
            if len(exchange.answer) > max_bytes:
                raise SigningFailed(_too_long_message(signer_name, max_bytes))
            code = program.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SigningFailed(_too_late_message(signer_name, timeout)) from None
        finally:
            if not in_time:  # it may have exited and left a child that keeps its output open
                _kill_group(program)
        exchange.read_complaint()
    if code:
        ending = f"exited with code {code}" if code > 0 else f"was killed by signal {-code}"
        raise SigningFailed(f"{signer_name} {ending}{_quote_complaint(exchange.complaint, data.decode(), secret)}")
    return exchange.answer


def _ask_socket(signer_name: str, path: str, data: bytes, *, max_bytes: int, timeout: float) -> bytes:
    """Send data to a Unix socket, shut down the sending side, and return the answer."""
    deadline, answer = time.monotonic() + timeout, b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while len(answer) <= max_bytes:
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                if not (piece := connection.recv(_PIPE_CHUNK_BYTES)):
                    return answer
                answer += piece
    except TimeoutError:
        raise SigningFailed(_too_late_message(signer_name, timeout)) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SigningFailed(f"{signer_name} could not be reached: {reason}") from None
    raise SigningFailed(_too_long_message(signer_name, max_bytes))


@contextmanager
def _start_program(words: Sequence[str], signer_name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; at the end close its pipes, and kill it if it still runs."""
    pipe = subprocess.PIPE
    try:
        program = subprocess.Popen(  # noqa: S603 - the user named the program
            words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, close_fds=True, process_group=0
        )
    except OSError as error:
        raise SigningFailed(f"{signer_name} could not be started: {os.strerror(error.errno or 0)}") from None
    try:
        yield program
    finally:
        for pipe_end in (program.stdin, program.stdout, program.stderr):
            assert pipe_end is not None
            pipe_end.close()
        if program.poll() is None:
            _kill_group(program)
            program.wait()


def _kill_group(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and everything that it started."""
    with suppress(ProcessLookupError, PermissionError):  # the group is gone, or belongs to another user
        os.killpg(program.pid, signal.SIGKILL)


class _ProgramExchange:
    """The data sent to a program, and its answer and error output."""

    def __init__(self, program: subprocess.Popen[bytes], data: bytes, max_bytes: int) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        self._into, self._out, self._err = program.stdin, program.stdout.fileno(), program.stderr.fileno()
        self._unsent, self._max_bytes = data, max_bytes
        self.answer = self.complaint = b""
        os.set_blocking(self._err, False)

    def run(self, deadline: float) -> bool:
        """Write the data and read until the answer ends; return False if it is too long or too late."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._into, selectors.EVENT_WRITE)
            ready.register(self._out, selectors.EVENT_READ)
            ready.register(self._err, selectors.EVENT_READ)
            while len(self.answer) <= self._max_bytes and (left := deadline - time.monotonic()) > 0:
                for key, _ in ready.select(left):
                    if not self._transfer_piece(key.fd):
                        ready.unregister(key.fileobj)
                        if key.fileobj is self._into:
                            self._into.close()
                        elif key.fd == self._out:
                            return True
        return False

    def read_complaint(self) -> bool:
        """Read more of the error output, if there is any, and keep its beginning."""
        try:
            piece = os.read(self._err, _PIPE_CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.complaint = (self.complaint + piece)[:_PIPE_CHUNK_BYTES]
        return bool(piece)

    def _transfer_piece(self, fd: int) -> bool:
        """Write or read a piece; return False at the end."""
        if fd == self._err:
            return self.read_complaint()
        if fd == self._out:
            piece = os.read(fd, _PIPE_CHUNK_BYTES)
            self.answer += piece
            return bool(piece)
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent[:_PIPE_CHUNK_BYTES]) :]
        except BrokenPipeError:  # it reads no more; its answer counts
            return False
        return bool(self._unsent)


def _too_long_message(signer_name: str, max_bytes: int) -> str:
    return f"{signer_name} answered with more than {max_bytes:,} bytes, which is not a signature"


def _too_late_message(signer_name: str, timeout: float) -> str:
    return f"{signer_name} did not answer within {timeout:g} seconds"


def _quote_complaint(complaint: bytes, *secrets: str) -> str:
    """Return the beginning of the error output, unless it repeats a part of the secrets."""
    text = " ".join("".join(c if c.isprintable() else " " for c in complaint.decode(errors="replace")).split())
    text = text[:_MAX_COMPLAINT_CHARS]
    runs = {text[k : k + _MIN_LEAK_CHARS] for k in range(len(text) - _MIN_LEAK_CHARS + 1)}
    if any(run in secret for run in runs for secret in secrets):
        return " (its error output repeats what it was sent, and is not shown)"
    return f": {text}" if text else ""


_SIGNATURE_BYTES = 64  # Ed25519
_MAX_ANSWER_BYTES = 4096
_TIMEOUT = 30.0


class VaultSigner(Protocol):
    """A signer for a vault."""

    @property
    def public(self) -> PublicKey:
        """The key that verifies the signatures, the ``kid`` of a statement."""

    def sign(self, payload: str, typ: str = CERTIFICATE_TYPE) -> str:
        """Return the signed statement with this payload, a compact JWS, or raise `SigningFailed`."""


@dataclass(frozen=True)
class ExternalSigner:
    """A program, or a service at a Unix socket, that gets the bytes to sign and answers with the signature."""

    address: str  # a command, or unix: and the path of a socket
    public: PublicKey
    timeout: float = _TIMEOUT

    def sign(self, payload: str, typ: str = CERTIFICATE_TYPE) -> str:
        signed = signing_input(self.public, payload, typ)
        name, answer = ask_signer(
            self.address, signed, max_bytes=_MAX_ANSWER_BYTES, timeout=self.timeout, secret=payload
        )
        return _verify_answer(signed, answer, self.public, name)


def make_external_signer(text: str, public: PublicKey) -> ExternalSigner:
    """Return the signer that ``--sign-with`` names: ``unix:/path`` is a socket, anything else a command."""
    check_signer_address(text)
    return ExternalSigner(text, public)


def _verify_answer(signed: bytes, answer: bytes, public: PublicKey, signer_name: str) -> str:
    """Return the JWS if the answer is a signature of this key."""
    signature = _parse_signature(answer)
    if signature is None:
        raise SigningFailed(
            f"{signer_name} answered with {len(answer)} bytes that are not an Ed25519 signature: expected 64 raw "
            "bytes, or one line of base64 or hex"
        )
    try:
        public.key.verify(signature, signed)
    except InvalidSignature:
        raise SigningFailed(
            f"{signer_name} answered with a signature that was not made with the key {public.thumbprint}: another key "
            "signed, or it signed something else (Ed25519 signs the input itself, not a hash of it)"
        ) from None
    return compact_jws(signed, signature)


def _parse_signature(answer: bytes) -> bytes | None:
    """Return the signature in an answer: raw, or one line of base64url, base64 or hex."""
    if len(answer) == _SIGNATURE_BYTES:
        return answer
    line = answer.strip(b" \t\r\n")
    if re.fullmatch(rb"[0-9a-fA-F]{128}", line):
        return bytes.fromhex(line.decode())
    if re.fullmatch(rb"[A-Za-z0-9+/_-]{86}(==)?", line):
        return base64.b64decode(line[:86].translate(bytes.maketrans(b"-_", b"+/")) + b"==")
    return None
