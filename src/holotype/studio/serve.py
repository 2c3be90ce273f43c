"""Serve the studio of a run on this machine: address, lock, browser, and the end."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from holotype.errors import InputError
from holotype.studio.app import Studio
from holotype.studio.guard import MAX_CONNECTIONS, Guard
from holotype.studio.jobs import STUDIO, JobContext
from holotype.studio.live import LiveRun
from holotype.utils.locks import lock_folder

ADDRESS = "127.0.0.1"
"""The studio listens here and nowhere else; docs/studio.md shows how to reach it from another computer."""
PORT = 8321
"""Browsers keep unsent edits by address: so a studio comes back to the same one where it can."""
PORTS_TRIED = 20
OPENER = "open.html"


def bind(port: int | None) -> socket.socket:
    """Return a socket that listens. None: on PORT, or the next one that is free. Raises InputError."""
    for candidate in range(PORT, PORT + PORTS_TRIED) if port is None else [port]:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((ADDRESS, candidate))
            found.listen(MAX_CONNECTIONS)
            return found
        except OSError as error:
            found.close()
            reason = error.strerror
    where = f"Port {port}" if port is not None else f"Every port from {PORT} to {PORT + PORTS_TRIED - 1}"
    raise InputError(f"{where} of this computer cannot be used ({reason}); choose another one with --port.")


@contextmanager
def claimed_run(run: Path, read_only: bool) -> Iterator[str]:
    """Hold the studio of a run folder; yield why it is open for reading only, "" = it is not."""
    if read_only:
        yield "This studio was started with --read-only."
        return
    if not os.access(run, os.W_OK):
        yield f"{run} cannot be written by you, so this studio only shows it."
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock_folder(run / STUDIO))
            why = ""
        except InputError as error:
            words = str(error).partition(";")[0].replace(f"{run / STUDIO} is", "The studio of this run is")
            why = f"{words}; here it can only be looked at."
        yield why


class Server(uvicorn.Server):
    """The studio of a run behind its guard, on a socket that listens."""

    def __init__(self, context: JobContext, listener: socket.socket, read_only: str = "") -> None:
        self.port = listener.getsockname()[1]
        self.studio = Studio(LiveRun(context.run, read_only, context.images), context)
        self.guard = Guard(self.studio.app(), self.port)
        super().__init__(
            uvicorn.Config(
                self.guard,
                http=self.guard.protocol(),
                ws="none",
                lifespan="on",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=2,
            )
        )

    @property
    def link(self) -> str:
        """With the token in the fragment, which no browser sends anywhere."""
        return f"http://{ADDRESS}:{self.port}/#t={self.guard.token}"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.guard.is_open = False
        self.studio.close_windows()
        await super().shutdown(sockets)


def serve(
    context: JobContext, port: int | None, *, read_only: bool, browser: bool, say: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C. say: prints a line. Raises InputError where the address cannot be had."""
    context.run.mkdir(parents=True, exist_ok=True)  # the one of a folder that has none yet
    with bind(port) as listener, claimed_run(context.run, read_only) as why, TemporaryDirectory() as private:
        server = Server(context, listener, why)
        opener = (Path(private) if why else context.out) / OPENER

        def entered() -> None:
            opener.unlink(missing_ok=True)
            say(f"A browser has come in. For another one: {server.link}")

        server.guard.entered = entered
        say(f"Studio of {context.run}: {server.link}")
        say(why or "Ctrl-C closes it.")
        if browser:  # it may come before the server is ready: the socket listens
            open_browser(opener, server.link)
        try:
            server.run([listener])
        finally:
            with contextlib.suppress(OSError):
                opener.unlink(missing_ok=True)


def open_browser(file: Path, link: str) -> None:
    """Open the link by way of a file that only this user can read: others see the command line of a browser."""
    try:
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={link}">\n')
    except OSError:
        return  # the link stands in the terminal
    threading.Thread(target=webbrowser.open, args=(file.resolve().as_uri(),), daemon=True).start()
