"""How fast is the studio? Each part is measured a few times, and prints a line each time.

    python benchmarks/studio.py start learn edit scroll --images 100000

start    seconds from the command to its link and to the first answer, megabytes, and whether torch is loaded
learn    seconds to place images of 384 dimensions and 100 categories anew (studio/learn.py), a tenth of them answered
edit     milliseconds from a key to the changed page, and to the word that the edit is in the run folder, in a browser
scroll   milliseconds between two frames while the page scrolls as with a wheel, and the most cells that it held

start, edit and scroll make a run of that many images (the pictures are a few files again and again).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

TOP = Path(__file__).resolve().parents[1]
SECONDS = 10
PIXELS = 240
"""Of each step; a wheel makes about 100."""
EDITS = 60
DIMENSIONS, CATEGORIES = 384, 100
SCROLL = """async ([seconds, pixels]) => {
  const times = [];
  let most = 0;
  const end = performance.now() + 1000 * seconds;
  let before = await new Promise(requestAnimationFrame);
  while (performance.now() < end) {
    scrollBy(0, pixels);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - before);
    before = now;
    most = Math.max(most, document.querySelectorAll('.tile').length);
  }
  return [times, most];
}"""
EDIT = """async (edits) => {
  const frame = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));
  const [shown, saved] = [[], []];
  document.querySelector('main .tools ~ .gallery').gallery.focus(0);
  for (let n = 0; n < edits; n++) {
    const start = performance.now();
    document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'r', bubbles: true }));
    await frame();
    shown.push(performance.now() - start);
    while (document.getElementById('edits-button').dataset.state !== 'saved') await frame();
    saved.push(performance.now() - start);
  }
  return [shown, saved];
}"""


def make_run(folder: Path, images: int) -> Path:
    from report.made import make_discovery

    make_discovery(folder / "pictures", images, known=20, novel=20, files=40).save(folder / "run")
    return folder / "run"


@contextmanager
def served(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A studio in a process of its own, and its link."""
    command = [sys.executable, "-m", "holotype", "studio", str(run), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server, re.findall(r"http://\S+", server.stdout.readline())[0]
    finally:
        server.kill()
        server.wait()


@contextmanager
def opened(run: Path, view: str) -> Iterator[Any]:
    """A tab of a browser that shows a view."""
    from report.browser import browsing

    with served(run) as (_, link), browsing() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(240_000)
        tab.goto(link)
        tab.wait_for_selector("body[data-ready]")
        tab.evaluate("view => { location.hash = view; }", view)
        tab.wait_for_selector(".tile")
        yield tab


def start(run: Path) -> str:
    from studio import client

    client.TIMEOUT = 600.0
    began = time.monotonic()
    with served(run) as (server, link):
        seconds = time.monotonic() - began
        words = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        busy = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        page = client.Client(link).enter()
        answered = time.monotonic() - began
        page.get("/data.js")  # waits until the page is built
        pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
        torch = "/torch/" in Path(f"/proc/{server.pid}/maps").read_text()
    size = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    told = f"link after {seconds:.2f} s ({busy:.2f} s of a core), answer after {answered:.2f} s"
    return f"{told}, {size:.0f} MB, torch loaded: {torch}"


def learn(images: int) -> str:
    from holotype.results.review_queue import joined_features
    from holotype.studio.learn import place

    rng = np.random.default_rng(0)
    truth = rng.integers(0, CATEGORIES, images)
    centre = rng.normal(size=(CATEGORIES, DIMENSIONS))
    features = (centre[truth] + rng.normal(scale=3, size=(images, DIMENSIONS))).astype(np.float32)
    category = np.where(rng.random(images) < 0.7, truth, rng.integers(0, CATEGORIES, images))
    free = rng.random(images) > 0.1
    began, busy = time.monotonic(), time.process_time()
    after, _ = place(joined_features([features]), category, free, CATEGORIES, np.full(images, 0.8))
    seconds, busy = time.monotonic() - began, time.process_time() - busy
    right = (after[free] == truth[free]).mean()
    return f"placed anew in {seconds:.2f} s ({busy:.2f} s of a core; {100 * right:.0f} % right)"


def edit(run: Path) -> str:
    with opened(run, "category/new-01") as tab:
        shown, saved = tab.evaluate(EDIT, EDITS)
    return f"{EDITS} edits: shown {quantiles(shown)}, saved {quantiles(saved)}"


def scroll(run: Path) -> str:
    with opened(run, "find/picture") as tab:
        times, most = tab.evaluate(SCROLL, [SECONDS, PIXELS])
    return f"{len(times)} frames: {quantiles(times)}; at most {most} cells"


def quantiles(times: list[float]) -> str:
    middle, high = np.percentile(times, [50, 95])
    return f"median {middle:.0f} ms, 95th percentile {high:.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="+", choices=["start", "learn", "edit", "scroll"])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    sys.path[:0] = [str(TOP), str(TOP / "tests")]
    with TemporaryDirectory() as folder:
        run = make_run(Path(folder), given.images) if set(given.part) - {"learn"} else Path()
        for part in given.part:
            for _ in range(given.times):
                told = (
                    learn(given.images)
                    if part == "learn"
                    else {"start": start, "edit": edit, "scroll": scroll}[part](run)
                )
                print(f"{part}, {given.images:,} images: {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
