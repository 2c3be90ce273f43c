"""The built site in a real browser: no errors, nothing fetched, readable on a phone, in the dark and on a laptop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.browser import browsing, chromium

from .conftest import TOP

PAGES = "index findings folder methods methods/rpc results studies/index studies/rpc-parts api".split()  # noqa: SIM905
"""One of each kind: start, figures, plain text, drawings, card, wide tables, index, study, reference."""
WIDE = ("methods/rpc", "results", "studies/rpc-parts", "api")  # pages whose tables may be wider than a laptop
PICTURES = "[...document.images].map(one => [one.src, one.alt, one.naturalWidth])"
MOVED = "[...document.querySelectorAll('.md-typeset__scrollwrap')].some(e => e.scrollWidth > e.clientWidth)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name, reason="the extra docs is not installed")
    chromium()
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    made = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Any]:
    with browsing() as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_every_kind_of_page_can_be_read(browser: Any, site: Path, width: int, scheme: str) -> None:
    """Nothing is cut off, without words or broken. A drawing keeps its size on a phone and is moved sideways; on a
    laptop nobody has to move a table sideways, and no figure is parted by the end of a line."""
    context = browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:")) or complaints.append(r.url))
    for name in PAGES:
        tab.goto((site / f"{name}.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == width, name
        shown = tab.evaluate("document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        assert [one for one in tab.evaluate(PICTURES) if len(one[1].split()) < 4 or not one[2]] == [], name
        assert tab.evaluate("document.querySelectorAll('h1').length") == 1, name
        if width == 1280 and name not in WIDE:
            assert not tab.evaluate(MOVED), name
            assert "± " not in tab.evaluate("document.querySelector('article').innerText"), name
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent.trim()") == "Skip to content"
    context.close()
    assert complaints == []
