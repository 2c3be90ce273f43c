"""Names that are markup, formulas, escapes or ways out of a folder: of files, classes, categories and notes.

Each is written into every kind of file that a run leaves, and opened in a browser where there is one.
"""

from __future__ import annotations

import csv
import html.parser
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.torture.child import in_child
from tools.torture.harness import Campaign, Case, numbered, survive
from tools.torture.mutate import TEXTS
from tools.torture.words import unclean
from tools.torture.world import World

AT_ONCE = 20
# fmt: off
MORE = (
    "<img src=x onerror=window.owned=1>", "'><svg onload=window.owned=1>", "<!--", "]]>", "&lt;b&gt;",
    "<b", "`", "${window.owned=1}", "\\u003cscript>", "</title><script>window.owned=1</script>",
    "</style><b>", "<base href=//x>", '=HYPERLINK("http://x","y")', "=cmd|'/c calc'!A1", "\t=1+1",
    "@import", "+1-1", "-1+1|x", "%0A=1", '"=1+1"', "\x1b]8;;http://x\x07y\x1b]8;;\x07", "\x1b[6n",
    "\x9b6n", "\x08\x08\x08", "\r=1+1", "\u2028", "\u202e", "\ufeffx", "con", "nul.png", "a" * 200,
    "ü" * 100, " ends with blanks ", "dots...", ".hidden", "a#1", "a?b", "a%20b", "#",
)
# fmt: on
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def hostile(dice: random.Random) -> str:
    """A name that a file can have."""
    name = dice.choice((*TEXTS, *MORE)) + (dice.choice((*TEXTS, *MORE)) if dice.random() < 0.4 else "")
    name = "".join(letter for letter in name if letter not in "/\0" and not "\ud800" <= letter <= "\udfff")
    return name.encode()[:200].decode("utf-8", "ignore") or "x"


def _check(world: World, case: Case) -> list[str]:
    seed, number = case.what
    dice = random.Random(f"names {seed} {number}")
    names = list(dict.fromkeys(hostile(dice) for _ in range(AT_ONCE)))
    trial = world.fresh()
    problems = survive([(f"batch {number}", lambda: _write_all(trial, names, dice))], watched=str(trial))
    if problems:
        return problems
    for words in (
        ["report", trial / "run", "--no-progress"],
        [
            "report",
            trial / "run",
            "--zip",
            trial / "mail.zip",
            "--edits",
            trial / "edits.csv",
            "--no-progress",
        ],
        *(["write", trial / "run", flag, trial / place] for flag, place in FORMS),
    ):
        ended = world.run(words)
        problems += [f"{words[0]} {words[2]}: {told}" for told in ended.troubles(0) + unclean(ended)]
    checks = survive([(f"batch {number}", lambda: [*files(trial), *_folders(trial)])], watched=str(trial))
    return problems + checks + ([] if world.short else in_browser(trial / "run" / "report.html"))


FORMS = (
    ("--labels", "labels.csv"),
    ("--coco", "coco.json"),
    ("--folders", "folders"),
    ("--camtrap-dp", "package"),
)


def _write_all(trial: Path, names: list[str], dice: random.Random) -> list[str]:
    """A finished run in which everything that can have a name has one of these."""
    import pandas as pd
    from PIL import Image

    from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, RunFacts
    from holotype.results.edits import Edit, edits_csv

    folder = trial / "images"
    folder.mkdir()
    paths = []
    for i, name in enumerate(names):
        path = folder / f"{name}.png"
        Image.new("RGB", (16, 16), (i, 2 * i, 3 * i)).save(path, format="PNG")
        paths.append(str(path))
    frame = pd.DataFrame({column: [""] * len(names) for column in IMAGE_TABLE_COLUMNS})
    frame["path"], frame["note"], frame["doubtful"] = paths, names[::-1], False
    frame["category_id"] = frame["category"] = names
    frame["kind"] = ["known" if i % 2 else "novel" for i in range(len(names))]
    frame["label"] = [name if i % 2 else "" for i, name in enumerate(names)]
    for column in ("probability", "known_score", "typicality", "x", "y"):
        frame[column] = [dice.random() for _ in names]
    known = tuple(names[1::2])
    categories = [
        Category(
            name,
            name,
            "known" if name in known else "novel",
            1,
            [path],
            words=name,
            suggested=name,
            nearest=names[0],
        )
        for name, path in zip(names, paths, strict=True)
    ]
    found = Discovery("names-1", known, frame, categories, None, RunFacts(title=names[0], root=str(folder)))
    found.save(trial / "run")
    edits = [Edit("names-1", "2026-01-01T00:00:00Z", "rename", "", name, f"{name}+") for name in names]
    (trial / "edits.csv").write_text(edits_csv(edits), encoding="utf-8", newline="")
    return []


# -- what was written -----------------------------------------------------------------------------------------


def files(trial: Path) -> Iterator[str]:
    for path in sorted(trial.rglob("*.csv")):
        if "images" not in path.parts:
            yield from formulas(path)
    text = (trial / "run" / "report" / "data.js").read_bytes()
    if not text.isascii() or b"<" in text or b">" in text:
        yield "report/data.js holds signs that end a script"
    json.loads(text.decode().removeprefix("window.HOLOTYPE = ").removesuffix(";\n"))
    json.loads((trial / "coco.json").read_text(encoding="utf-8"))
    yield from markup((trial / "run" / "report.html").read_text(encoding="utf-8"))


def formulas(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for row in csv.reader(stream):
            for cell in row:
                if cell.startswith(FORMULA) and not _is_number(cell):
                    yield f"{path.name} holds the formula {cell!r:.80}"
                    return


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.odd: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("img", "svg", "b", "base", "iframe", "object") or any(
            name.startswith("on") for name, _ in attrs
        ):
            self.odd.append(tag)


def markup(text: str) -> Iterator[str]:
    page = _Page()
    page.feed(text)
    if page.odd or page.scripts != 2:
        yield f"report.html holds {page.scripts} scripts and {page.odd}"


def _folders(trial: Path) -> Iterator[str]:
    """Everything that was sorted lies below its folder, under names that nobody obeys."""
    for top in ("folders", "package"):
        for where, _, names in os.walk(trial / top):
            real = os.path.realpath(where)
            if not real.startswith(os.path.realpath(trial / top)):
                yield f"{where} is outside"
            for name in names:
                if any(letter < " " or letter == "\x7f" for letter in name):
                    yield f"{name!r} has signs that a terminal obeys"


def in_browser(report: Path) -> list[str]:
    """Open it, look at every view, and see whether a name has become code."""
    if not browser_there():
        return []

    def look() -> list[str]:
        from tests.report.browser import Page, browsing

        with browsing() as browser:
            page = Page(browser, report)
            page.tab.on(
                "dialog",
                lambda dialog: (page.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()),
            )
            tab = page.open()
            views = tab.eval_on_selector_all("#nav a", "all => all.map((a) => a.getAttribute('href'))")
            for view in views:
                page.open(str(view).lstrip("#"))
            owned = tab.evaluate("window.owned")
        return [*page.complaints, *([f"a name became code: {owned}"] if owned else [])]

    ended = in_child(look, patience=120)
    return [f"in the browser: {told}" for told in ended.troubles() + (ended.value or [])]


def browser_there() -> bool:
    from importlib.util import find_spec

    from tests.report.browser import NAMES

    return find_spec("playwright") is not None and any(map(shutil.which, NAMES))


NAMES_CAMPAIGN = Campaign(
    "names",
    "hostile names in every file, and in a browser where there is one",
    numbered(AT_ONCE),
    _check,
    kind="hostile names",
    short=1,
    weight=3,
)
