"""On-the-fly category discovery: known right, new right and the number of categories of `holotype assign --open`.

    python benchmarks/open_categories.py birds/list.csv --method rpc --steps 400 --seeds 1

The list has the columns path, label and truth (labels are not used). A quarter of the classes is kept out of the
collection; two thirds of the others are known, half of whose images are labelled. A discovery is made of 70 % of the
images of those classes; all others come as new images, in random order. Known right: share of the new images of classes
of the collection that are in the right category, under the assignment of categories to classes that is best on the
collection. New right: share of the images of classes that were kept out that are in the provisional category matched
with their class, by the best assignment of one to one. known_right_without: the same without --open.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

import holotype
from holotype.cli import main
from holotype.export.assign import assign_images


def split(
    rows: list[dict[str, str]], seed: int
) -> tuple[list[dict[str, str]], list[dict[str, str]], set[str]]:
    """The collection, the new images, and the classes that only these have."""
    random = np.random.default_rng(seed)
    classes = random.permutation(sorted({row["truth"] for row in rows})).tolist()
    kept_out = set(classes[: len(classes) // 4])
    inside = classes[len(classes) // 4 :]
    known = set(inside[: 2 * len(inside) // 3])
    collection, new = [], []
    for row in rows:
        if row["truth"] in kept_out or random.random() < 0.3:
            new.append(row)
        else:
            label = row["truth"] if row["truth"] in known and random.random() < 0.5 else ""
            collection.append({**row, "label": label})
    return collection, [new[at] for at in random.permutation(len(new))], kept_out


def matched(pairs: pd.DataFrame) -> dict[str, str]:
    """Category to class, one to one, for most images to be right."""
    table = pd.crosstab(pairs["category"], pairs["truth"])
    row, column = linear_sum_assignment(table.to_numpy(), maximize=True)
    return {table.index[a]: table.columns[b] for a, b in zip(row, column, strict=True)}


def measure(file: Path, seed: int, words: list[str]) -> dict[str, object]:
    """One split of one collection."""
    with file.open(encoding="utf-8") as stream:
        rows = [{**row, "path": str(file.parent.resolve() / row["path"])} for row in csv.DictReader(stream)]
    collection, new, kept_out = split(rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        names = {name: Path(folder) / f"{name}.csv" for name in ("collection", "new")}
        pd.DataFrame(collection)[["path", "label"]].to_csv(names["collection"], index=False)
        pd.DataFrame(new)[["path"]].to_csv(names["new"], index=False)
        run = Path(folder) / "run"
        command = [
            "discover",
            str(names["collection"]),
            "--out",
            str(run),
            "--seed",
            str(seed),
            "--no-progress",
        ]
        assert main([*command, *words]) == 0
        assign_images(run, names["new"], out=Path(folder) / "closed.parquet")
        assign_images(run, names["new"], out=Path(folder) / "open.parquet", open_new=True)
        truth = {row["path"]: row["truth"] for row in rows}
        placed = pd.read_parquet(Path(folder) / "open.parquet")
        closed = pd.read_parquet(Path(folder) / "closed.parquet")
        found = holotype.load(run).images
    placed["truth"], found["truth"] = placed["path"].map(truth), found["path"].map(truth)
    means, outside = matched(found), placed["truth"].isin(kept_out)
    opened = placed[placed["kind"] == "open"]
    new_means = matched(opened[opened["truth"].isin(kept_out)]) if len(opened) else {}
    old, fresh, plain = placed[~outside], placed[outside], closed[~outside]
    return {
        "collection": file.parent.name,
        "seed": seed,
        "images": [len(found), len(old), len(fresh)],
        "known_right": round(float((old["category"].map(means) == old["truth"]).mean()), 3),
        "known_right_without": round(float((plain["category"].map(means) == old["truth"]).mean()), 3),
        "new_right": round(float((fresh["category"].map(new_means) == fresh["truth"]).mean()), 3),
        "opened": int(opened["category"].nunique()),
        "classes": len(kept_out),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", nargs="+", type=Path)
    parser.add_argument("--split", type=int, default=0)
    given, rest = parser.parse_known_args()
    for one in given.lists:
        print(json.dumps(measure(one, given.split, rest)), flush=True)
