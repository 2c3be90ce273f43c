"""A discovery, every kind of edit, a second round, and new images placed: ids and names as they always were.

Through the command line, since it outlives a refactoring. Two trainings of two steps, and k-means that labels take part
in, on the features of the embedded network; colours lie so far apart, and k is such in both rounds, that rounding
decides nothing.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.cli import main

COLOURS = {
    "red": ((230, 20, 20), 11),
    "green": ((20, 180, 30), 10),
    "blue": ((20, 30, 220), 8),
    "azure": ((20, 120, 220), 5),
    "yellow": ((240, 230, 20), 5),
    "orange": ((250, 190, 20), 4),
    "magenta": ((220, 20, 210), 7),
    "white": ((240, 240, 240), 6),
    "black": ((20, 20, 20), 4),
}
"""And how many of the 60 images have them; no two new categories are of one size, which gives them their numbers."""
LABELLED = {"red": 7, "green": 6}
NEW = 2
"""Further images of each colour, for assign."""
HELD = ("category", "category_id", "kind")


def draw(root: Path) -> None:
    noise = np.random.default_rng(1)
    for name, (colour, n) in COLOURS.items():
        for i in range(n + NEW):
            shade = np.array(colour) + noise.integers(-12, 13, 3)
            pixels = (shade + noise.integers(-6, 7, (36, 36, 3))).clip(0, 255).astype(np.uint8)
            folder = f"images/{name if i < LABELLED.get(name, 0) else 'unlabelled'}" if i < n else "new"
            if folder == "new" and name in ("black", "orange"):  # rejected, and next to another
                continue
            file = root / folder / f"{name}-{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)


def read(file: Path) -> dict[str, list[str]]:
    """Name of each image -> what is held of it."""
    frame = pd.read_csv(file, keep_default_na=False)
    rows = zip(frame.path, *(frame[column] for column in HELD), strict=True)
    return {Path(path).stem: list(values) for path, *values in rows}


def edits_of(run: Path) -> list[tuple[str, str, str, str]]:
    """Rename, merge, split (move), confirm, reject an image and a category."""
    sheet = pd.read_csv(run / "assignments.csv", keep_default_na=False)
    paths = {Path(path).stem: path for path in sheet.path}
    ids = {Path(path).stem: id for path, id in zip(sheet.path, sheet.category_id, strict=True)}
    split = [f"orange-{i}" for i in range(4)]
    return [
        ("rename", "", ids["blue-0"], "sky"),
        ("merge", "", ids["azure-0"], ids["blue-0"]),
        *(("move", paths[name], ids[name], "amber") for name in split),
        ("confirm", paths["magenta-0"], ids["magenta-0"], ids["magenta-0"]),
        ("reject", paths["yellow-4"], ids["yellow-4"], ""),
        ("reject", "", ids["black-0"], ""),
    ]


def write_edits(run: Path, file: Path) -> Path:
    run_id = json.loads((run / "discovery.json").read_text())["run_id"]
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["run_id", "time", "action", "image", "category", "value"])
    rows.writerows((run_id, f"2026-01-01T00:00:{i:02d}Z", *edit) for i, edit in enumerate(edits_of(run)))
    file.write_text(text.getvalue())
    return file


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Name of a part of the golden file -> what was found."""
    tmp_path = tmp_path_factory.mktemp("rounds")
    draw(tmp_path)
    run, found = tmp_path / "run", {}

    def command(*words: object) -> None:
        assert main([*map(str, words), "--device", "cpu", "--no-progress"]) == 0

    def discover(number: int, k: int, *words: object) -> None:
        flags = ("--method", "gcd", "--steps", 2, "--seeds", 2, "--seed", 0, "--k", k, "--bursts", "no")
        command("discover", tmp_path / "images", "--out", run, *flags, "--backbone", "embedded", *words)
        found[f"round {number}"] = read(run / "assignments.csv")
        found[f"columns {number}"] = list(pd.read_csv(run / "assignments.csv").columns)
        categories = json.loads((run / "discovery.json").read_text())["categories"]
        found[f"categories {number}"] = {c["id"]: [c["name"], c["kind"], c["n"]] for c in categories}

    discover(1, 8)
    discover(2, 7, "--edits", write_edits(run, tmp_path / "edits.csv"))
    command("assign", run, tmp_path / "new", "--out", tmp_path / "new.csv")
    found["assign"] = read(tmp_path / "new.csv")
    return found


def test_two_rounds_and_new_images(played: dict[str, Any], golden) -> None:
    for part, value in played.items():
        assert golden("rounds", part, value) == value, part


def test_colours_lie_far_apart(played: dict[str, Any]) -> None:
    """Else rounding would have its say in the golden file."""
    for part, n in (("round 1", 8), ("round 2", 7), ("assign", 6)):
        ids: dict[str, set[str]] = {}
        for name, (_, id, _) in played[part].items():
            if id:
                ids.setdefault(name.split("-")[0], set()).add(id)
        assert all(len(each) == 1 for each in ids.values()), (part, ids)
        assert len(set.union(*ids.values())) == n, (part, ids)
