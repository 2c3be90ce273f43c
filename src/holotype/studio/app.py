"""The studio's server: routes, events, and the watcher of the run folder. All of it stands behind guard.py.

Routes. Bodies and answers are JSON; a refusal is {"words": sentence} with status 409, and 404 where there is no such
image. Images are named by their row in the table of a run: no path ever comes from the browser.

    GET  /                    the page (guard.py: without a cookie, login.html)
    GET  /data.js             window.HOLOTYPE = what the page knows; its key `studio` is `Studio.state()`
    GET  /api/state           the same state: run_id, round, revision, edits, read_only, problem, job, jobs, difference
    POST /api/edits           {"edits": [{id, run, time, action, row, digest, category, value}]}
                              -> {"saved": [ids], "refused": {id: words}, "revision"}; saved = synced, sent twice = once
    POST /api/job             {"start": name, "settings": {}} or {"stop": true} -> {"job"}; names are those of jobs.JOBS
    GET  /api/alike/ROW?run=  {"rows": [...], "likeness": [...]}: the most similar images, best first
    POST /api/picture         {"picture": base64} -> the same of a picture that is not in the run
    POST /api/words           {"words": "..."} -> the same of words, where a network with a text tower is there
    GET  /thumb/ROW?run=      a small JPEG
    GET  /image/ROW?run=      a large JPEG
    GET  /events?after=N      server-sent events; `id` is the revision, so that a reconnect misses no edit

Events, each {"type": ...}; live.js dispatches them in one place (SERVER_EVENTS).

    edits     revision, from, edits: lines of the log from number `from` on; 0 = these are all
    job       job: `jobs.JobState`, or null; jobs: what can be started
    round     run_id, round, words: the folder holds another round than before; the page loads itself anew to show it
    problem   words: why the folder cannot be used just now, "" = it can
    look      look: lines and groups of the first look at a folder without a run (discovery/folder_preview.py)
    placement placement: `LearnedPlacement`, or null: images that were placed anew by the answers so far
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holotype.data.decode import ImageProblem
from holotype.errors import InputError
from holotype.studio.jobs import JobContext, JobRunner, first_settings
from holotype.studio.live import LiveRun, MissingImage, child_lines, nearest_rows

POLL_SECONDS = 0.4
PING_SECONDS = 15.0
MAX_STREAMS = 24
ANSWERS = 8
"""Edits after which the images are placed anew (learn.py)."""
MAX_WAITING = 1_000
"""Events that a window may be behind before it is cut off; it reconnects by itself."""
LEAST_FREE = 16 << 20
"""Bytes on the disk below which the page warns."""
PROBLEM_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3">
<meta name="color-scheme" content="light dark"><title>Holotype studio</title><h1>Holotype studio</h1><p>{words}</p>"""
KEEP = {"Cache-Control": "private, max-age=86400, immutable"}

log = logging.getLogger(__name__)


class Studio:
    """The run, its jobs, and the windows that look at it."""

    def __init__(self, run: LiveRun, context: JobContext) -> None:
        self.run, self.jobs = run, JobRunner(context)
        self.ready = asyncio.Event()
        """The page was built, or it was said why it cannot be."""
        self._windows: set[asyncio.Queue[dict[str, Any]]] = set()
        self._last_events: dict[str, Any] = {}
        """The last event of each type."""
        self.look: dict[str, Any] = {}
        """What the first look at a folder has found so far."""
        self._learned = "", 0
        """The round that was learned from last, and the number of its edits then."""

    def app(self) -> Starlette:
        routes = [
            Route("/", self.get_page),
            Route("/data.js", self.get_data),
            Route("/api/state", self.get_state),
            Route("/api/edits", self.post_edits, methods=["POST"]),
            Route("/api/job", self.post_job, methods=["POST"]),
            Route("/api/alike/{row:int}", self.get_alike),
            Route("/api/picture", self.post_picture, methods=["POST"]),
            Route("/api/words", self.post_words, methods=["POST"]),
            Route("/thumb/{row:int}", self.get_thumb),
            Route("/image/{row:int}", self.get_image),
            Route("/events", self.get_events),
        ]
        handlers = {InputError: _refuse, MissingImage: _missing, ImageProblem: _missing}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.watch()), asyncio.create_task(self.look_at_folder())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self.jobs.close()
        self.run.pages.cleanup()

    def close_windows(self) -> None:
        """End the streams of events: a server that closes waits for them."""
        for window in self._windows:
            window.put_nowait({})

    def broadcast(self, kind: str, **facts: Any) -> None:
        """Send an event to every window, where it says something new."""
        event = {"type": kind, **facts}
        if self._last_events.get(kind) == event:
            return
        self._last_events[kind] = event
        for window in list(self._windows):
            if window.qsize() >= MAX_WAITING:
                self._windows.discard(window)
                window.put_nowait({})
            else:
                window.put_nowait(event)

    async def broadcast_edits(self) -> None:
        """Read what is new in the log, and send it to the windows."""
        if (start := await self.run.refresh_log()) is not None:
            self.broadcast("edits", **self._edits(start))

    def _edits(self, start: int) -> dict[str, Any]:
        return {"revision": self.run.revision, "from": start, "edits": self.run.edits_since(start)}

    def broadcast_job(self) -> None:
        self.broadcast("job", job=self.jobs.poll(), jobs=self.jobs.available())

    async def watch(self) -> None:
        """Look at the folder for as long as the studio is open. Whatever is wrong is said, and the work goes on."""
        while True:
            try:
                await self.poll()
                self.report_problem("")
            except asyncio.CancelledError:
                raise
            except InputError as error:
                self.report_problem(str(error))
            except OSError as error:
                self.report_problem(f"{error.filename or self.run.folder} cannot be used: {error.strerror}.")
            except Exception as error:
                log.exception("The studio goes on after a bug in it.")
                self.report_problem(
                    f"Something is wrong in the studio itself ({error!r}); the terminal says more."
                )
            self.ready.set()
            await asyncio.sleep(POLL_SECONDS)

    async def look_at_folder(self) -> None:
        """Tell the windows what a folder without a run holds, as it is found."""
        await self.ready.wait()
        if not (facts := self.run.page) or facts.round or not self.jobs.context.images or facts.runs:
            return
        words = self.jobs.context.images, str(self.run.folder)
        try:
            async for line in child_lines("holotype.discovery.folder_preview", *words):
                self.look |= json.loads(line)
                self.broadcast("look", look=dict(self.look))
        except InputError as error:
            self.look["lines"] = [*self.look.get("lines", []), str(error)]
            self.broadcast("look", look=dict(self.look))

    async def poll(self) -> None:
        """See what has changed in the folder, and send it to the windows."""
        folder = self.run.folder
        if not folder.is_dir():
            raise InputError(f"The run folder {folder} is gone; bring it back, and the studio goes on.")
        self.broadcast_job()
        if self.run.is_stale():
            before = self.run.page
            facts = await self.run.build()
            self.ready.set()
            if before is not None:
                self.broadcast("round", run_id=facts.run_id, round=facts.round, words=facts.difference)
        await self.broadcast_edits()
        if await self.run.refresh_placement():
            self.broadcast("placement", placement=self.placement())
        self.learn_when_due()
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE and not self.run.read_only:
            raise InputError(f"The disk of {folder} is full ({free >> 20} MB are free); make some room.")
        if (images := self.jobs.context.images) and not Path(images).exists():
            raise InputError(f"The images {images} are gone; bring them back, and pictures and rounds go on.")

    def placement(self) -> dict[str, Any] | None:
        return asdict(self.run.placement) if self.run.placement else None

    def learn_when_due(self) -> None:
        """Start the job `learn` after every few answers, where nothing else runs."""
        facts, count, (run_id, learned) = self.run.page, self.run.answers, self._learned
        if facts is None or self.run.read_only or (self.jobs.state and self.jobs.state.runs):
            return
        if run_id != facts.run_id:  # some answers may have come before the job that made the round was over
            learned = self.run.placement.edits if self.run.placement else 0
        self._learned = facts.run_id, learned
        if abs(count - learned) >= ANSWERS:
            self._learned = facts.run_id, count
            with contextlib.suppress(InputError):  # a run without rounds
                self.jobs.start("learn")

    def report_problem(self, words: str) -> None:
        if words != self.run.problem:
            self.run.problem = words
            log.warning(words or f"{self.run.folder} can be used again.")
        self.broadcast("problem", words=words)

    def state(self) -> dict[str, Any]:
        """Return all that the page cannot know from its data."""
        facts = self.run.page
        return {
            "run_id": facts.run_id if facts else "",
            "round": facts.round if facts else 0,
            "difference": facts.difference if facts else "",
            "revision": self.run.revision,
            "edits": self.run.edits_since(),
            "read_only": self.run.read_only,
            "problem": self.run.problem,
            "look": self.look,
            "job": self.jobs.poll(),
            "jobs": self.jobs.available(),
        }

    async def _page_ready(self) -> None:
        await self.ready.wait()
        if self.run.page is None:
            raise InputError(self.run.problem)

    async def get_page(self, request: Request) -> Response:
        await self.ready.wait()
        if self.run.page is None:  # it is loaded again until there is one
            return Response(PROBLEM_PAGE.format(words=escape(self.run.problem)), 409, media_type="text/html")
        policy = f"{self.run.page.policy}; frame-ancestors 'none'"
        text = await asyncio.to_thread(self.run.file("page.html").read_bytes)
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def get_data(self, request: Request) -> Response:
        await self._page_ready()
        await self.broadcast_edits()
        await self.run.refresh_placement()
        text = json.dumps(self.state() | {"placement": self.placement()}).replace("<", "\\u003c")
        data = await asyncio.to_thread(self.run.file("data.js").read_bytes)
        more = f"window.HOLOTYPE.studio = {text};\n".encode()
        return Response(data + more, media_type="text/javascript")

    async def get_state(self, request: Request) -> Response:
        return JSONResponse(self.state())

    async def post_edits(self, request: Request) -> Response:
        await self._page_ready()
        answer = await self.run.save((await _body(request)).get("edits"))
        await self.broadcast_edits()
        return JSONResponse(answer | {"revision": self.run.revision})

    async def post_job(self, request: Request) -> Response:
        wish = await _body(request)
        if self.run.read_only:
            raise InputError(self.run.read_only)
        if wish.get("stop"):
            self.jobs.stop()
        else:
            classes = self.run.page.classes if self.run.page else []
            self.jobs.start(str(wish.get("start")), first_settings(wish.get("settings"), classes))
        self.broadcast_job()
        return JSONResponse({"job": self.jobs.poll()})

    async def get_alike(self, request: Request) -> Response:
        await self._page_ready()
        facts = self.run.page
        row = request.path_params["row"]
        if facts is None or request.query_params.get("run") != facts.run_id or row >= len(facts.paths):
            raise MissingImage
        file = facts.features
        near = await asyncio.to_thread(nearest_rows, Path(file), row) if file else {}
        return JSONResponse({"rows": [*near], "likeness": [*near.values()]})

    async def post_picture(self, request: Request) -> Response:
        await self._page_ready()
        try:
            picture = base64.b64decode(str((await _body(request)).get("picture")), validate=True)
        except ValueError:
            raise InputError("It is no picture.") from None
        return await self._look_up(picture)

    async def post_words(self, request: Request) -> Response:
        await self._page_ready()
        return await self._look_up(str((await _body(request)).get("words")).encode(), "words")

    async def _look_up(self, given: bytes, *what: str) -> Response:
        found: dict[str, float] = {}
        async for line in child_lines("holotype.discovery.lookup", str(self.run.folder), *what, given=given):
            found = json.loads(line)
        rows = {self.run.rows[digest]: value for digest, value in found.items() if digest in self.run.rows}
        return JSONResponse({"rows": [*rows], "likeness": [*rows.values()]})

    async def get_thumb(self, request: Request) -> Response:
        return await self._picture(request, small=True)

    async def get_image(self, request: Request) -> Response:
        return await self._picture(request, small=False)

    async def _picture(self, request: Request, *, small: bool) -> Response:
        await self._page_ready()
        run, row = request.query_params.get("run", ""), request.path_params["row"]
        content = await self.run.picture(run, row, small=small)
        return Response(content, media_type="image/jpeg", headers=KEEP)

    async def get_events(self, request: Request) -> Response:
        if len(self._windows) >= MAX_STREAMS:
            return JSONResponse({"words": "Too many windows are open; close some."}, status_code=503)
        seen = request.headers.get("last-event-id") or request.query_params.get("after", "")
        start = int(seen[:12]) if seen.isdecimal() else 0
        return StreamingResponse(self.stream(start), media_type="text/event-stream")

    async def stream(self, start: int) -> AsyncIterator[str]:
        """Yield what a window has missed, then what happens. start: the revision that it has seen."""
        window: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._windows.add(window)
        try:
            if start != self.run.revision:
                yield self._line({"type": "edits", **self._edits(start if start < self.run.revision else 0)})
            for kind in ("job", "problem", "placement", "look"):
                if kind in self._last_events:
                    yield self._line(self._last_events[kind])
            if facts := self.run.page:
                told = {"run_id": facts.run_id, "round": facts.round, "words": facts.difference}
                yield self._line({"type": "round", **told})
            while True:
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        event = await window.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if not event:
                    return
                yield self._line(event)
        finally:
            self._windows.discard(window)

    @staticmethod
    def _line(event: dict[str, Any]) -> str:
        id = f"id: {event['revision']}\n" if event["type"] == "edits" else ""
        return f"{id}data: {json.dumps(event)}\n\n"


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError("The request holds no group of keys.")
    return found


async def _refuse(request: Request, error: Exception) -> Response:
    return JSONResponse({"words": str(error)}, status_code=409)


async def _missing(request: Request, error: Exception) -> Response:
    return JSONResponse({"words": "There is no such image."}, status_code=404)
