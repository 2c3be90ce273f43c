"""Guard of the studio: who may speak to it, and what every answer carries.

Any page on the web can make a browser send requests to 127.0.0.1, under a name of its own if it likes (DNS rebinding),
cookies go to every port of a host, and every user of the machine can connect. So each request must name this server and
port in its Host, come from the server's own page, and carry a secret that only the browser of the user has: it gets it
in a cookie in exchange for the token of the link that is printed when the studio starts. Nothing here asks Starlette
what the address of a request is: the raw header counts.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION = "/api/session"
"""Where the token is exchanged."""
HOST = re.compile(rb"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
PATH = re.compile(rb"/(?:[A-Za-z0-9_-]+(?:[/.][A-Za-z0-9_-]+)*)?")
"""Without escapes, backslashes, empty parts and dots that lead elsewhere: no address of the studio needs them."""
ONCE = (
    b"host",
    b"origin",
    b"cookie",
    b"sec-fetch-site",
    b"x-holotype",
    b"content-length",
    b"content-type",
)
"""Headers that would mean two things if they came twice."""
MAX_BODY = 1 << 20
SECONDS = 10.0
"""That a connection has to show the secret, and a body to arrive."""
MAX_CONNECTIONS = 128
LOGIN_PAGE = Path(__file__).with_name("login.html").read_text(encoding="utf-8")
"""The page for whoever has no cookie yet. There is nothing of the run in it."""
OTHER_PAGES = "Requests from other pages are refused, and from browsers that are older than 2023."
STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    b"content-security-policy": STRICT.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""Of every answer that does not set its own."""


class Refusal(NamedTuple):
    """An answer without data."""

    status: int
    words: str


def script_hash(page: str) -> str:
    """Return how a policy names the one inline script of a page."""
    script = page.partition("<script>")[2].partition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


class Guard:
    """ASGI middleware around the whole studio."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.entered: Callable[[], None] = lambda: None
        """Called when a browser has come in; the token is another one by then."""
        self.hosts = frozenset(f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]"))
        self.cookie = f"holotype-{port}"
        self.token, self._secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.admitted: set[Any] = set()
        """Addresses of the connections that have shown the secret."""
        self.is_open = True
        """Does the server go on? Once it ends, a connection that was on its way is cut: nobody would answer there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = dict(scope["headers"])
        if refusal := self._refusal(scope, headers):
            return await _answer(send, refusal.status, refusal.words)
        asks = (scope["method"], scope["raw_path"].decode())
        known = self._knows(headers)
        if asks == ("GET", "/") and not (known and headers.get(b"sec-fetch-site") in _OWN_PAGES):
            policy = f"{STRICT}; script-src {script_hash(LOGIN_PAGE)}; connect-src 'self'"
            return await _answer(send, 200, LOGIN_PAGE, kind="text/html", policy=policy)
        if asks != ("POST", SESSION) and not known:
            return await _answer(send, 403, "Open the link that holotype studio has printed in its terminal.")
        if known:
            self.admitted.add(scope.get("client"))
        if scope["method"] == "POST":
            body = await _read_body(receive)
            if isinstance(body, Refusal):
                return await _answer(send, body.status, body.words)
            if asks[1] == SESSION:
                return await self._exchange(body, send)
            receive = _replay(body, receive)
        return await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Refusal | None:
        """Why a request is answered without being looked at; None = it may come from the page of the studio."""
        names = [name for name, _ in scope["headers"]]
        if any(names.count(name) > 1 for name in ONCE):
            return Refusal(400, "A header came twice.")
        host = headers.get(b"host", b"")
        if not HOST.fullmatch(host):
            return Refusal(400, "The Host is missing or malformed.")
        if host.lower() not in self.hosts:
            return Refusal(403, "This address is not that of the studio.")
        if not PATH.fullmatch(scope.get("raw_path") or b""):
            return Refusal(400, "The address is malformed.")
        posts = scope["method"] == "POST"
        if not posts and scope["method"] != "GET":
            return Refusal(405, "The studio knows GET and POST alone.")
        own = b"http://" + host.lower()
        if headers.get(b"origin", own if not posts else b"") != own:
            return Refusal(403, OTHER_PAGES)
        if scope["raw_path"] != b"/" and headers.get(b"sec-fetch-site") != b"same-origin":
            return Refusal(403, OTHER_PAGES)
        if posts and (
            headers.get(b"x-holotype") != b"1" or headers.get(b"content-type") != b"application/json"
        ):
            return Refusal(403, "A header of the studio's page is missing.")
        length = headers.get(b"content-length", b"")
        if posts and not length.isdigit():
            return Refusal(411, "The length of the body is missing.")
        if length.isdigit() and int(length[:20]) > MAX_BODY:
            return Refusal(413, "The body is too large.")
        return None

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        """Does a cookie hold the secret? Another server of this machine may have set one of the same name."""
        pairs = (pair.strip().partition(b"=") for pair in headers.get(b"cookie", b"").split(b";"))
        values = [value for name, _, value in pairs if name == self.cookie.encode()]
        return any(hmac.compare_digest(value, self._secret.encode()) for value in values)

    async def _exchange(self, body: bytes, send: Send) -> None:
        """Give the secret for the token, once: the next browser needs another link."""
        try:
            told = json.loads(body)["token"]
            right = isinstance(told, str) and hmac.compare_digest(told.encode(), self.token.encode())
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            words = "This link was used already, or is that of an earlier start; the terminal shows the one that works."
            await _answer(send, 403, words)
            return
        self.token = secrets.token_urlsafe(32)
        cookie = f"{self.cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 200, "Welcome.", cookie=cookie)
        self.entered()

    def protocol(self) -> type[H11Protocol]:
        """Return uvicorn's protocol, with an end to connections that do not show the secret in time."""
        guard, admitted = self, self.admitted

        class Impatient(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.peer = transport.get_extra_info("peername")[:2]
                self.end = asyncio.get_running_loop().call_later(SECONDS, self.give_up, transport)
                if not guard.is_open:  # uvicorn has told those to close that it knew, and would keep this one
                    transport.abort()

            def give_up(self, transport: asyncio.Transport) -> None:
                if self.peer not in admitted:
                    transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                self.end.cancel()
                admitted.discard(self.peer)
                super().connection_lost(exc)

        return Impatient


_OWN_PAGES = (b"same-origin", b"none")
"""Where a browser comes from that follows no link of another page: the studio, or what the user has typed."""


async def _read_body(receive: Receive) -> bytes | Refusal:
    body = b""
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return Refusal(400, "The body is not whole.")
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    return Refusal(413, "The body is too large.")
                if not message.get("more_body"):
                    return body
    except TimeoutError:
        return Refusal(408, "The body came too slowly.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body that was read, then what comes after it: that the browser has gone."""
    waiting = [body]

    async def next_message() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return next_message


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name, value) for name, value in HEADERS.items() if name not in own]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending


async def _answer(
    send: Send, status: int, words: str, *, kind: str = "text/plain", policy: str = STRICT, cookie: str = ""
) -> None:
    """Answer to somebody who has not shown the secret, and hang up."""
    told = HEADERS | {b"content-security-policy": policy.encode(), b"connection": b"close"}
    body = words.encode()
    told |= {b"content-type": f"{kind}; charset=utf-8".encode(), b"content-length": str(len(body)).encode()}
    headers = [*told.items(), *([(b"set-cookie", cookie.encode())] if cookie else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
