"""The golden cases of edits: a discovery, edits, and how things stand then, for Python and for JavaScript alike."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, RunFacts
from holotype.results.edits import ACTIONS, AppliedEdits, Edit

FILE = Path(__file__).parent / "golden_edits.json"
GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = GOLDEN["cases"]
NAMES = [case["name"] for case in CASES]
WORDS = (
    *("Sandal", "Boot", "new-01", "new-02", "new-03", "Hawk", "Owl", "Eagle", " Owl", "Sandals"),
    *("new-99", "", "__proto__", "new-03 (2)"),
)
"""What random edits of the shoes speak of: ids, names that are taken or not, and what is none."""


def golden_discovery(name: str) -> Discovery:
    """A discovery of the file, to be changed."""
    return deepcopy(_discovery(name))


@cache
def _discovery(name: str) -> Discovery:
    """With as much made up as the report needs to show it."""
    made = GOLDEN["discoveries"][name]
    frame = pd.DataFrame(made["images"])
    called = {category["id"]: category for category in made["categories"]}
    frame["category"] = [called[id]["name"] if id else "" for id in frame["category_id"]]
    frame["kind"] = [called[id]["kind"] if id else "" for id in frame["category_id"]]
    for column in ("probability", "known_score", "x", "y"):
        frame[column] = [i / len(frame) for i in range(len(frame))]
    frame["problem"] = ["" if id else "could not be read" for id in frame["category_id"]]
    typical = frame.sort_values("typicality", ascending=False)
    categories = []
    for i, category in enumerate(made["categories"]):
        mine = list(typical["path"][typical["category_id"] == category["id"]])
        likeness = [0.1 * (i + j) for j in range(len(made["known"]))]
        categories.append(
            Category(**category, n=len(mine), exemplars=mine[:2], borderline=mine[-1:], signature=likeness)
        )
        categories[-1].cohesion, categories[-1].separation = 0.9 - i / 64, 0.1 + i / 64
        categories[-1].together, categories[-1].comes_back = 0.5, i % 4
    facts = RunFacts(earlier_runs=tuple(made["earlier_runs"]), trainings=(0, 1, 2))
    columns = [*IMAGE_TABLE_COLUMNS, *(["digest"] if "digest" in frame else [])]
    return Discovery(made["run_id"], tuple(made["known"]), frame[columns], categories, None, facts)


def golden_edits(rows: Sequence[dict[str, str]]) -> list[Edit]:
    """Where an edit of the file does not say more, it is one of run-2, and made at a time of its own."""
    return [Edit(**{"run_id": "run-2", "time": f"t{i}", **row}) for i, row in enumerate(rows)]


def case_edits(case: dict[str, Any]) -> tuple[list[Edit], list[Edit]]:
    """Those of an earlier sitting, which the discovery holds already, and those to be applied."""
    every = golden_edits([*case.get("before", []), *case["edits"]])
    before = len(case.get("before", []))
    return every[:before], every[before:]


def outcome(applied: AppliedEdits) -> dict[str, Any]:
    """What a golden case says of the outcome."""
    frame, facts = applied.discovery.images, applied.discovery.facts.edits
    keys = zip(frame["path"], applied.discovery.keys, strict=True)
    columns = ("category_id", "category", "kind", "note", "doubtful")
    return {
        "images": {
            row["path"]: [row[c] for c in columns] for row in json.loads(frame.to_json(orient="records"))
        },
        "categories": [[c.id, c.name, c.kind, c.n] for c in applied.discovery.categories],
        "merged": facts.merged,
        "rejected": list(facts.rejected),
        "confirmed": {path: applied.confirmed[key] for path, key in keys if key in applied.confirmed},
        "applied": applied.count,
        "refused": applied.refused,
    }


def random_edit(choose: Callable[[Sequence[Any]], Any], number: int, name: str = "shoes") -> Edit:
    """An edit of the shoes, or of another discovery with the same categories. choose: one of several; rng.choice or
    what hypothesis draws."""
    action = choose((*ACTIONS, "move", "move"))
    rows = GOLDEN["discoveries"][name]["images"]
    images = [(row["path"], choose(("", row.get("digest", "")))) for row in rows]
    image, digest = choose([*images, ("gone.png", "")]) if action in ("move", "confirm") else ("", "")
    if action == "reject":
        image, digest = choose([*images, *[("", "")] * 3])
    value = "" if action == "reject" else choose(WORDS)
    run = choose(["run-2"] * 19 + ["run-x"])
    return Edit(run, f"t{number // 2}", action, image, choose(WORDS), value, digest)
