"""Idempotency-Key: the same key and body get the same answer; another body, or one in flight, is refused."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request

from ..errors import Unfinished
from .access import Who, service_of
from .problems import Problem
from .queue import Job

_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_lock, _in_flight = threading.Lock(), set[str]()


@dataclass(frozen=True)
class Answered:
    """The request that a key was used for before, if it was; else what is to be kept with a new one."""

    entry: Job | None = None
    answers: tuple[str, str] | None = None


@contextmanager
def idempotent(request: Request, who: Who, body: bytes) -> Iterator[Answered]:
    """Look a key up, and refuse others that come with it until this one is answered."""
    said = request.headers.get("idempotency-key")
    if said is None:
        yield Answered()
        return
    if not _KEY.fullmatch(said):
        raise Problem(400, "invalid-key", "an Idempotency-Key has 1 to 255 printable characters")
    service = service_of(request)
    about = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    key, mark = service.mark(f"{who.key}\n{said}".encode()), service.mark(about + body)
    with _lock:
        if key in _in_flight:
            raise Problem(409, "in-flight", "a request with this Idempotency-Key is being carried out")
        _in_flight.add(key)
    try:
        known = service.queue.answered(key)
        if known is not None and known[0] != mark:
            raise Problem(422, "key-reused", "this Idempotency-Key was used with another request")
        if known is not None and known[1].state == "cancelled":  # whoever sends it again expects an erasure
            raise Problem(
                409, "cancelled", "the request with this Idempotency-Key was cancelled: use a new key to ask again"
            )
        if known is not None and known[1].state == "running":  # it was cut off: the ledger knows what became of it
            service.settle()
            known = service.queue.answered(key)
            if known is not None and known[1].state == "running":
                raise Unfinished(
                    "the request with this Idempotency-Key was accepted and is not finished yet: try again"
                )
        yield Answered(None if known is None else known[1], (key, mark))
    finally:
        with _lock:
            _in_flight.discard(key)
