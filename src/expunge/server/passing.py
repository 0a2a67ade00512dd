"""Passing on: a reader hands every request that it does not answer itself to the writer, over a socket of their own.

Bodies and answers are streamed; who leaves early is left by the writer, too.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import h11

from .limits import App, Message, Receive, Send
from .prefix import strip_prefix
from .problems import Problem

_PIECE = 64 * 2**10
_HOP = {
    b"connection",
    b"keep-alive",
    b"transfer-encoding",
    b"te",
    b"trailer",
    b"upgrade",
    b"expect",
    b"proxy-connection",
}
_AWAY = Problem(503, "writer-away", "the process that writes does not answer", {"Retry-After": "1"})

Headers = list[tuple[bytes, bytes]]


class Passing:
    """An application that answers some paths, and passes the others on."""

    def __init__(self, app: App, own: Iterable[str], below: tuple[str, ...], socket: str, prefix: str = "") -> None:
        self.app, self._own, self._below, self._socket, self._prefix = app, frozenset(own), below, socket, prefix

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = strip_prefix(scope.get("path", ""), self._prefix)
        if scope["type"] != "http" or path in self._own or path.startswith(self._below):
            await self.app(scope, receive, send)
            return
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            await _AWAY.response()(scope, receive, send)
            return
        pump = asyncio.create_task(_ask(scope, receive, writer))
        started = False
        try:
            async for message in _answer(reader):
                started = True
                await send(message)
        except (OSError, h11.RemoteProtocolError):
            if not started:
                await _AWAY.response()(scope, receive, send)
        finally:
            pump.cancel()
            with suppress(OSError, asyncio.CancelledError, h11.LocalProtocolError):
                await pump
            writer.close()


async def _ask(scope: Message, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Send a request on, and then wait whether the client leaves."""
    connection, given = h11.Connection(h11.CLIENT), dict(scope["headers"])
    headers: Headers = [(name, value) for name, value in scope["headers"] if name not in _HOP]
    if b"transfer-encoding" in given:
        headers.append((b"transfer-encoding", b"chunked"))
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers.append((b"connection", b"close"))
    request = h11.Request(method=scope["method"].encode(), target=target or b"/", headers=headers)
    writer.write(connection.send(request) or b"")
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            writer.close()
            return
        if body := message.get("body", b""):
            writer.write(connection.send(h11.Data(data=body)) or b"")
            await writer.drain()
        more = message.get("more_body", False)
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    """What the writer answers, as messages."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "writer")]))  # it reads answers only then
    connection.send(h11.EndOfMessage())
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name not in _HOP | {b"date"}]
            yield {"type": "http.response.start", "status": event.status_code, "headers": headers}
        elif isinstance(event, h11.Data):
            yield {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
        elif isinstance(event, h11.EndOfMessage):
            yield {"type": "http.response.body", "body": b"", "more_body": False}
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the writer went away")
