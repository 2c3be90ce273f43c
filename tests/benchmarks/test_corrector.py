"""The played corrector does what its page says, touches no image twice, and the product takes all of it."""

from __future__ import annotations

import corrector
import numpy as np
import pandas as pd
import pytest
from corrector import Corrections, Corrector

from holotype.categories.corrections import apply_edits
from holotype.categories.edits import read_edits, to_csv
from holotype.categories.found import Category, Discovery

HOLDS = {
    "a": "aaaaaa" + "cc" + "eeeeee",
    "b": "bbbbb" + "eee",
    "new-01": "cccccccccc" + "dd",
    "new-02": "cccccc" + "a",
    "new-03": "aaaa" + "b",
    "new-04": "ddd",
}
"""What lies in each category, by class. a and b are known, and the first two of each are labelled."""


def made() -> tuple[Discovery, np.ndarray]:
    """Images further back are less typical and less sure."""
    truth = np.array(list("".join(HOLDS.values())), dtype=object)
    ids = [id for id, held in HOLDS.items() for _ in held]
    place = [i for held in HOLDS.values() for i in range(len(held))]
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(len(ids))], "category": ids, "category_id": ids})
    frame["label"] = [id if id in "ab" and i < 2 else "" for id, i in zip(ids, place, strict=True)]
    frame["probability"] = frame["typicality"] = [1 - i / 100 for i in place]
    frame["kind"] = ["known" if id in "ab" else "novel" for id in ids]
    frame = frame.assign(doubtful=False, known_score=0.5, x=0.0, y=0.0, problem="", note="")
    categories = [
        Category(id, id, "known" if id in "ab" else "novel", len(held)) for id, held in HOLDS.items()
    ]
    return Discovery("made-1", ("a", "b"), frame, categories), truth


def corrected() -> Corrections:
    return Corrector(*made()).correct()


def said(one: Corrections, action: str) -> list[tuple[str, str]]:
    return [(edit.image or edit.category, edit.value) for edit in one.edits if edit.action == action]


def test_halves_of_one_class_are_merged_and_the_rest_is_named() -> None:
    one = corrected()
    assert said(one, "merge") == [("new-02", "new-01"), ("new-03", "a")]
    assert said(one, "rename") == [("new-01", "c"), ("new-04", "d")]
    merges = [edit.action for edit in one.edits].index("rename")
    assert merges == 2  # what is merged away is not named


def test_every_kind_is_counted() -> None:
    one = corrected()
    assert one.counts == {
        "confirm": 19,
        "move": 6,
        "split": 6,
        "categories": 1,
        "merge": 2,
        "reject": 3,
        "rename": 2,
    }
    assert len(one.edits) == 19 + 6 + 6 + 2 + 3 + 2


def test_the_product_takes_all_and_puts_every_named_image_where_it_belongs(tmp_path) -> None:
    found, truth = made()
    one = Corrector(found, truth).correct()
    (tmp_path / "edits.csv").write_text(to_csv(one.edits), encoding="utf-8")
    applied = apply_edits(found, read_edits(tmp_path / "edits.csv"))
    assert applied.problems == []
    assert applied.count == len(one.edits)
    images = applied.discovery.images
    rejected = (images["note"] == "rejected").to_numpy()
    assert rejected.sum() == 3 == (images["category_id"] == "").sum()
    placed = one.touched & ~rejected
    assert (images["category"].to_numpy()[placed] == truth[placed]).all()
    assert (truth[rejected] == "e").all()  # too few of them lay together


def test_labelled_images_are_left_alone_and_no_image_is_named_twice() -> None:
    found, _ = made()
    one = corrected()
    named = [edit.image for edit in one.edits if edit.image]
    assert len(named) == len(set(named)) == one.touched.sum()
    assert not (one.touched & (found.images["label"] != "").to_numpy()).any()


def test_the_most_typical_are_confirmed_in_turn_and_the_least_sure_moved_first() -> None:
    one = corrected()
    order = [value for _, value in said(one, "confirm")]
    assert order[:7] == ["new-01", "new-04", "new-01", "new-04", "new-01", "new-04", "new-01"]
    found, _ = made()
    typical = dict(zip(found.images["path"], found.images["typicality"], strict=True))
    confirmed = [typical[path] for path, value in said(one, "confirm") if value == "new-01"]
    assert confirmed == sorted(confirmed, reverse=True)
    moved = [typical[path] for path, value in said(one, "move") if value != "e"]  # as sure as typical here
    assert moved == sorted(moved)


@pytest.mark.parametrize(("each", "split"), [(2, 0), (5, 5)])
def test_there_are_at_most_so_many_of_each(monkeypatch, each: int, split: int) -> None:
    monkeypatch.setattr(corrector, "EACH", each)
    counts = corrected().counts
    assert counts["split"] == split  # fewer than five are no category
    assert max(counts[kind] for kind in ("confirm", "move", "merge", "reject")) == each


def test_the_same_round_is_corrected_by_the_same_file() -> None:
    assert to_csv(corrected().edits) == to_csv(corrected().edits)
