"""The tree of categories: near ones join first, what holds two groups is parted first, known classes stay apart."""

import json
from dataclasses import replace

import numpy as np
import pytest

from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, apply_edits
from holotype.results.hierarchy import (
    PARTED_NOTE,
    TREE_FILE,
    Tree,
    build_tree,
    cut_tree,
    preview_cut,
    reachable_counts,
    save_tree,
)
from tests.discovery.made_round import made_discovery

ANGLES = {"a": 0, "b": 12, "new-01": 90, "new-02": 100, "new-03": 180}
"""Places on a circle, in degrees."""
EACH = 20


def collection(spread: dict[str, float] | None = None) -> tuple[Discovery, np.ndarray]:
    """Twenty images of each; `spread`: half of the images of a category lie so many degrees further on."""
    random, spread = np.random.default_rng(0), spread or {}
    groups = {id: list(range(i * EACH, (i + 1) * EACH)) for i, id in enumerate(ANGLES)}
    parts = [np.where(np.arange(EACH) % 2, spread.get(id, 0.0), 0.0) for id in ANGLES]
    angle = np.concatenate(
        [at + random.normal(0, 1.5, EACH) + part for at, part in zip(ANGLES.values(), parts, strict=True)]
    )
    paths = [f"photos/{i:03d}.png" for i in range(len(angle))]
    found = made_discovery("r", groups, known=("a", "b"), paths=paths)
    label = [id if id in "ab" and i % EACH < 5 else "" for id, rows in groups.items() for i in rows]
    found = replace(found, images=found.images.assign(label=label))
    return found, np.stack([np.cos(np.radians(angle)), np.sin(np.radians(angle))], axis=1)


def test_near_categories_join_first_and_known_classes_never() -> None:
    """a and b lie 12 degrees apart and stay two; new-01 and new-02 are next."""
    tree = build_tree(*collection())
    assert (tree.k, tree.lowest) == (5, 2)
    first = tree.merges[0]
    assert {first.source, first.target} == {"new-01", "new-02"}
    assert {merge.source for merge in tree.merges} == {"new-01", "new-02", "new-03"}
    assert tree.merges[-1].target in ("a", "b")
    costs = [merge.cost for merge in tree.merges]
    assert costs == sorted(costs)
    found, features = collection()
    for name in ("new-01", "new-02"):  # what people have named stays
        assert build_tree(found.called({name: "kites"}), features).merges[0].target == name


def test_a_category_of_two_groups_is_parted_first() -> None:
    found, features = collection({"new-03": 40})
    tree = build_tree(found, features)
    first = tree.splits[0]
    assert (first.source, first.part, len(first.rows)) == ("new-03", "new-04", EACH // 2)
    assert {row % 2 for row in first.rows} in ({0}, {1})
    assert first.gain > 5 * tree.splits[1].gain
    features[81] = np.nan  # it was not read, and is nowhere
    tree = build_tree(found, features)
    assert 81 not in {row for split in tree.splits for row in split.rows}
    one = build_tree(made_discovery("r", {"a": list(range(12))}), np.ones((12, 3)))
    assert (one.lowest, one.k, one.highest) == (1, 1, 1)


def test_labelled_images_stay_in_their_class() -> None:
    """Strays in a known class leave; a class whose labelled images lie on both sides is not parted."""
    found, features = collection()
    strays = np.arange(8, 16)
    features[strays] = features[80:88]  # unlabelled images of a that look like new-03
    tree = build_tree(found, features)
    assert tree.splits[0].source == "a"
    assert set(tree.splits[0].rows) == set(strays.tolist())
    found, features = collection({"a": 40})
    labels = found.images.label.to_numpy(dtype=object, copy=True)
    labels[:EACH] = "a"
    tree = build_tree(replace(found, images=found.images.assign(label=labels)), features)
    assert "a" not in {split.source for split in tree.splits}


def test_it_is_kept_and_made_anew_after_an_edit(tmp_path) -> None:
    found, features = collection()
    assert save_tree(tmp_path, found, None) is None
    tree = save_tree(tmp_path, found, features)
    assert save_tree(tmp_path, found, None) == tree
    facts = replace(found.facts, edits=replace(found.facts.edits, applied=["abc"]))
    assert save_tree(tmp_path, replace(found, facts=facts), None) is None
    for text in (json.dumps({"format": 99}), "["):
        (tmp_path / TREE_FILE).write_text(text)
        assert save_tree(tmp_path, found, None) is None  # it cannot be read
    assert save_tree(tmp_path, found, features) == tree


def test_a_part_has_no_number_that_meant_a_category_of_an_earlier_round(tmp_path) -> None:
    """new-04 was in round 1, and new-05 was split off in it by hand; the name that either got would come back."""
    first = made_discovery("r-1", {"a": [0, 1, 2], "new-04": list(range(3, 12))})
    first.save(tmp_path / "rounds" / "1")
    (tmp_path / "rounds" / "2").mkdir()
    (tmp_path / "rounds" / "2" / "discovery.json").write_text("{")  # whoever goes on with it says so
    append_edits(tmp_path, [Edit("r-1", "t", "move", first.images.path[3], "new-04", "new-05")])
    tree = save_tree(tmp_path, *collection({"new-03": 40}))
    assert tree is not None
    assert tree.splits[0].part == "new-06"


def test_fewer_categories_join_and_keep_their_names() -> None:
    found, features = collection()
    found = found.called({"new-02": "kites"})
    done = cut_tree(found, build_tree(found, features), 4, "t")
    assert set(done.discovery.images.category_id) == {"a", "b", "new-02", "new-03"}
    kites = done.discovery.category("new-02")
    assert (kites.name, kites.n) == ("kites", 40)
    assert done.lines == ["new-01 joins kites."]
    assert len(found.categories) == 5  # the discovery itself is as it was
    assert done.discovery.run_id != found.run_id  # a cut is no round of the run
    assert done.discovery.facts.k == 4
    assert all(edit.run_id == found.run_id for edit in done.edits)


def test_more_categories_are_parted() -> None:
    found, features = collection({"new-03": 40})
    tree = build_tree(found, features)
    done = cut_tree(found, tree, 6, "t")
    assert len(set(done.discovery.images.category_id)) == 6
    assert done.discovery.category("new-04").n == done.discovery.category("new-03").n == 10
    assert (done.discovery.images.note == PARTED_NOTE).sum() == 10
    assert done.lines == ["10 images of new-03 become new-04."]
    steps = preview_cut(tree, {"new-03": "suns"})
    assert [k for k, _ in steps] == [2, 3, 4, 6, 7, 8]
    assert steps[2][1] in ("new-01 joins new-02.", "new-02 joins new-01.")
    assert steps[3][1] == "10 images of suns become new-04."


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_the_edits_bring_the_run_there(k) -> None:
    found, features = collection({"new-03": 40, "new-01": 25})
    done = cut_tree(found, build_tree(found, features), k, "t")
    kept = apply_edits(found, done.edits)
    assert kept.problems == []
    where = done.discovery.images.category_id
    assert list(kept.discovery.images.category_id) == list(where)
    assert len(set(where)) == k
    labelled = found.images.label != ""
    assert (where[labelled] == found.images.label[labelled]).all()


def test_a_number_out_of_reach_is_one_sentence() -> None:
    found, features = collection()
    tree = build_tree(found, features)
    for k, words in {1: "there cannot be fewer", 99: "for 99 of them run holotype discover again"}.items():
        with pytest.raises(InputError, match=rf"can be cut at 2 to \d+; {words}"):
            cut_tree(found, tree, k, "t")
    # as after edits that have made a class of each category
    assert "at no other number" in reachable_counts(Tree("r", (), 3))
