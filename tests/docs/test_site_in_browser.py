"""The built site in a real browser: no errors, readable on a phone and in the dark, reachable by keyboard."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.browser import browsing, chromium

from .conftest import TOP

PAGES = ("index", "findings", "studies/index", "studies/rpc-parts", "results", "methods/rpc", "api", "faq")
"""One of each kind: start, figure and tables, index, study, wide tables, card, reference, plain text."""
DRAWN = ("index", "methods", "findings", "methods/rpc", "studies/rpc-parts")
"""The pages with drawings; of the cards one, since all of them are drawn to one width."""
SMALLEST = 7
"""Pixels of the least letter in a drawing, an index below the line included."""
AA = 4.5
"""Contrast of text and background that WCAG asks of small letters."""
CONTRASTS = """names => {
  const parse = words => { const [r, g, b, a = 1] = words.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (top, below) => [0, 1, 2].map(i => top[3] * top[i] + (1 - top[3]) * below[i]).concat(1);
  const light = c => { const v = x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
                       return 0.2126 * v(c[0]) + 0.7152 * v(c[1]) + 0.0722 * v(c[2]); };
  const behind = node => { const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]); };
  const found = {};
  for (const name of names) for (const node of document.querySelectorAll(name)) {
    const style = getComputedStyle(node), ink = parse(style.color), paper = behind(node);
    ink[3] *= Number(style.opacity);
    const pair = [light(over(ink, paper)), light(paper)].sort((a, b) => b - a);
    found[name] = Math.min(found[name] ?? 99, (pair[0] + 0.05) / (pair[1] + 0.05));
  }
  return found; }"""
TEXT = [f".md-content {name}" for name in ("h1", "h2", "p", "td", "th", "li", "td code", "p a")]


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Any, site: Path, scheme: str) -> None:
    """360 pixels wide, by day and by night: nothing is cut off, grey on grey, without words or broken."""
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:")) or complaints.append(r.url))
    for name in PAGES:
        tab.goto((site / f"{name}.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == 360, name
        shown = tab.evaluate("document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        pictures = tab.evaluate("[...document.images].map(one => [one.src, one.alt, one.naturalWidth])")
        assert [one for one in pictures if len(one[1].split()) < 4 or not one[2]] == [], name
        assert tab.evaluate("document.querySelectorAll('h1').length") == 1, name
        faint = {what: ratio for what, ratio in tab.evaluate(CONTRASTS, TEXT).items() if ratio < AA}
        assert faint == {}, name
    context.close()
    assert complaints == []


@pytest.mark.parametrize("width", [360, 1280])
def test_drawings_and_tables_can_be_read(browser: Any, site: Path, width: int) -> None:
    """On a phone a drawing keeps its size and is moved sideways, inside a page that stays as wide as the screen. On a
    laptop nobody has to move a table sideways, and no figure is parted by the end of a line."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    tab, drawings = context.new_page(), 0
    sizes = "[...document.querySelectorAll('article img[src$=svg]')].map(one => [one.src, one.clientWidth])"
    wide = "[...document.querySelectorAll('.md-typeset__scrollwrap')].filter(one => one.scrollWidth > one.clientWidth)"
    for name in (*DRAWN, "folder", "studies/index", "faq"):
        tab.goto((site / f"{name}.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == width, name
        if width == 1280 and not name.startswith(("methods/", "studies/rpc")):
            assert tab.evaluate(f"{wide}.length") == 0, name
            assert "± " not in tab.evaluate("document.querySelector('article').innerText"), name
        for source, shown in tab.evaluate(sizes):
            text = Path(source.removeprefix("file://")).read_text(encoding="utf-8")
            drawn = float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1])
            letters = [float(size) for size in re.findall(r'font-size[=:]"? ?([\d.]+)', text)]
            assert min(letters) * shown / drawn >= SMALLEST, source
            drawings += 1
    context.close()
    assert drawings >= len(DRAWN)


def test_by_keyboard(browser: Any, site: Path) -> None:
    """The first stop skips to the text; the tabs of the header and the links of the text follow, each to be seen."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto((site / "studies/index.html").as_uri())
    assert min(tab.evaluate(CONTRASTS, [".md-tabs__link", ".md-header__title"]).values()) >= AA
    at = "[document.activeElement.textContent.trim(), getComputedStyle(document.activeElement).outlineStyle]"
    stops = []
    for _ in range(30):
        tab.keyboard.press("Tab")
        stops.append(tab.evaluate(at))
    told = [words for words, _ in stops]
    assert told[0] == "Skip to content"
    assert {"Start", "Results", "FAQ", "How to read the tables"} <= set(told)
    assert {outline for words, outline in stops if words in ("Skip to content", "Results", "FAQ")} == {"auto"}
    tab.goto((site / "studies/index.html").as_uri())
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('.md-content') !== null")
    context.close()
