"""A browser of the studio, as far as a server can tell: requests over real sockets, with the headers of the page."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TIMEOUT = 20.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A window of one browser. link: as the studio prints it."""

    def __init__(self, link: str) -> None:
        address, _, self.token = link.partition("/#t=")
        self.host = address.removeprefix("http://")
        self.port = int(self.host.rpartition(":")[2])
        self.cookie = ""

    def headers(self, method: str) -> dict[str, str]:
        """What a browser sends with a request of the studio's own page."""
        found = {"Host": self.host, "Sec-Fetch-Site": "same-origin"}
        if self.cookie:
            found["Cookie"] = self.cookie
        if method == "POST":
            found |= {
                "Origin": f"http://{self.host}",
                "X-Holotype": "1",
                "Content-Type": "application/json",
            }
        return found

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """headers: other than those of a browser, with _ for -; None = it is left out."""
        sent = self.headers(method) | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            content = None if body is None else json.dumps(body).encode()
            if content is not None:
                sent.setdefault("Content-Length", str(len(content)))
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def enter(self) -> Client:
        answer = self.ask("POST", "/api/session", {"token": self.token})
        assert answer.status == 200, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, body: Any) -> Answer:
        return self.ask("POST", path, body)

    def state(self) -> dict[str, Any]:
        return self.get("/api/state").json()

    @contextmanager
    def events(self, after: int = 0, last_id: int | None = None):
        """Yield the events that come, as an iterator."""
        sent = self.headers("GET") | ({"Last-Event-ID": str(last_id)} if last_id is not None else {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        connection.request("GET", f"/events?after={after}", headers=sent)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status

        def events():
            id = None
            while True:
                line = answer.readline()
                if not line:
                    return
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    id = int(value)
                elif name == "data":
                    yield json.loads(value) | ({"id": id} if id is not None else {})
                    id = None

        try:
            yield events()
        finally:
            connection.close()


def raw(port: int, content: bytes, seconds: float = TIMEOUT) -> bytes:
    """Send bytes and return all that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as sock:
        sock.sendall(content)
        return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """Return what comes until the other side hangs up, however it does."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65_536):
            found += part
    return found
