"""Requests that are answered without a byte of the run, as a socket sends them: for the tests, and for the campaign."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from holotype.studio.guard import MAX_BODY

HOSTS = {
    "evil.example": 403,
    "evil.example:{port}": 403,
    "127.0.0.1": 403,
    "127.0.0.1:1": 403,
    "localhost": 403,
    "127.0.0.1.evil.example:{port}": 403,
    "2130706433:{port}": 403,
    "0.0.0.0:{port}": 403,
    "[::]:{port}": 403,
    "": 400,
    "127.0.0.1:{port}/": 400,
    "user@127.0.0.1:{port}": 400,
    "127.0.0.1:{port}, evil.example": 400,
    "127.0.0.1:{port}#x": 400,
    "127.0.0.1:{port}?x": 400,
    "127.0.0.1\\evil:{port}": 400,
    "127.0.0.1:{port}:{port}": 400,
    "127.0.0.1:99999999": 400,
}
"""Hosts, and what they are answered with; rebinding is a name of the web that leads to 127.0.0.1."""
REQUEST = (
    "GET {path} HTTP/1.1\r\n{hosts}Sec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\n"
    "Connection: close\r\n{more}\r\n"
)
RAW = {
    "no host": {"hosts": ""},
    "two hosts": {"hosts": "Host: {host}\r\nHost: evil.example\r\n"},
    "the same host twice": {"hosts": "Host: {host}\r\nHost: {host}\r\n"},
    "an absolute address": {"path": "http://{host}/api/state"},
    "an absolute address of another": {"path": "http://evil.example/api/state"},
    "a star": {"path": "*"},
    "dots": {"path": "/thumb/../api/state"},
    "escaped dots": {"path": "/%2e%2e/api/state"},
    "an escaped slash": {"path": "/api%2fstate"},
    "a backslash": {"path": "/api\\state"},
    "a share": {"path": "//evil/share"},
    "a drive": {"path": "/C:/windows/win.ini"},
    "a file": {"path": "/thumb//etc/passwd"},
    "a null": {"path": "/api/state%00"},
    "a host with a blank": {"hosts": "Host : {host}\r\n"},
    "two cookies": {"more": "Cookie: {cookie}\r\n"},
    "two origins": {"more": "Origin: http://{host}\r\nOrigin: http://{host}\r\n"},
}
"""Malformed requests with the right cookie, all of which are answered with 400."""
POSTS = {
    "another origin": {"Origin": "http://evil.example"},
    "no origin": {"Origin": None},
    "null": {"Origin": "null"},
    "https": {"Origin": "https://{host}"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port of this host": {"Sec-Fetch-Site": "same-site"},
    "no site": {"Sec-Fetch-Site": None},
    "a form": {"Content-Type": "text/plain"},
    "no header of ours": {"X-Holotype": None},
}
"""Headers in which a POST differs from one of the page; None = it is left out."""
SITES = ("cross-site", "same-site", "none", None)
"""Where a GET comes from that is none of the page; EventSource and <img> send no Origin."""
PLACES = ("/api/state", "/data.js", "/events", "/thumb/0", "/image/0")


def raw_request(host: str, cookie: str, name: str) -> bytes:
    """Return one of RAW."""
    given = {"path": "/api/state", "hosts": "Host: {host}\r\n", "more": ""} | RAW[name]
    filled = {key: text.format(host=host, cookie=cookie) for key, text in given.items()}
    return REQUEST.format(**filled, cookie=cookie).encode()


def request(method: str, path: str, headers: dict[str, str | None], body: bytes = b"") -> bytes:
    """Return a request with these headers."""
    told = {"Connection": "close", **headers} | ({"Content-Length": str(len(body))} if body else {})
    lines = [f"{name}: {value}\r\n" for name, value in told.items() if value is not None]
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


def attacks(host: str, cookie: str, old_token: str, old_cookie: str) -> Iterator[tuple[str, bytes]]:
    """Yield a name and a request of each kind.

    Args:
        host: With the port.
        cookie: The right one, of a browser that a page of the web makes ask.
        old_token: One that was exchanged.
        old_cookie: Of an earlier server, or one on another port.
    """
    port = host.rpartition(":")[2]
    own: dict[str, str | None] = {"Host": host, "Sec-Fetch-Site": "same-origin", "Cookie": cookie}
    page = own | {"Origin": f"http://{host}", "X-Holotype": "1", "Content-Type": "application/json"}
    told = b'{"edits": [], "start": "write"}'
    for name in HOSTS:
        for path in PLACES:
            yield f"host {name} {path}", request("GET", path, own | {"Host": name.format(port=port)})
    for name in RAW:
        yield name, raw_request(host, cookie, name)
    for site in SITES:
        for path in PLACES:
            yield f"{path} from {site}", request("GET", path, own | {"Sec-Fetch-Site": site})
    for name, more in POSTS.items():
        wrong = {key: value and value.format(host=host) for key, value in more.items()}
        for path in ("/api/edits", "/api/job", "/api/picture"):
            yield f"{path}, {name}", request("POST", path, page | wrong, told)
    for name, other in (
        ("no cookie", None),
        ("an old cookie", old_cookie),
        ("another port", cookie[:9] + "1=x"),
    ):
        for path in PLACES:
            yield f"{path} with {name}", request("GET", path, own | {"Cookie": other})
    used = f'{{"token": "{old_token}"}}'.encode()
    yield "a used token", request("POST", "/api/session", page | {"Cookie": None}, used)
    yield "a large body", request("POST", "/api/edits", page | {"Content-Length": str(MAX_BODY + 1)})
    for method in ("OPTIONS", "HEAD", "PUT", "DELETE", "TRACE"):
        yield method, request(method, "/api/edits", page)


def halves(host: str, cookie: str) -> list[bytes]:
    """Return beginnings of requests that never end: nothing, half a head, half a body."""
    page = {"Host": host, "Cookie": cookie, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    more = {"X-Holotype": "1", "Content-Type": "application/json", "Content-Length": "100"}
    body = request("POST", "/api/edits", {**page, **more}) + b"{"
    return [b"", b"GET / HTTP/1.1\r\nHost:", b"POST /api/session HTTP/1.1\r\n", body]


def flood(port: int, starts: list[bytes], count: int = 200) -> list[socket.socket]:
    """Open many connections, each of which begins and says no more."""
    opened = []
    for number in range(count):
        opened.append(socket.create_connection(("127.0.0.1", port), timeout=20))
        opened[-1].sendall(starts[number % len(starts)])
    return opened
