"""Live state of a run: its log of edits, the page that is served, and what a watcher sees change in the folder.

The run folder is the truth. Nothing here is kept that is not there as well, but for the page, which a child process
builds into a temporary folder (page.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from holotype.data.boxes import split_box
from holotype.data.decode import encode_image, read_resized
from holotype.errors import InputError
from holotype.results.edits import (
    ACTIONS,
    EDIT_LOG,
    PLACEMENT_FILE,
    UNDO,
    Edit,
    EditLog,
    LearnedPlacement,
    read_placement,
    run_ids,
)
from holotype.results.lda import unit_rows
from holotype.studio.page import PageFacts, read_facts

PYTHON = [sys.executable, "-P", "-m"]
"""Starts a module of the package; nothing is imported from the folder that somebody happens to be in."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
MAX_TEXT = 2_000
"""Characters of a name."""
MAX_EDITS = 2_000
"""Edits of one request."""
THUMB_SIDE, IMAGE_SIDE = 232, 2048
"""Longer side of a picture in pixels; thumbnails are twice as large as they are shown on most screens."""
MAX_CACHED = 4_000
"""Thumbnails in memory: about 20 MB."""
MAX_LINE = 1 << 20
"""Bytes of a line of a child."""
NEIGHBOURS = 12
BLOCK = 8_192
"""Rows of features that are compared at once."""

log = logging.getLogger(__name__)
Signature = tuple[int, int, int]


class MissingImage(Exception):
    """There is no image of this row in this run."""


def file_signature(file: Path) -> Signature | None:
    """Return what tells a file from a later one of the same name; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class LiveRun:
    """One run folder and the page that shows it."""

    def __init__(self, folder: Path, read_only: str = "", images: str = "") -> None:
        """read_only: why nothing may be written, in a sentence; "" = all may. images: shown before the first round."""
        self.folder, self.read_only, self.images = folder, read_only, images
        self.log = EditLog(folder)
        """All lines of it; their number is the revision."""
        self.problem = ""
        """Why the folder cannot be read or written just now."""
        self.page: PageFacts | None = None
        self.pages = TemporaryDirectory(prefix="holotype-", ignore_cleanup_errors=True)
        self._places: dict[str, tuple[Path, PageFacts]] = {}
        """By run id: the folder of a page, and what is known of it. A window may still show the round before."""
        self.rows: dict[str, int] = {}
        """First row of each digest; of images without one, the row of each path."""
        self.placement: LearnedPlacement | None = None
        """Of the page that is served, by the answers so far (learn.py)."""
        self._log_signature: Signature | None = (0, 0, 0)
        self._placement_signature: tuple[Signature | None, str] = None, ""
        self._builds, self._built = 0, list[Signature | None]()
        self._broken: tuple[list[Signature | None], str] = [], ""
        """What could not be read, and why."""
        self._last_read = self.log.edits, 0
        """The list of edits, and how many of them were sent to the windows."""
        self._shown: list[str] = []
        """The run that the folder showed when it was looked at last."""
        self._writing = asyncio.Lock()
        self._decoding = asyncio.Semaphore(2)
        self._pictures: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def build(self) -> PageFacts:
        """Build the page of what the folder holds now. Raises InputError where that cannot be read."""
        self._builds += 1
        out, now = Path(self.pages.name, str(self._builds)), self._signatures()
        try:
            await build_in_child(self.folder, out, self.images)
        except InputError as error:
            self._broken = now, str(error)
            raise
        self._built, self._shown = now, run_ids(self.folder)[:1]
        self.page = facts = read_facts(out)
        self._places.pop(facts.run_id, None)
        self._places[facts.run_id] = (out, facts)
        for run in list(self._places)[:-2]:
            shutil.rmtree(self._places.pop(run)[0], ignore_errors=True)
        keys = [digest or path for digest, path in zip(facts.digests, facts.paths, strict=True)]
        self.rows = {key: row for row, key in reversed(list(enumerate(keys)))}
        return facts

    def file(self, name: str) -> Path:
        """Return a file of the page that is served now."""
        assert self.page is not None
        return self._places[self.page.run_id][0] / name

    def is_stale(self) -> bool:
        """Does the folder hold another round than the page shows? InputError where it is one that cannot be read."""
        now = self._signatures()
        if now == self._broken[0]:
            raise InputError(self._broken[1])
        if now == self._built or self.page is None or not self.page.round:
            return now != self._built
        return run_ids(self.folder)[:1] != self._shown  # the page of a round does not change with its edits

    def _signatures(self) -> list[Signature | None]:
        return [file_signature(self.folder / name) for name in ("discovery.json", "assignments.parquet")]

    async def refresh_log(self) -> int | None:
        """Read the log where somebody has changed it; return the first line that is new, None = none."""
        async with self._writing:
            now = file_signature(self.folder / EDIT_LOG)
            if now == self._log_signature:
                return None
            found = await asyncio.to_thread(self.log.read)
            self._log_signature, before, count = now, *self._last_read
            self._last_read = found, len(found)
        if found is not before:  # it is another log by now
            return 0
        return count if len(found) > count else None

    async def refresh_placement(self) -> bool:
        """Read where images were placed anew; return whether that is other than before."""
        run_id = self.page.run_id if self.page else ""
        now = file_signature(self.folder / PLACEMENT_FILE), run_id
        if now == self._placement_signature:
            return False
        before, self._placement_signature = self.placement, now
        n = len(self.page.paths) if self.page else 0
        self.placement = await asyncio.to_thread(read_placement, self.folder, run_id, n)
        return self.placement != before

    @property
    def answers(self) -> int:
        """Edits of the round that the page shows, those that were taken back and those that do so included."""
        return sum(edit.run_id == self.page.run_id for edit in self.log.edits) if self.page else 0

    async def save(self, items: Any) -> dict[str, Any]:
        """Append what the page has sent and sync it; return which ids are in the log, and why others are not."""
        if self.read_only:
            raise InputError(self.read_only)
        if not isinstance(items, list) or len(items) > MAX_EDITS:
            raise InputError(f"Edits come as a list of at most {MAX_EDITS:,}.")
        edits, refused = dict[str, Edit](), dict[str, str]()
        for item in items:
            name = str(item.get("id", ""))[:64] if isinstance(item, dict) else ""
            try:
                edits[name] = self._edit(item)
            except (InputError, KeyError, TypeError, AttributeError) as error:
                refused[name] = str(error) if isinstance(error, InputError) else "It is not an edit."
        async with self._writing:
            if edits:
                await asyncio.to_thread(self.log.append, list(edits.values()))
        return {"saved": list(edits), "refused": refused}

    def _edit(self, item: dict[str, Any]) -> Edit:
        """Return the edit that a page means. It names an image by digest or by row, and never by a path."""
        if self.page is None:
            raise InputError("The page is not ready yet.")
        run, time, action = str(item["run"]), str(item["time"]), str(item["action"])
        category, value, digest, by = (
            str(item.get(key) or "") for key in ("category", "value", "digest", "by")
        )
        row = item.get("row")
        if run not in self.page.runs:
            raise InputError(f"It belongs to run {run[:40]!r}, which is not in this folder.")
        if (
            action not in (*ACTIONS, UNDO)
            or not TIME.fullmatch(time)
            or len(category) + len(value) + len(by) > MAX_TEXT
        ):
            raise InputError("It is not an edit.")
        if digest and digest not in self.rows and run == self.page.run_id:
            raise InputError("There is no such image in this run.")
        if not digest and row is not None:
            facts = self._places[run][1] if run in self._places else None
            if facts is None or not isinstance(row, int) or not 0 <= row < len(facts.paths):
                raise InputError("There is no such image in this run.")
            return Edit(run, time, action, facts.paths[row], category, value, facts.digests[row], by)
        known = self.rows.get(digest, -1)
        image = self.page.paths[known] if known >= 0 else ""
        return Edit(run, time, action, image, category, value, digest, by)

    @property
    def revision(self) -> int:
        return len(self.log.edits)

    def edits_since(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the lines of the log from `start` on, as the page takes them: images by row, no paths."""
        held = set() if self.page is None else set(self.page.held)
        names = ("run_id", "time", "action", "category", "value", "digest", "by")
        return [
            {name: getattr(edit, name) for name in names} | {"row": self.rows.get(edit.digest or edit.image)}
            for edit in self.log.edits[start:]
            if edit.id not in held
        ]

    async def picture(self, run: str, row: int, *, small: bool) -> bytes:
        """Return an image as a new JPEG file, without anything that its own file says beside the pixels.

        Raises MissingImage where there is no such image, and ImageProblem where it cannot be read."""
        facts = self._places[run][1] if run in self._places else None
        if facts is None or not 0 <= row < len(facts.files):
            raise MissingImage
        if small and (run, row) in self._pictures:
            self._pictures.move_to_end((run, row))
            return self._pictures[run, row]
        file = facts.files[row] if small else split_box(facts.files[row])[0]
        async with self._decoding:
            content = await asyncio.to_thread(encode_picture, file, THUMB_SIDE if small else IMAGE_SIDE)
        if small:
            self._pictures[run, row] = content
            while len(self._pictures) > MAX_CACHED:
                self._pictures.popitem(last=False)
        return content


async def build_in_child(run: Path, out: Path, images: str = "") -> None:
    """Build the page in a process of its own, which ends with this task. Raises InputError with its sentence."""
    async for _ in child_lines("holotype.studio.page", str(run), str(out), images):
        pass


async def child_lines(*words: str, given: bytes = b"") -> AsyncIterator[bytes]:
    """Yield what a module prints in a process that ends with this task. Raises InputError with its last sentence.

    given: what it reads."""
    child = await asyncio.create_subprocess_exec(
        *PYTHON, *words, stdin=asyncio.subprocess.PIPE, limit=MAX_LINE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdin is not None
    saying = asyncio.create_task(child.stderr.read())
    child.stdin.write(given)
    child.stdin.close()
    try:
        async for line in child.stdout:
            yield line
        said = (await saying).decode(errors="replace").strip()
        await child.wait()
    finally:
        if child.returncode is None:  # the studio closes
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        raise InputError(said.splitlines()[-1] if said else "The page could not be built.")


def encode_picture(file: str, side: int) -> bytes:
    """Shrink the longer side of an image to `side`, and return it as a JPEG file of the pixels alone."""
    pixels = read_resized(file, side, min_side=side).copy()
    pixels.info = {}
    return encode_image(pixels, "JPEG", quality=85)


def nearest_rows(file: Path, row: int, n: int = NEIGHBOURS) -> dict[int, float]:
    """Return the rows of the images whose features have the largest cosine with those of one, best first, and these."""

    def read(first: int, last: int) -> np.ndarray:
        # mapped anew for each block: pages that stay mapped count as memory of the server
        return unit_rows(np.load(file, mmap_mode="r")[first:last].astype(np.float32))

    own, count = read(row, row + 1)[0], len(np.load(file, mmap_mode="r"))
    likeness = np.concatenate([read(first, first + BLOCK) @ own for first in range(0, count, BLOCK)])
    likeness[row] = np.nan
    best = np.argsort(-np.nan_to_num(likeness, nan=-np.inf))[:n]
    return {int(one): float(likeness[one]) for one in best if np.isfinite(likeness[one])}
