"""Signers for tests: a program that holds a key, and one that listens at a socket."""

import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress

SIGN = """
import sys
from pathlib import Path
from cryptography.hazmat.primitives.serialization import load_pem_private_key
key = load_pem_private_key(Path(sys.argv[1]).read_bytes(), None)
sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))
"""


def python_signer(folder, key, program=SIGN):
    """A command that signs with a key in a file; the program gets the file's name."""
    (folder / "key.pem").write_bytes(key.pem())
    (folder / "sign.py").write_text(program)
    return f"{sys.executable} {folder / 'sign.py'} {folder / 'key.pem'}"


def dripping():
    """An answer that comes a byte at a time, for ever."""
    while True:
        time.sleep(0.02)
        yield b"A"


@contextmanager
def listening(path, answer):
    """A socket whose other side says what ``answer`` makes of all that was sent, bytes or pieces; None says nothing."""
    over = threading.Event()

    def serve():
        while True:
            try:
                there, _ = here.accept()
            except OSError:
                return
            with there:
                with there.makefile("rb") as asked:
                    said = answer(asked.read())
                if said is None:
                    over.wait(30)
                else:
                    with suppress(OSError):  # who has read enough hangs up
                        for piece in [said] if isinstance(said, bytes) else said:
                            there.sendall(piece)

    with socket.socket(socket.AF_UNIX) as here:
        here.bind(str(path))
        here.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            here.shutdown(socket.SHUT_RDWR)
            thread.join()
