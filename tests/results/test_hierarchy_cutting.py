"""A discovery at another number of categories: names and labels stay, and the steps can be taken over as edits."""

from __future__ import annotations

import pytest

from holotype.errors import InputError
from holotype.results.apply_edits import apply_edits
from holotype.results.hierarchy import PARTED_NOTE, Tree, build_tree, cut_tree, preview_cut, reachable_counts
from tests.results.test_hierarchy import collection


def test_fewer_categories_join_and_keep_their_names() -> None:
    found, features = collection()
    found = found.called({"new-02": "kites"})
    done = cut_tree(found, build_tree(found, features), 4, "t")
    ids = set(done.discovery.images.category_id)
    assert ids == {"a", "b", "new-02", "new-03"}
    assert done.discovery.category("new-02").name == "kites"
    assert done.discovery.category("new-02").n == 40
    assert done.lines == ["new-01 joins kites."]
    assert len(found.categories) == 5  # the discovery itself is as it was


def test_more_categories_are_parted() -> None:
    found, features = collection({"new-03": 40})
    done = cut_tree(found, build_tree(found, features), 6, "t")
    assert len(set(done.discovery.images.category_id)) == 6
    assert done.discovery.category("new-04").n == done.discovery.category("new-03").n == 10
    assert (done.discovery.images.note == PARTED_NOTE).sum() == 10
    assert done.lines == ["10 images of new-03 become new-04."]


def test_the_edits_bring_the_run_there() -> None:
    for k in (2, 4, 6, 8):
        found, features = collection({"new-03": 40, "new-01": 25})
        done = cut_tree(found, build_tree(found, features), k, "t")
        kept = apply_edits(found, done.edits)
        assert kept.problems == []
        assert list(kept.discovery.images.category_id) == list(done.discovery.images.category_id)
        assert len(set(done.discovery.images.category_id)) == k
        labelled = found.images.label != ""
        moved = done.discovery.images.category_id[labelled]
        assert (moved == found.images.label[labelled]).all()


def test_a_cut_is_no_round_of_the_run() -> None:
    found, features = collection()
    done = cut_tree(found, build_tree(found, features), 4, "t")
    assert done.discovery.run_id != found.run_id
    assert done.discovery.facts.k == 4
    assert all(edit.run_id == found.run_id for edit in done.edits)


def test_a_number_out_of_reach_is_one_sentence() -> None:
    found, features = collection()
    tree = build_tree(found, features)
    out_of_reach = {
        1: r"can be cut at 2 to \d+; there cannot be fewer, because known classes stay",
        99: r"can be cut at 2 to \d+; for 99 of them run holotype discover again with --k 99",
    }
    for k, words in out_of_reach.items():
        with pytest.raises(InputError, match=words):
            cut_tree(found, tree, k, "t")


def test_known_classes_can_be_cut_at_no_other_number() -> None:
    """As after edits that have made a class of each category."""
    assert reachable_counts(Tree("r", (), 3)) == "are all known classes, and can be cut at no other number"


def test_what_lies_around() -> None:
    found, features = collection({"new-03": 40})
    steps = preview_cut(build_tree(found, features), {"new-03": "suns"}, 2)
    assert [k for k, _ in steps] == [3, 4, 6, 7]
    assert steps[1][1] in ("new-01 joins new-02.", "new-02 joins new-01.")
    assert steps[2][1] == "10 images of suns become new-04."
