"""The page of a run, built in a process of its own: `python -m holotype.studio.page RUN OUT [IMAGES]`.

The server holds neither the table of a large run nor the libraries that read it; it starts at once and stays small. OUT
gets three files: page.html, data.js (what the page knows, as report/page_data.py writes it, with every image, in the
order of the table) and facts.json (`PageFacts`: what the server needs of it).

The page has the last round as it ended. The edits of that round come from the log, and are applied by the page, so that
each of them can be taken back. A run of `holotype train` has no rounds: what was applied to it stays applied. Before
the first round the page has the images alone.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.studio import run_as_child
from holotype.utils.atomic import write_text
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.results.discovery import Discovery

HERE = Path(__file__).parent
SCRIPTS = ("grid.js", "live.js", "rounds.js", "queue.js", "explore.js", "start.js")
"""Between those of the report and report.js, which starts the page."""
POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; script-src 'self' '{script}'; style-src '{style}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
FOOTER = "This page talks to the studio on this computer alone; your edits are in the run folder once they are saved."
FILES = ("page.html", "data.js", "facts.json")
MAX_MOVED = 2_000
"""Images of a difference that the page lists; all are counted."""


@dataclass(frozen=True)
class PageFacts:
    """What the server knows of the page that it serves."""

    run_id: str
    runs: list[str]
    """Ids of this run and of its earlier rounds."""
    round: int
    policy: str
    """Content security policy of the page."""
    features: str
    """File of the features, "" where there are none."""
    paths: list[str]
    """(N,) of the images, as in the assignments."""
    files: list[str]
    """(N,) where to read them."""
    digests: list[str]
    """(N,) of their contents, "" where that is not known."""
    difference: str = ""
    """What the last round has changed, in words; "" where it is the first."""
    held: list[str] = field(default_factory=list)
    """Ids of the edits that the data of the page hold already."""
    classes: list[str] = field(default_factory=list)
    """Of the labels, before the first round."""


def read_facts(folder: Path) -> PageFacts:
    return PageFacts(**json.loads((folder / "facts.json").read_bytes()))


def build_page(run: Path, out: Path, images: str = "") -> PageFacts:
    """Write the files of the page of a run folder into `out`, or of its images where there is no run yet. Raises
    InputError where there is none that it reads."""
    import numpy as np

    from holotype.report import build
    from holotype.report.page_data import ShownImages, locate_image, page_data
    from holotype.report.redact import build_redactor, redact_names_in_data
    from holotype.results.discovery import DISCOVERY_FILE, FEATURES, read_features
    from holotype.results.ensemble import stability_summary
    from holotype.results.hierarchy import save_tree
    from holotype.results.review_queue import QUEUE_LENGTH, doubtful_images, question_features

    first = bool(images) and not (run / DISCOVERY_FILE).is_file()
    found, before, own = (unplaced(images), None, run) if first else read_rounds(run)
    paths = [str(path) for path in found.images["path"]]
    files = [locate_image(path, found.facts.root) for path in paths]
    shown = ShownImages(np.arange(len(paths)), paths, files)
    features = read_features(own, len(paths))
    data = page_data(found, shown, run, [], features)
    data["images"]["alike"] = {"each": 0, "list": [], "why": ""}
    data["earlier_log"] = []
    data["stability"] = stability_summary(found)
    tree = save_tree(run, found, None)  # without features none is made
    data["around"] = build.page_around(found, tree)
    data["tree"] = asdict(tree) if tree else None
    asked = doubtful_images(found, question_features(run, own, found.digests), QUEUE_LENGTH)
    data["queue"] = dict(zip(("queue", "gains"), asked, strict=True))
    data["first"] = Counter(found.images["label"][found.images["label"] != ""]) if first else None
    data["difference"] = difference(before, found) if before else None
    data = redact_names_in_data(data, build_redactor(paths, found.facts.root, run))
    *scripts, last = build.SCRIPT_FILES
    page, policy = build.render_page(
        found,
        run,
        scripts=[*scripts, *(HERE / name for name in SCRIPTS), last],
        styles=[build.HERE / "report.css", build.HERE / "print.css", HERE / "studio.css"],
        policy=POLICY,
        footer=FOOTER,
        data_address="/data.js",
    )
    edits = found.facts.edits
    facts = PageFacts(
        found.run_id,
        [] if first else [found.run_id, *found.facts.earlier_runs],
        found.facts.round,
        policy,
        str(own / FEATURES) if features is not None else "",
        paths,
        files,
        found.digests,
        data["difference"]["words"] if before else "",
        [*edits.applied, *edits.refused],
        list(found.known) if first else [],
    )
    for name, text in zip(FILES, (page, build.data_script(data), json.dumps(asdict(facts))), strict=True):
        write_text(out / name, text)
    return facts


def unplaced(images: str) -> Discovery:
    """Return the images of a folder as a discovery without categories, for the page."""
    import pandas as pd

    from holotype.data.load import load_table
    from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery, RunFacts

    table = load_table(images)
    columns: dict[str, Any] = dict.fromkeys(IMAGE_TABLE_COLUMNS, "")
    columns |= dict.fromkeys(("probability", "known_score", "typicality", "x", "y"), float("nan"))
    columns |= {"path": table.path, "label": table.label, "doubtful": False}
    facts = RunFacts(title=table.name, root=table.root)
    return Discovery("first-look", table.known, pd.DataFrame(columns), [], facts=facts)


def read_rounds(run: Path) -> tuple[Discovery, Discovery | None, Path]:
    """Return the last round without the edits of its own, the one before with them, and the folder of the last."""
    from holotype.discovery.collection import read_collection, with_current_paths
    from holotype.discovery.rounds import finished_rounds, replay_edits, round_folder
    from holotype.results.describe import renamed_categories
    from holotype.results.discovery import Discovery

    saved, rounds = Discovery.load(run), finished_rounds(run)
    if not rounds:
        return saved, None, run
    own = round_folder(run, rounds[-1])
    history = replay_edits(run, until=rounds[-1] - 1)
    found = renamed_categories(Discovery.load(own), history.given.names)
    now, before = read_collection(run), history.discovery
    if now is not None:
        found = with_current_paths(found, now)
        before = with_current_paths(before, now) if before else None
    return found, before, own


def difference(before: Discovery, after: Discovery) -> dict[str, Any]:
    """What a round has changed: in words, and images that are elsewhere now, by row, with the names of where they were.

    An image counts as moved where it was in one category and is in another; one that is new, or was rejected, does not.
    """
    from holotype.discovery.rounds import category_changes, changes_text

    was = dict(zip(before.keys, before.images["category_id"], strict=True))
    names = {category.id: category.name for category in before.categories}
    places = list(zip(after.keys, after.images["category_id"], strict=True))
    moved = [row for row, (key, id) in enumerate(places) if id and was.get(key) and was[key] != id]
    new = sum(key not in was for key, _ in places)
    changes = category_changes(before, before, after)
    became = Counter({change.category_id or change.now_id: change.became for change in changes}.values())
    count = [
        (len(moved), plural(len(moved), "image") + " moved"),
        (new, plural(new, "image") + " new"),
        (became["merged"], plural(became["merged"], "category", "categories") + " joined"),
        (became["split"], plural(became["split"], "category", "categories") + " split"),
        (became["gone"], plural(became["gone"], "category", "categories") + " gone"),
        (became["new"], plural(became["new"], "category", "categories") + " new"),
    ]
    words = ", ".join(text for n, text in count if n) or "nothing moved"
    shown = moved[:MAX_MOVED]
    return {
        "round": after.facts.round,
        "words": words,
        "lines": changes_text(changes, after.facts.round - 1, Path("changes.csv")),
        "moved": shown,
        "from": [names.get(was[places[row][0]], was[places[row][0]]) for row in shown],
        "more": len(moved) - len(shown),
    }


if __name__ == "__main__":
    run_as_child(lambda run, out, images="": build_page(Path(run), Path(out), images))
