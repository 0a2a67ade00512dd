"""A receiver: an HTTP server on this machine that keeps what is posted to it and answers as it is told."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """What came, and what is answered."""

    status: int = 200
    headers: dict = field(default_factory=dict)
    posts: list = field(default_factory=list)  # (path, headers, body)
    came: threading.Event = field(default_factory=threading.Event)
    release: threading.Event | None = None  # answer only after this
    port: int = 0

    def url(self, path="/hook", host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"


@contextmanager
def receiving(context=None, **how):
    """A receiver, until the block ends; with a context it speaks TLS."""
    found = Receiver(**how)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.posts.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            found.came.set()
            if found.release is not None:
                found.release.wait(30)
            self.send_response(found.status)
            for name, value in {"Content-Length": "0", **found.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *words):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # wait for them at the end

        def handle_error(self, request, client_address):
            pass  # whoever hung up is part of a test

        def get_request(self):
            sock, address = super().get_request()
            if context is not None:
                with sock:
                    sock = context.wrap_socket(sock, server_side=True)
            return sock, address

    server = Server(("127.0.0.1", 0), Handler)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        if found.release is not None:
            found.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
