"""A server in the place of the Hugging Face hub, on this machine."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SECONDS_BETWEEN_LOOKS = 0.01
"""Whether it shall end: every test that has a server waits for it."""


@dataclass
class Hub:
    """What the server holds, and what was asked of it."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Repository to name to content."""
    gated: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path."""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        repository, _, rest = path.lstrip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        if repository in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if repository not in self.files:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        content = self.files[repository].get(name)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        mark = hashlib.sha256(content).hexdigest()
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{mark}"'}, content


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    lines: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            lines.append(self.connection)

        def do_HEAD(self) -> None:
            self.reply(with_body=False)

        def do_GET(self) -> None:
            self.reply(with_body=True)

        def reply(self, with_body: bool) -> None:
            hub.asked.append((self.command, self.path))
            code, headers, content = hub.answer(self.path.partition("?")[0])
            self.send_response(code)
            for key, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(SECONDS_BETWEEN_LOOKS,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        for line in lines:  # a client keeps its line open, and a thread here would wait at it for ever
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()
