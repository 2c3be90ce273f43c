"""What each action does: the golden cases, which the report's JavaScript passes as well, and laws that hold for all."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.results.apply_edits import apply_edits
from holotype.results.discovery import Category, Discovery, RunFacts
from holotype.results.edits import Edit
from results.golden import CASES, GOLDEN, NAMES, case_edits, golden_discovery, outcome, random_edit
from tests.discovery.made_round import made_discovery

IMAGES = [row["path"] for row in GOLDEN["discoveries"]["shoes"]["images"]]


@st.composite
def edit_lists(draw: st.DrawFn) -> list[Edit]:
    size = draw(st.integers(0, 14))
    return [random_edit(lambda options: draw(st.sampled_from(options)), i) for i in range(size)]


def test_there_is_a_case_for_everything():
    assert len(CASES) == len(set(NAMES)) >= 100


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_golden(case):
    before, edits = case_edits(case)
    found = golden_discovery(case["discovery"])
    assert outcome(apply_edits(apply_edits(found, before).discovery, edits)) == case["expected"]


@pytest.mark.parametrize("case", [case for case in CASES if "before" in case], ids=lambda case: case["name"])
def test_two_sittings_come_to_the_same_as_one(case):
    before, edits = case_edits(case)
    found = golden_discovery(case["discovery"])
    once = outcome(apply_edits(found, [*before, *edits]))
    assert told(once) == told(case["expected"])


def told(result: dict) -> dict:
    """How things stand, without what is counted anew each time; split-off categories may stand in another order."""
    same = {key: result[key] for key in ("images", "merged", "rejected", "confirmed")}
    return {**same, "categories": sorted(result["categories"])}


# -- laws -------------------------------------------------------------------------------------------------


@given(edit_lists())
def test_every_image_is_in_one_category_or_none_and_known_classes_stay(edits):
    found = golden_discovery("shoes")
    after = apply_edits(found, edits).discovery
    ids = [category.id for category in after.categories]
    assert len(ids) == len(set(ids))
    assert len({category.name for category in after.categories}) == len(ids)
    assert list(after.images["path"]) == list(found.images["path"])
    assert list(after.images["label"]) == list(found.images["label"])
    assert set(after.images["category_id"]) <= {*ids, ""}
    for category in after.categories:
        mine = after.images[after.images["category_id"] == category.id]
        assert category.n == len(mine)
        assert set(mine["category"]) <= {category.name}
        assert set(mine["kind"]) <= {category.kind}
        assert set(category.exemplars) <= set(mine["path"])
        assert category.n > 0 or category.kind == "known"
    assert {c.id for c in after.categories if c.kind == "known"} == set(found.known)


@given(edit_lists())
def test_what_is_confirmed_in_a_category_is_in_it(edits):
    found = golden_discovery("shoes")
    after = apply_edits(found, edits).discovery
    where = dict(zip(after.images["path"], after.images["category_id"], strict=True))
    held = after.facts.edits
    for path, value in held.confirmed.items():
        if value in {category.id for category in found.categories}:  # else it is a label
            while value in held.merged:
                value = held.merged[value]
            assert where[path] == value


@given(edit_lists())
def test_applying_twice_is_applying_once(edits):
    found = golden_discovery("shoes")
    once = apply_edits(found, edits)
    again = apply_edits(once.discovery, edits)
    assert again.count == 0
    assert told(outcome(again)) == told(outcome(once))
    assert again.discovery.facts == once.discovery.facts
    doubled = apply_edits(found, [*edits, *edits])
    assert (doubled.count, told(outcome(doubled))) == (once.count, told(outcome(once)))


@given(edit_lists(), st.integers(0, 14))
def test_it_does_not_matter_when_one_stops_for_the_day(edits, stop):
    found = golden_discovery("shoes")
    whole = apply_edits(found, edits)
    morning = apply_edits(found, edits[:stop])
    evening = apply_edits(morning.discovery, edits[stop:])
    assert told(outcome(evening)) == told(outcome(whole))
    assert morning.count + evening.count == whole.count


@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_edits_on_different_images_does_not_matter(data, rng: random.Random):
    target = st.sampled_from(["Sandal", "Boot", "new-01", "new-02", "new-03", "Owl"])
    edits = []
    for image in data.draw(st.lists(st.sampled_from(IMAGES), unique=True)):
        action = data.draw(st.sampled_from(["move", "reject", "move", "confirm"]))
        value = (
            data.draw(target)
            if action != "confirm"
            else data.draw(st.sampled_from(["Boot", "new-02", "new-03"]))
        )
        edits.append(Edit("run-2", "t", action, image, "", value if action != "reject" else ""))
    shuffled = list(edits)
    rng.shuffle(shuffled)
    one, other = (apply_edits(golden_discovery("shoes"), order) for order in (edits, shuffled))
    assert told(outcome(one)) == told(outcome(other))
    assert one.refused == other.refused == []


# -- purity -----------------------------------------------------------------------------------------------


def calibrated(groups: dict[str, list[int]]) -> Discovery:
    """Every image is right with a probability of 0.6, as far as the run knows."""
    found = made_discovery("r-1", groups)
    found.images["probability"] = 0.6
    for category in found.categories:
        category.purity = 0.6
    return dataclasses.replace(found, facts=RunFacts(round=1, calibration_curve=((0.0, 0.0), (1.0, 0.6))))


def test_what_people_say_raises_the_purity_of_the_categories_it_is_about():
    found = calibrated({"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    paths = list(found.images["path"])
    edits = [
        Edit("r-1", "t0", "confirm", paths[4], "new-01", "new-01"),
        Edit("r-1", "t1", "move", paths[5], "new-01", "odd ones"),
    ]
    after = apply_edits(found, edits).discovery
    assert after.category("new-01").purity == pytest.approx((1 + 0.6 + 0.6) / 3)
    assert after.category("odd ones").purity == 1
    assert after.category("a").purity == after.category("new-02").purity == 0.6
    assert (
        after.category("new-01").purity_low
        < after.category("new-01").purity
        < after.category("new-01").purity_high
    )
    assert found.category("new-01").purity == 0.6  # the given one is not changed


def test_where_nothing_was_calibrated_edits_invent_no_purity():
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7, 8, 9, 10, 11]})
    edit = Edit("r-1", "t0", "confirm", found.images["path"][4], "new-01", "new-01")
    assert math.isnan(apply_edits(found, [edit]).discovery.category("new-01").purity)


def measured(category: Category) -> list[float]:
    return [category.cohesion, category.separation, category.together, category.comes_back]


def test_what_was_measured_is_told_of_categories_whose_images_are_the_same():
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    for category in found.categories:
        category.cohesion, category.separation, category.together, category.comes_back = 0.8, 0.3, 0.9, 4
    paths = list(found.images["path"])
    edits = [
        Edit("r-1", "t0", "confirm", paths[8], "new-02", "new-02"),
        Edit("r-1", "t1", "move", paths[5], "new-01", "a"),
    ]
    after = apply_edits(found, edits).discovery
    assert measured(after.category("new-02")) == [0.8, 0.3, 0.9, 4]
    for id in ("a", "new-01"):
        *shares, comes_back = measured(after.category(id))
        assert comes_back == 0
        assert all(math.isnan(share) for share in shares)
    rejected = apply_edits(found, [Edit("r-1", "t2", "reject", paths[9], "new-02")]).discovery
    assert math.isnan(rejected.category("new-02").together)
    assert measured(rejected.category("new-01")) == [0.8, 0.3, 0.9, 4]


def test_notes_name_a_category_as_it_is_called_now_or_what_it_was_merged_into() -> None:
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    found.images.loc[:2, "note"] = [f"the model would say {name}" for name in ("new-01", "new-02", "a")]
    edits = [
        Edit("r-1", "t0", "rename", "", "new-02", "kites"),
        Edit("r-1", "t1", "merge", "", "new-01", "new-02"),
    ]
    now = apply_edits(found, edits).discovery.images
    assert now.note[:3].tolist() == [f"the model would say {name}" for name in ("kites", "kites", "a")]
