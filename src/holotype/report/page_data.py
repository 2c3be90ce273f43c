"""Data of the report page: images, categories, neighbours, runner-up categories, times and places.

Images are numbered in the order of galleries (category by category, the most typical first); every other list refers
to these numbers. Shares are whole thousandths, places on the map whole ten-thousandths, and null stands for unknown.

The lists are part of the page, so their size has a limit: with many images they are shorter, and with too many there
are none, which the page says.
"""

from __future__ import annotations

import math
import os
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from holotype.data.boxes import split_box
from holotype.data.image_files import has_own_file
from holotype.data.paths import absolute, is_address
from holotype.errors import InputError
from holotype.results import ensemble
from holotype.results.discovery import Category, Discovery, RunFacts, weighted_sizes
from holotype.results.edits import Edit
from holotype.results.lda import category_means, unit_rows
from holotype.results.purity import purity_sentence, purity_text
from holotype.utils.serialization import CorruptFile, read_json, to_dict


def time_and_place(frame: pd.DataFrame) -> dict[str, Any]:
    """Lists of the images that are shown; a key is there where its column is.

    taken: ISO 8601, "" = not known. camera: place in `cameras`, -1 = not known. place: [latitude, longitude] or null.
    group: number of the burst, -1 = the image is alone.
    """
    found: dict[str, Any] = {}
    if "taken" in frame.columns:
        found["taken"] = [str(taken) for taken in frame["taken"].fillna("")]
    if "camera" in frame.columns:
        camera = frame["camera"].fillna("").astype(str)
        found["cameras"] = sorted(set(camera) - {""})
        code = {name: number for number, name in enumerate(found["cameras"])}
        found["camera"] = [code.get(name, -1) for name in camera]
    if {"latitude", "longitude"} <= set(frame.columns):
        pairs = zip(frame["latitude"].astype(float), frame["longitude"].astype(float), strict=True)
        found["place"] = [[a, b] if math.isfinite(a) and math.isfinite(b) else None for a, b in pairs]
    if "group" in frame.columns:
        numbers: dict[str, int] = {}
        named = [str(group) for group in frame["group"].fillna("")]
        found["group"] = [numbers.setdefault(name, len(numbers)) if name else -1 for name in named]
    return found


def runner_up(discovery: Discovery, rows: np.ndarray, features: np.ndarray | None) -> list[int]:
    """(n,) for each image the category with the nearest centre other than its own; -1 = not known."""
    k = len(discovery.categories)
    if features is None or k < 2 or len(features) != len(discovery.images):
        return [-1] * len(rows)
    position = {category.id: i for i, category in enumerate(discovery.categories)}
    place = discovery.images["category_id"].map(position).fillna(-1).to_numpy(int)
    centre, _ = category_means(features, place, k)
    likeness = unit_rows(np.nan_to_num(features[rows])) @ unit_rows(centre).T
    own = place[rows]
    likeness[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
    return [int(best) if o >= 0 else -1 for best, o in zip(likeness.argmax(axis=1), own, strict=True)]


PAGE_FORMAT = 2
MAX_SHOWN = 20_000
"""Images in a report. Of more, each category shows its share: the most and least typical and the doubtful first."""
COORDINATE_SCALE = 10_000
SCORES_NAME = ("all", "old", "new", "nmi", "ari", "auroc")
"""Those that the page shows."""


@dataclass(frozen=True)
class ShownImages:
    """The images that the report shows, in its order."""

    rows: np.ndarray
    """(n,) rows of Discovery.images."""
    paths: list[str]
    files: list[str]
    """Where to read them: absolute, with "#index" inside a container."""


def select_shown(discovery: Discovery, limit: int = MAX_SHOWN) -> ShownImages:
    """Category by category, typical images first; images in no category at the end."""
    frame = discovery.images
    position = {category.id: i for i, category in enumerate(discovery.categories)}
    place = frame["category_id"].map(position).fillna(len(position)).to_numpy(int)
    typical = frame["typicality"].fillna(-1.0).to_numpy(float)
    rows = np.lexsort((-typical, place))
    if len(rows) > limit:
        shown = np.concatenate([_share(part, frame, limit) for part in np.split(rows, _borders(place[rows]))])
        keys = np.array(discovery.keys, dtype=object)
        copies = np.setdiff1d(np.flatnonzero(np.isin(keys, keys[shown])), shown)[:limit]
        rows = rows[np.isin(rows, [*shown, *copies])]  # what is said of one holds for all
    paths = [str(path) for path in frame["path"].to_numpy()[rows]]
    return ShownImages(rows, paths, [_absolute(path, discovery.facts.root) for path in paths])


def _borders(sorted_values: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.diff(sorted_values)) + 1


def _share(rows: np.ndarray, frame: pd.DataFrame, limit: int) -> np.ndarray:
    """A category's share of the report: a quarter from the top, half evenly spread, a quarter doubtful or last."""
    n = min(len(rows), max(24, limit * len(rows) // len(frame)))
    doubtful = rows[frame["doubtful"].to_numpy(bool)[rows]]
    top, last = rows[: n // 4], np.concatenate([doubtful, rows[::-1]])[: n // 4]
    spread = rows[np.linspace(0, len(rows) - 1, n).astype(int)]
    wanted = list(dict.fromkeys([*top, *last, *spread]))[:n]
    return rows[np.isin(rows, wanted)]


def _absolute(path: str, root: str) -> str:
    if is_address(path) or (is_address(root) and not os.path.isabs(path)):
        return absolute(path, root)
    if os.path.isabs(path) or os.path.exists(path) or not root:
        return os.path.abspath(path)
    return os.path.abspath(os.path.join(root, path))


def page_data(
    discovery: Discovery, chosen: ShownImages, folder: Path, log: list[Edit], features: np.ndarray | None
) -> dict[str, Any]:
    """Everything but the thumbnails. features: (N, D) of every image, for what else an image may be."""
    frame = discovery.images.iloc[chosen.rows]
    number = {path: i for i, path in enumerate(chosen.paths)}
    edits = discovery.facts.edits
    held = {*edits.applied, *edits.refused}
    return {
        "format": PAGE_FORMAT,
        "run_id": discovery.run_id,
        "title": page_title(discovery, folder),
        "known": list(discovery.known),
        "categories": _categories(discovery, number),
        "images": {
            **_columns(frame, discovery),
            **_links(chosen, folder),
            "digest": list(frame["digest"].fillna("")) if "digest" in frame else [],
            "second": runner_up(discovery, chosen.rows, features),
        },
        "total": total_counts(discovery, len(chosen.rows)),
        "count": _plain_value(discovery.count),
        "facts": _plain_value(_scored_text(discovery.facts) | {"scores": read_scores(folder)}),
        "merged": dict(edits.merged),
        "rejected": list(edits.rejected),
        "asleep": [{"id": id, **names} for id, names in edits.asleep.items()],
        "confirmed": _confirmed(discovery, number),
        "log": [list(astuple(edit)) for edit in log if edit.id in held],
    }


def _scored_text(facts: RunFacts) -> dict[str, Any]:
    """The facts as the page lists them: provenance among the others, edits elsewhere."""
    own = to_dict(facts)
    curve = own.pop("calibration_curve")
    del own["edits"]
    if facts.calibration and not curve:  # no probability can be taken at its word
        own["caveat"] = own.pop("calibration")
    return {**own.pop("provenance"), **own}


def read_scores(folder: Path) -> dict[str, dict[str, Any]]:
    """Scores by method, from scores.json, where the truth is known: of the run, and of what it is compared with.

    Raises InputError for a file that something has changed since it was written.
    """
    file = folder / "scores.json"
    try:
        record = read_json(file)
        own, method = record["scores"], str(record["identity"]["method"]["name"])
        if own["all"] is None:
            return {}
        compared = {str(name): dict(other) for name, other in record.get("compared", {}).items()}
        return {**compared, method: {key: own.get(key) for key in SCORES_NAME}}
    except CorruptFile as error:
        raise InputError(
            f"{file} cannot be read ({error}); restore it from a copy, or move it away for a report without scores."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # a report needs no scores
        return {}


def page_title(discovery: Discovery, folder: Path) -> str:
    told = discovery.facts.title or folder.resolve().name
    return told.encode("utf-8", "replace").decode()  # a folder's name need not be Unicode


def total_counts(discovery: Discovery, shown: int) -> dict[str, int]:
    frame = discovery.images
    return {
        "images": len(frame),
        "shown": shown,
        "labelled": int((frame["label"].fillna("") != "").sum()),
        "known": int((frame["kind"] == "known").sum()),
        "novel": int((frame["kind"] == "novel").sum()),
        "doubtful": int(frame["doubtful"].sum()),
        "unread": int((frame["problem"].fillna("") != "").sum()),
    }


def _categories(discovery: Discovery, number: dict[str, int]) -> list[dict[str, Any]]:
    """whole: images of the collection, where the discovery is of a sample; 0 elsewhere."""
    whole = weighted_sizes(discovery.images)
    return [
        _category(category, number, discovery.facts) | {"whole": whole.get(category.id, 0)}
        for category in discovery.categories
    ]


def _category(category: Category, number: dict[str, int], facts: RunFacts) -> dict[str, Any]:
    return {
        "id": category.id,
        "name": category.name,
        "kind": category.kind,
        "n": category.n,
        "exemplars": [number[path] for path in category.exemplars if path in number],
        "borderline": [number[path] for path in category.borderline if path in number],
        "cohesion": _plain_value(category.cohesion),
        "separation": _plain_value(category.separation),
        "nearest": category.nearest,
        "signature": [None if v is None or not math.isfinite(v) else round(v, 4) for v in category.signature],
        "words": category.words,
        "suggested": category.suggested,
        "purity": _plain_value([category.purity, category.purity_low, category.purity_high]),
        "uniform": purity_text(category.purity),
        "check": purity_sentence(category),
        "returns": ensemble.stability_text(category, len(facts.trainings)),
        "faint": math.isfinite(category.together) and not ensemble.is_stable(category, len(facts.trainings)),
    }


def _columns(frame: pd.DataFrame, discovery: Discovery) -> dict[str, Any]:
    position = {category.id: i for i, category in enumerate(discovery.categories)}
    label = frame["label"].fillna("").astype(str)
    labels = sorted(set(label) - {""})
    code = {name: i for i, name in enumerate(labels)}
    return {
        "category": [position.get(id, -1) for id in frame["category_id"]],
        "labels": labels,
        "label": [code.get(name, -1) for name in label],
        "probability": _whole_sizes(frame["probability"], 1000),
        "known_score": _whole_sizes(frame["known_score"], 1000),
        "typicality": _whole_sizes(frame["typicality"], 1000),
        "doubtful": [int(doubtful) for doubtful in frame["doubtful"]],
        **_map(frame),
        "problem": _sparse(frame["problem"]),
        "note": _sparse(frame["note"]),
        **time_and_place(frame),
    }


def _whole_sizes(column: pd.Series, scale: int) -> list[int | None]:
    values = column.to_numpy(float)
    return [round(v * scale) if math.isfinite(v) else None for v in values]


def _map(frame: pd.DataFrame) -> dict[str, Any]:
    """Return x and y in [0, SCALE], y upwards; the same scale for both, so that distances stay distances."""
    xy = frame[["x", "y"]].where(frame[["x", "y"]].notna().all(axis=1))
    low, high = xy.min(), xy.max()
    placed = (xy - (low + high) / 2) / max(float((high - low).max()), 1e-12) + 0.5
    return {name: _whole_sizes(placed[name], COORDINATE_SCALE) for name in ("x", "y")}


def _sparse(column: pd.Series) -> dict[str, str]:
    """Number of the image to text, where there is any."""
    return {str(i): str(text) for i, text in enumerate(column.fillna("")) if text}


def _confirmed(discovery: Discovery, number: dict[str, int]) -> dict[str, str]:
    held, keys = discovery.facts.edits.confirmed, zip(discovery.images["path"], discovery.keys, strict=True)
    return {str(number[path]): held[key] for path, key in keys if key in held and path in number}


def _links(chosen: ShownImages, folder: Path) -> dict[str, Any]:
    """root + path = name of the image as in the table; link + the quoted rest of `file` = its address on the page."""
    root = _common_root(chosen.paths)
    top = _common_root(chosen.files)
    names = [path[len(root) :] for path in chosen.paths]
    files = [split_box(file)[0] for file in chosen.files]
    rest = [file[len(top) :].replace(os.sep, "/") for file in files]
    inside = [i for i, file in enumerate(files) if not has_own_file(file)]
    return {
        "root": root,
        "path": names,
        "link": "" if len(inside) == len(files) else link_to(top, folder),
        "file": [] if rest == names else rest,
        "inside": inside,
    }


def _common_root(paths: list[str]) -> str:
    """Return the folders that all paths begin with, with the last separator; "" where there are none."""
    shared = os.path.commonprefix(paths)  # noqa: RUF071  by characters: paths may be addresses
    return shared[: max(shared.rfind("/"), shared.rfind(os.sep)) + 1]


def link_to(top: str, folder: Path) -> str:
    """The address of a folder seen from the page, with a slash at its end."""
    try:
        way = os.path.relpath(top or os.sep, folder.resolve()).replace(os.sep, "/")
    except ValueError:  # another drive
        return Path(top).as_uri() + "/"
    return quote(os.fsencode(way)) + "/"


def _plain_value(value: Any) -> Any:
    """Only what JSON has: numbers that are finite, text, lists and dictionaries."""
    if isinstance(value, dict):
        return {str(key): _plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [_plain_value(inner) for inner in value]
    if isinstance(value, np.generic):
        return _plain_value(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


NEIGHBOURS_PER_IMAGE = 12
"""Images in a list."""
MIN_NEIGHBOURS = 4
"""A shorter list is not worth its room."""
MEMORY_BYTES = 240_000
"""Numbers in all lists together; about 1.4 MB."""


def nearest_images(rows: np.ndarray, features: np.ndarray | None, total: int) -> dict[str, Any]:
    """Return what the page knows of likeness, for the n images that it shows.

    rows: (n,) rows of the images in the collection of `total` images. features: (total, D); NaN rows for unread images.
    Returns each: length k of a list; list: n * k numbers of images, the nearest first, -1 = none; why there are none.
    """
    n, why = len(rows), ""
    each = min(NEIGHBOURS_PER_IMAGE, MEMORY_BYTES // max(1, n))
    if features is None or len(features) != total:
        why = "The features of this run were not kept, so this report does not know which images are alike."
    elif each < MIN_NEIGHBOURS:
        most = MEMORY_BYTES // MIN_NEIGHBOURS
        why = f"This report shows {n:,} images, and has no room for lists of similar ones above {most:,}."
    if why or features is None:
        return {"each": 0, "list": [], "why": why}
    nearest = np.full((n, each), -1, dtype=np.int64)
    own = np.asarray(features[rows], np.float32)
    known = np.flatnonzero(np.isfinite(own).all(axis=1))
    if len(known) > 1:
        import torch

        from holotype.clustering.knn import nearest_neighbours

        _, found = nearest_neighbours(torch.from_numpy(own[known]), min(each, len(known) - 1))
        nearest[known, : found.shape[1]] = known[found.numpy()]
    return {"each": each, "list": nearest.ravel().tolist(), "why": ""}
