"""Nobody gets in: hostile requests over real sockets are answered without a byte of the run."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holotype.studio import guard
from studio.client import Client, raw, read_all
from studio.hostile import HOSTS, POSTS, RAW, SITES, flood, halves, raw_request

SECRETS = (b"picture", b"Sneaker", b"run-made-1", b"new-01", b"HOLOTYPE")
"""What a stranger must not see."""


@pytest.fixture
def ask(server, client):
    """Ask with other headers than the page; returns the answer, which holds nothing of the run."""

    def asked(method="GET", path="/api/state", body=None, **headers):
        answer = client.ask(method, path, body, **headers)
        assert not any(word in answer.body for word in SECRETS), answer.body[:200]
        assert not [name for name in answer.headers if name.startswith("access-control")]
        return answer

    return asked


@pytest.fixture
def port(client) -> int:
    return client.port


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/api/state", "/data.js", "/thumb/0?run=run-made-1", "/events"])
def test_only_the_exact_host_is_answered(ask, port, host, path) -> None:
    """A name of the web that leads to 127.0.0.1 (DNS rebinding) is told by nothing else."""
    assert ask(path=path, Host=host.format(port=port)).status == HOSTS[host]


@pytest.mark.parametrize("host", ["localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_the_other_names_of_this_machine_are_answered(client, port, host) -> None:
    assert client.ask("GET", "/api/state", Host=host.format(port=port)).status == 200


@pytest.mark.parametrize("name", RAW)
def test_malformed_requests_are_refused(client, name) -> None:
    answer = raw(client.port, raw_request(client.host, client.cookie, name))
    assert re.match(rb"HTTP/1.1 400 ", answer), answer[:80]
    assert not any(word in answer for word in SECRETS)


def test_old_http_without_a_host_is_refused(client) -> None:
    answer = raw(client.port, f"GET / HTTP/1.0\r\nCookie: {client.cookie}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("path", ["/api/state", "/data.js", "/events", "/thumb/0?run=run-made-1"])
def test_other_pages_get_nothing(ask, path, site) -> None:
    """Neither by fetch, nor by EventSource, <img> or <script>, which send no Origin."""
    assert ask(path=path, Sec_Fetch_Site=site).status == 403


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize("path", ["/api/edits", "/api/job", "/api/session"])
def test_posts_of_other_pages_are_refused(ask, client, path, name) -> None:
    headers = {key: value and value.format(host=client.host) for key, value in POSTS[name].items()}
    assert ask("POST", path, {"edits": [], "start": "discover"}, **headers).status == 403
    assert client.state()["job"] is None


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "PUT", "DELETE", "PATCH", "TRACE"])
def test_a_preflight_is_not_answered(ask, method) -> None:
    answer = ask(method, "/api/edits", Origin="http://127.0.0.1:1", Access_Control_Request_Method="POST")
    assert answer.status in (403, 405)


def test_without_the_cookie_there_is_only_the_door(server, client) -> None:
    stranger = Client(server.link)
    for path in ("/api/state", "/data.js", "/events", "/thumb/0?run=run-made-1", "/no/such", "/api/session"):
        assert stranger.get(path).status == 403
    door = stranger.get("/")
    assert (door.status, b"<script>" in door.body) == (200, True)
    assert not any(word in door.body for word in SECRETS)
    assert client.ask("GET", "/", Sec_Fetch_Site="cross-site").body == door.body
    assert client.get("/").body != door.body


def test_a_token_works_once_and_is_not_the_cookie(server) -> None:
    browser = Client(server.link)
    first = browser.token
    browser.enter()
    assert browser.get("/api/state").status == 200
    assert browser.cookie.startswith(f"holotype-{server.port}=")
    assert first not in browser.cookie
    for token in (first, "", "x", None, 1, ["x"], server.guard.token[:-1], "\ud800"):
        answer = browser.post("/api/session", {"token": token})
        assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    for body in ([], "token", 7, {}):
        assert browser.post("/api/session", body).status == 403
    stranger = Client(server.link)
    stranger.cookie = f"holotype-{server.port}={first}"
    assert stranger.get("/api/state").status == 403


def test_what_the_cookie_may_do(server) -> None:
    answer = Client(server.link).ask("POST", "/api/session", {"token": server.guard.token})
    told = {word.strip().lower() for word in answer.headers["set-cookie"].split(";")[1:]}
    assert told == {"path=/", "httponly", "samesite=strict"}


def test_the_cookie_of_another_studio_says_nothing_here(made, serve, client) -> None:
    """Browsers send it to every port of a host."""
    other = Client(serve(made).link).enter()
    for cookie in (other.cookie, other.cookie.replace(str(other.port), str(client.port)), "holotype=x", ""):
        stranger = Client(f"http://{client.host}/#t=")
        stranger.cookie = cookie
        assert stranger.get("/api/state").status == 403
    both = Client(f"http://{client.host}/#t=")
    both.cookie = f"holotype-{client.port}=set-by-another-server; {client.cookie}; {other.cookie}"
    assert both.get("/api/state").status == 200


def test_every_answer_carries_the_rules(server, client) -> None:
    stranger = Client(server.link)
    answers = [client.get(path) for path in ("/", "/data.js", "/api/state", "/thumb/0?run=run-made-1")]
    answers += [client.get("/no/such"), stranger.get("/"), stranger.get("/api/state"), client.ask("PUT", "/")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"unsafe|\*|https?:", policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers
        assert answer.headers["cache-control"].startswith(("no-store", "private"))


def test_large_bodies_are_refused(client) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in client.headers("POST").items())
    for length, status in ((guard.MAX_BODY + 1, 413), ("99999999999999999999", 413), ("x", 400), ("-1", 400)):
        sent = f"POST /api/edits HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n"
        assert f" {status} ".encode() in raw(client.port, sent.encode())[:16]
    sent = f"POST /api/edits HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"
    assert b" 411 " in raw(client.port, sent.encode())[:16]
    many = "".join(f"X-{number}: {'x' * 1000}\r\n" for number in range(200))
    assert b" 200 " not in raw(client.port, f"GET / HTTP/1.1\r\n{many}\r\n".encode())


def test_who_is_slow_is_cut_off_and_others_are_served(made, serve, monkeypatch) -> None:
    """200 connections that say nothing, half a head or half a body."""
    monkeypatch.setattr(guard, "SECONDS", 1.0)
    browser = Client(serve(made).link).enter()
    starts = halves(browser.host, browser.cookie)
    assert b" 408 " in raw(browser.port, starts[3])[:16]
    assert raw(browser.port, starts[2]) == b""
    opened = flood(browser.port, starts)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(read_all, opened))
    for sock in opened:
        sock.close()
    assert not any(word in answer for answer in answers for word in SECRETS)
    deadline = time.monotonic() + 20
    while (answer := browser.get("/api/state")).status == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert answer.status == 200


def test_who_comes_while_the_server_ends_is_cut_off(made, serve) -> None:
    """Else a browser would ask on that connection again, and wait for ever."""
    server = serve(made)
    browser = Client(server.link).enter()
    server.guard.is_open = False
    with pytest.raises(ConnectionError):
        browser.get("/api/state")


def test_headers_of_a_proxy_change_nothing(ask, client) -> None:
    told = {"X_Forwarded_For": "192.0.2.1", "X_Forwarded_Proto": "https", "X_Forwarded_Host": "evil.example"}
    assert client.ask("GET", "/api/state", **told).status == 200
    assert ask(Host="evil.example", X_Forwarded_Host=client.host).status == 403


def test_websockets_are_not_known(client) -> None:
    answer = client.ask("GET", "/events", Upgrade="websocket", Connection="Upgrade", Host="evil.example")
    assert answer.status == 403
