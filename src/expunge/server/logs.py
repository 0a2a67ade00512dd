"""Logs: one JSON object per line, on standard error.

Every line has a time, a level and the name of an event; the lines of a request also have its id and its token's id.
No line contains a person's id, a row's value, a token's text, or an error's message, which could contain any of these:
an unexpected exception is logged with its class and the file, line and function of every frame.
"""

import json
import logging
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, get_args

from .clocks import format_time, utc_now

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)

# The usual forms of request ids: a UUID, 32 hexadecimal digits (nginx, W3C traces), a ULID. Other text is not logged,
# because a caller could put a person's id there.
_REQUEST_ID = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[0-7][0-9A-HJKMNP-TV-Z]{25}"
)
_MAX_FRAMES = 60
_MAX_CAUSES = 5
_SELDOM_SECONDS = 60.0  # between two lines of an event that any caller can cause

_lock = threading.Lock()
_process_facts = dict[str, Any]()  # in every line of this process
_threshold = LEVELS.index("info")
_seldom = dict[str, tuple[float, int]]()  # when an event was last logged, and its count since


@dataclass
class RequestTags:
    """The facts in every line of one HTTP request."""

    request_id: str
    token: str = ""


_request: ContextVar[RequestTags | None] = ContextVar("request", default=None)


def set_level(level: Level) -> None:
    """Drop lines below this level from now on."""
    global _threshold
    _threshold = LEVELS.index(level)


def get_level() -> Level:
    """Return the level below which lines are dropped."""
    return LEVELS[_threshold]


@contextmanager
def minimum_level(level: Level) -> Iterator[None]:
    """Drop lines below this level within the block."""
    before = get_level()
    set_level(level)
    try:
        yield
    finally:
        set_level(before)


def tag_process(**facts: Any) -> None:
    """Add facts to every line of this process."""
    _process_facts.update(facts)


@contextmanager
def request_scope(sent_id: str | None) -> Iterator[RequestTags]:
    """Tag the lines of a request with its id: the one that the caller sent, if it has a usual form, or a new one."""
    known = sent_id is not None and _REQUEST_ID.fullmatch(sent_id) is not None
    facts = RequestTags(sent_id if known and sent_id is not None else str(uuid.uuid4()))
    before = _request.set(facts)
    try:
        yield facts
    finally:
        _request.reset(before)


def tag_token(token: str) -> None:
    """Tag the lines of the current request with the id of its token."""
    if (facts := _request.get()) is not None:  # one object, shared by all threads of the request
        facts.token = token


def request_facts() -> dict[str, str]:
    """Return the facts in every line of the current request."""
    scope = _request.get()
    return {} if scope is None else {"request_id": scope.request_id} | ({"token": scope.token} if scope.token else {})


def log(event: str, /, *, level: Level = "info", **facts: Any) -> None:
    """Write a line, unless its level is below the threshold."""
    if LEVELS.index(level) < _threshold:
        return
    head = {"time": format_time(utc_now()), "level": level, "event": event, **_process_facts, **request_facts()}
    line = json.dumps(head | facts, default=str)
    with _lock:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def log_error(event: str, error: BaseException, /, *, level: Level = "error", **facts: Any) -> None:
    """Write a line about an exception: its class and frames, and those of its causes."""
    chain, seen = list[BaseException](), set[int]()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None and id(cause) not in seen and len(chain) < _MAX_CAUSES:
        seen.add(id(cause))
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    if isinstance(error, OSError) and error.errno is not None:
        facts["errno"] = error.errno

    def describe(exception: BaseException) -> dict[str, Any]:
        return {"error": type(exception).__name__, "frames": format_frames(exception.__traceback__)}

    causes = {"causes": [describe(exception) for exception in chain]} if chain else {}
    log(event, level=level, **facts, **describe(error), **causes)


def log_seldom(event: str, kind: str = "", /, *, level: Level = "warning", **facts: Any) -> None:
    """Write at most one line per minute for each kind of an event; ``times`` counts events since the last line."""
    now, key = time.monotonic(), f"{event} {kind}"
    with _lock:
        last, times = _seldom.get(key, (-_SELDOM_SECONDS, 0))
        due = now - last >= _SELDOM_SECONDS
        _seldom[key] = (now, 0) if due else (last, times + 1)
    if due:
        log(event, level=level, times=times + 1, **facts)


def format_frames(traceback: TracebackType | None) -> list[str]:
    """Return file, line and function of every frame, the outermost first; of very many, leave out the middle."""
    frames = list[str]()
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{_shorten_path(code.co_filename)}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    if len(frames) > _MAX_FRAMES:
        half = _MAX_FRAMES // 2
        frames[half:-half] = [f"... {len(frames) - 2 * half} more"]
    return frames


def _shorten_path(filename: str) -> str:
    """Return a file's path relative to where packages are installed."""
    parts = Path(filename).parts
    for folder in ("site-packages", "src"):
        if folder in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(folder) :])
    return "/".join(parts[-2:])


class _LogForwarder(logging.Handler):
    """Writes records of libraries as our own lines: logger and place, never the text, which may contain values."""

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        where = f"{_shorten_path(record.pathname)}:{record.lineno} {record.funcName}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            log_error("library", error, level=level, logger=record.name, where=where)
        else:
            log_seldom("library", where, level=level, logger=record.name, where=where)


def capture_logging() -> None:
    """Log warnings and errors of libraries, and uncaught exceptions, as lines like ours."""
    root = logging.getLogger()
    root.handlers = [_LogForwarder(logging.WARNING)]
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate, logger.disabled = [], True, False
        logger.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    threading.excepthook = lambda args: log_error(
        "thread-failed", args.exc_value or args.exc_type(), thread="" if args.thread is None else args.thread.name
    )
    sys.unraisablehook = lambda args: log_error("unraisable", args.exc_value or RuntimeError())
