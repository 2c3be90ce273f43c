"""How smoothly does the studio scroll through 100,000 images? Times each frame in a headless Chromium.

    python benchmarks/scrolling.py --images 100000

Makes a run of that many images (the pictures are a few files again and again), opens it in the studio, and scrolls
through all images for SECONDS, as a wheel does. Prints the median and the 95th percentile of the milliseconds between
two frames, the most cells that the page held, and the megabytes of the server.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

TOP = Path(__file__).resolve().parents[1]
SECONDS = 10
PIXELS = 240
"""Of each step; a wheel makes about 100."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    given = parser.parse_args()
    sys.path[:0] = [str(TOP), str(TOP / "tests")]
    from report.browser import browsing
    from report.made import make_discovery

    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make_discovery(Path(folder) / "pictures", given.images, files=40).save(run)
        command = [sys.executable, "-m", "holotype", "studio", str(run), "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            link = re.findall(r"http://\S+", server.stdout.readline())[0]
            with browsing() as browser:
                tab = browser.new_page(viewport={"width": 1280, "height": 900})
                tab.goto(link, timeout=120_000)
                tab.wait_for_selector("body[data-ready]", timeout=120_000)
                tab.evaluate("() => { location.hash = '#find/picture'; }")
                tab.wait_for_selector(".tile")
                times, most = tab.evaluate(SCROLL, [SECONDS, PIXELS])
            pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
        finally:
            server.kill()
            server.wait()
    middle, high = np.percentile(times, [50, 95])
    size = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    print(
        f"{given.images:,} images, {len(times)} frames: median {middle:.1f} ms, 95th percentile {high:.1f} ms; ",
        end="",
    )
    print(f"at most {most} cells; server {size:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
