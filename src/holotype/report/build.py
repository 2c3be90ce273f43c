"""Writes the report: `report.html` with its style and script inside, `report/data.js` and the thumbnails beside it.

A page opened from disk cannot fetch, so the data ride in a script. Nothing comes from the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from holotype import __version__
from holotype.config.schema import VECTOR_PREFIX
from holotype.report.page_data import (
    ShownImages,
    nearest_images,
    page_data,
    page_title,
    select_shown,
    total_counts,
)
from holotype.report.redact import build_redactor, redact_names_in_data
from holotype.report.thumbnails import CELL, GRID, Thumbnails, make_thumbnails
from holotype.results.discovery import Discovery, read_features
from holotype.results.edits import Edit, read_log
from holotype.results.ensemble import stability_summary
from holotype.results.hierarchy import Tree, preview_cut, save_tree
from holotype.utils.atomic import write_text

messages = logging.getLogger(__name__)

UNLINKED = (
    "The report does not link to the original images, since the way to them names you; holotype report RUN "
    "--with-paths builds one that does."
)
HERE = Path(__file__).parent
SCRIPTS = (
    "corrections.js", "carry.js", "state.js", "edits.js", "earlier.js", "gallery.js", "search.js", "charts.js",
    "map.js", "lasso.js", "views.js", "occasions.js", "print.js", "report.js",
)  # fmt: skip
"""In the order in which the page runs them."""
SCRIPT_FILES = [HERE / name for name in SCRIPTS]


def build_report(
    discovery: Discovery,
    folder: Path,
    *,
    features: np.ndarray | None = None,
    progress: bool = False,
    with_paths: bool = False,
) -> Path:
    """Write the report of a run folder and return the path of its page.

    features: (N, D) of every image (NaN rows for unread ones), for the second guess of each image; without
    them features.npy of the folder is taken where there is one. with_paths: the page may tell where things lie, and so
    who its user is.
    """
    folder = Path(folder)
    chosen = select_shown(discovery)
    thumbs = _thumbs(discovery, chosen, folder / "report" / "thumbs", progress)
    if features is None:
        features = read_features(folder, len(discovery.images))
    log = read_log(folder)
    data = page_data(discovery, chosen, folder, log, features)
    data["images"]["alike"] = nearest_images(chosen.rows, features, len(discovery.images))
    data["earlier_log"] = unreported_data(log, data["log"])
    data["stability"] = stability_summary(discovery)
    data["around"] = page_around(discovery, save_tree(folder, discovery, features))
    data["thumbs"] = {
        "folder": "report/thumbs/", "side": CELL, "grid": GRID,
        "cell": thumbs.cell.tolist(), "width": thumbs.size[:, 0].tolist(), "height": thumbs.size[:, 1].tolist(),
    }  # fmt: skip
    if not with_paths:
        root = discovery.facts.root
        data = redact_names_in_data(
            data, build_redactor([str(path) for path in discovery.images["path"]], root, folder)
        )
        if data["images"]["link"] is None:
            messages.info(UNLINKED)
    write_text(folder / "report" / "data.js", data_script(data))
    write_text(folder / "report.html", render_page(discovery, folder)[0])
    return folder / "report.html"


def page_around(discovery: Discovery, tree: Tree | None) -> dict[str, Any] | None:
    """What would join or part at other numbers of categories; None where nothing is known of that."""
    if tree is None:
        return None
    names = {category.id: category.name for category in discovery.categories}
    return {"k": tree.k, "low": tree.lowest, "high": tree.highest, "steps": preview_cut(tree, names)}


def _thumbs(discovery: Discovery, chosen: ShownImages, folder: Path, progress: bool) -> Thumbnails:
    """Exemplars lie on the first sheets, so that the overview loads few of them."""
    first = {path for category in discovery.categories for path in category.exemplars[:6]}
    order = np.argsort([path not in first for path in chosen.paths], kind="stable")
    paths, files = ([names[i] for i in order] for names in (chosen.paths, chosen.files))
    texts = card_texts(discovery, chosen.rows[order], paths)
    return make_thumbnails(paths, files, folder, progress, texts).take(np.argsort(order))


def card_texts(discovery: Discovery, rows: np.ndarray, paths: Sequence[str]) -> list[str] | None:
    """Return what is shown of each row that is no image, its text or else its id; None where all are images."""
    if not str(discovery.facts.backbone.get("name", "")).startswith(VECTOR_PREFIX):
        return None
    ids = [path.rpartition("#")[2] for path in paths]
    if "text" not in discovery.images:
        return ids
    texts = discovery.images["text"].fillna("").to_numpy()[rows]
    return [str(text) or id for text, id in zip(texts, ids, strict=True)]


def unreported_data(log: Sequence[Edit], told: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rest of the log, mostly edits of earlier rounds: so the page knows which of those in a browser it has."""
    held = {tuple(row) for row in told}
    return [list(astuple(edit)) for edit in log if astuple(edit) not in held]


DATA_START, DATA_END = "window.HOLOTYPE = ", ";\n"
"""Between them stand the data."""


def data_script(data: object) -> str:
    """Return the content of data.js: JSON that is also JavaScript, ASCII without a sign that could end a script."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f"{DATA_START}{text}{DATA_END}"


def read_data(folder: Path) -> dict[str, Any]:
    """The data of the report in a run folder, as `build_report` wrote them."""
    text = (folder / "report" / "data.js").read_bytes().decode("ascii")
    data: dict[str, Any] = json.loads(text.removeprefix(DATA_START).removesuffix(DATA_END))
    return data


REPORT_POLICY = (
    "default-src 'none'; img-src 'self' file: data: blob:; script-src 'self' file: '{script}'; style-src '{style}'; "
    "base-uri 'none'; form-action 'none'"
)
"""What a browser may load for the page; the hashes are filled in."""
REPORT_FOOTER = (
    "This page needs no network and sends nothing anywhere; your edits stay in this browser until you export "
    "them."
)


def render_page(
    discovery: Discovery,
    folder: Path,
    *,
    scripts: Sequence[Path] = SCRIPT_FILES,
    styles: Sequence[Path] = (HERE / "report.css", HERE / "print.css"),
    policy: str = REPORT_POLICY,
    footer: str = REPORT_FOOTER,
    data_address: str = "report/data.js",
) -> tuple[str, str]:
    """Return the HTML page and its content security policy; names are escaped by the template engine."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def include(files: Sequence[Path]) -> str:
        return "\n".join(file.read_text(encoding="utf-8") for file in files)

    script = f'\n(() => {{\n"use strict";\n{include(scripts)}\n}})();\n'
    style = include(styles)
    policy = policy.format(script=csp_hash(script), style=csp_hash(style))
    room = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    page = room.get_template("template.html").render(
        title=page_title(discovery, folder),
        version=__version__,
        total=total_counts(discovery, 0),
        categories=discovery.categories,
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        footer=footer,
        data_address=data_address,
    )
    return page, policy


def csp_hash(text: str) -> str:
    """Return how the page's policy names the one script, and the one style, that a browser may run: by its content.

    Whatever else came to stand in the page would not be run.
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
