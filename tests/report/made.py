"""A made-up discovery with real picture files: coloured shapes, a shape for each category."""

import colorsys
import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, RunFacts

KNOWN = ("Sneaker", "Sandal", "Bag", "<script>alert(1)</script>", "Käfer ✓")
ODD = ('it\'s 100% "odd" #1.png', "<b>bold & more.png", "Käfer ü ✓.png", "=cmd().png")
"""File names that break pages and links which do not escape them."""


def draw(file: Path, category: int, seed: int, side: int = 96) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(drawn(category, seed, side))


@cache
def drawn(category: int, seed: int, side: int) -> bytes:
    """A regular polygon with category + 3 corners, in the category's colour; most tests need the same ones."""
    rng = np.random.default_rng(seed)
    ground = int(rng.integers(200, 245))
    image = Image.new("RGB", (side, int(side * rng.choice([0.75, 1.0]))), (ground, ground, ground - 10))
    red, green, blue = colorsys.hsv_to_rgb(category * 0.618 % 1, 0.65, 0.75)
    middle = (image.width / 2 + rng.integers(-8, 9), image.height / 2 + rng.integers(-5, 6))
    ImageDraw.Draw(image).regular_polygon(
        (*middle, image.height * rng.uniform(0.25, 0.42)), 3 + category % 6, int(rng.integers(0, 90)),
        fill=(int(255 * red), int(255 * green), int(255 * blue)),
    )  # fmt: skip
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def make_discovery(
    folder: Path, n: int = 120, *, known: int = 5, novel: int = 4, files: int | None = None, seed: int = 0
) -> Discovery:
    """n images; files: how many different picture files are drawn (their contents repeat, their names do not)."""
    rng = np.random.default_rng(seed)
    names = [KNOWN[i] if i < len(KNOWN) else f"class {i + 1}" for i in range(known)]
    ids = [*names, *(f"new-{i + 1:02d}" for i in range(novel))]
    category = np.sort(rng.permutation(np.arange(n) % len(ids)))
    paths = _pictures(folder, category, files or n)
    centre = rng.normal(size=(len(ids), 2)) * 4
    xy = centre[category] + rng.normal(size=(n, 2))
    typicality = rng.beta(4, 2, n)
    frame = pd.DataFrame(
        {
            "path": paths,
            "label": [ids[c] if c < known and rng.random() < 0.5 else "" for c in category],
            "category": [ids[c] for c in category],
            "kind": ["known" if c < known else "novel" for c in category],
            "probability": rng.uniform(0.3, 1.0, n),
            "known_score": np.where(category < known, 0.9, 0.2),
            "typicality": typicality,
            "doubtful": typicality < np.quantile(typicality, 0.08),
            "x": xy[:, 0],
            "y": xy[:, 1],
            "category_id": [ids[c] for c in category],
            "problem": [""] * n,
            "note": [""] * n,
        }
    )[list(IMAGE_TABLE_COLUMNS)]
    likeness = np.clip(rng.normal(0.35, 0.22, (len(ids), known)), -0.1, 0.97)
    likeness[np.arange(known), np.arange(known)] = 0.9
    categories = [_category(i, ids, frame, likeness[i], names, known) for i in range(len(ids))]
    return Discovery("run-made-1", tuple(names), frame, categories, _count(len(ids), known), _facts())


def _pictures(folder: Path, category: np.ndarray, files: int) -> list[str]:
    paths = []
    for i, c in enumerate(category):
        name = ODD[i] if i < len(ODD) else f"picture {i:05d}.png"
        file = folder / "my pictures" / name
        if i < files:
            draw(file, int(c), i)
        else:
            file.symlink_to(folder / "my pictures" / f"picture {i % (files - len(ODD)) + len(ODD):05d}.png")
        paths.append(str(file))
    return paths


def _category(
    i: int, ids: list[str], frame: pd.DataFrame, likeness: np.ndarray, names: list[str], known: int
) -> Category:
    mine = frame[frame["category_id"] == ids[i]].sort_values("typicality", ascending=False)
    best = np.argsort(-likeness)
    near = [f"{names[j]} {likeness[j]:.2f}" for j in best[:2]]
    return Category(
        id=ids[i], name=ids[i], kind="known" if i < known else "novel", n=len(mine),
        exemplars=list(mine["path"][:12]), borderline=list(mine["path"][-6:]),
        cohesion=0.6 + 0.03 * (i % 9), separation=0.1 + 0.05 * (i % 7), nearest=ids[(i + 1) % len(ids)],
        signature=[float(v) for v in likeness],
        words=f"closest to {' and '.join(near)}; unlike {names[best[-1]]}" if near else "",
        suggested=f"near {names[best[0]]}, new {i - known + 1}" if near and i >= known else "",
    )  # fmt: skip


def _count(k: int, known: int) -> dict:
    points = [
        {"k": j, "labelled_accuracy": 0.9 - 0.02 * abs(j - k), "silhouette": 0.3 - 0.006 * abs(j - k - 1)}
        for j in sorted({*range(known, 2 * k + 6, 2), k})
    ]
    return {"best": k, "low": k - 1, "high": k + 2, "points": points, "words": f"between {k - 1} and {k + 2}"}


def _facts() -> RunFacts:
    caveat = "The embedded backbone is small; scores are comparable with each other only."
    versions = {"holotype": "0.1", "torch": "2.13"}
    provenance = {"backbone": {"name": "embedded", "caveat": caveat}, "versions": versions}
    return RunFacts(k=12, in_use=9, steps=1000, provenance=provenance)


def write_scores(run: Path) -> None:
    """As a run leaves them where the truth is known."""
    kmeans = {"all": 0.505, "old": 0.5, "new": 0.51}
    scores = {"all": 0.697, "old": 0.81, "new": 0.58}
    record = {"identity": {"method": {"name": "rpc"}}, "scores": scores, "compared": {"kmeans": kmeans}}
    run.mkdir(parents=True, exist_ok=True)
    (run / "scores.json").write_text(json.dumps(record))
