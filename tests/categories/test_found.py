"""A discovery survives its files, whatever its names look like, and damage is one sentence."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from holotype.categories.found import COLUMNS, FILE, Category, Discovery
from holotype.errors import InputError

ODD = ["=cmd()", "<script>alert(1)</script>", 'a "quoted", name', "Käfer ✓"]


def small() -> Discovery:
    n = len(ODD)
    frame = pd.DataFrame(
        {
            "path": [f"folder with space/{i}.png" for i in range(n)],
            "label": ["", *ODD[1:]],
            "category": ODD,
            "kind": ["novel", "known", "known", "known"],
            "probability": [0.5, 0.6, 0.7, float("nan")],
            "known_score": [0.1] * n,
            "typicality": [0.2] * n,
            "doubtful": [True, False, False, False],
            "x": [0.0, 1.0, float("nan"), 2.0],
            "y": [0.0] * n,
            "category_id": ["new-01", *ODD[1:]],
            "problem": [""] * n,
            "note": [""] * n,
        }
    )
    categories = [Category(id=ODD[1], name=ODD[1], kind="known", n=1), Category("new-01", ODD[0], "novel", 1)]
    return Discovery("run-1", tuple(ODD[1:]), frame, categories, {"best": 4}, {"seed": 0})


def test_it_comes_back_as_it_was(tmp_path):
    found = small()
    found.save(tmp_path)
    again = Discovery.load(tmp_path)
    pd.testing.assert_frame_equal(again.images, found.images)
    assert (again.run_id, again.known, again.count, again.facts) == (
        found.run_id,
        found.known,
        found.count,
        found.facts,
    )
    assert [(c.id, c.name, c.kind, c.n) for c in again.categories] == [
        (c.id, c.name, c.kind, c.n) for c in found.categories
    ]
    assert again.category("new-01").name == ODD[0]
    assert list(pd.read_csv(tmp_path / "assignments.csv").columns) == list(COLUMNS)


def test_what_is_not_a_discovery_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="holds no discovery"):
        Discovery.load(tmp_path)
    small().save(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**content, "format": 0}))
    with pytest.raises(InputError, match="written by another version"):
        Discovery.load(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        Discovery.load(tmp_path)
