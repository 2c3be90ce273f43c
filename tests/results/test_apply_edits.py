"""What people correct is corrected, what contradicts is told, and nothing is applied twice."""

from __future__ import annotations

import copy
import dataclasses
import math
import random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.report.page_data import page_data, select_shown
from holotype.results.apply_edits import (
    MOST_EXEMPLARS,
    AppliedEdits,
    apply_edits,
    merge_exemplars,
    refresh_exemplars,
)
from holotype.results.describe import describe_all
from holotype.results.discovery import Category, Discovery, RunFacts
from holotype.results.edits import Edit
from report.made import make_discovery
from results.golden import CASES, GOLDEN, NAMES, case_edits, golden_discovery, outcome, random_edit
from tests.discovery.made_round import made_discovery

RUN = "run-made-1"


@pytest.fixture
def found(tmp_path) -> Discovery:
    return make_discovery(tmp_path, 60)


def edit(
    action: str, image: str = "", category: str = "", value: str = "", *, time: str = "t", run: str = RUN
) -> Edit:
    return Edit(run, time, action, image, category, value)


def paths(found: Discovery, id: str) -> list[str]:
    return list(found.images["path"][found.images["category_id"] == id])


def row(applied: AppliedEdits, path: str) -> pd.Series:
    return applied.discovery.images.set_index("path").loc[path]


def test_the_given_discovery_is_not_changed(found):
    before, categories = found.images.copy(), copy.deepcopy(found.categories)
    apply_edits(found, [edit("rename", "", "new-01", "Hawk"), edit("merge", "", "new-02", "new-03")])
    pd.testing.assert_frame_equal(found.images, before)
    assert [(c.id, c.name, c.n) for c in found.categories] == [(c.id, c.name, c.n) for c in categories]


def test_where_the_run_had_put_an_image_is_remembered(found):
    one, two, three = paths(found, "new-01")[:3]
    edits = [
        edit("move", one, "new-01", "new-02"),
        edit("move", one, "new-02", "new-03", time="t2"),
        edit("confirm", two, "new-01", "new-01"),
        edit("reject", three, "new-01"),
    ]
    first = apply_edits(found, edits[:1]).discovery
    assert first.facts.edits.came_from == {one: "new-01"}
    assert apply_edits(first, edits).discovery.facts.edits.came_from == {one: "new-01", two: "new-01"}


def test_words_name_known_classes_as_they_are_called_now(found):
    known = found.known
    for category, words in zip(found.categories, describe_all(found.categories, known, known), strict=True):
        category.words = words
    new = next(c for c in found.categories if c.kind == "novel" and c.words.startswith("closest to"))
    named = next(name for name in known if f"closest to {name} " in new.words)
    merged = next(c for c in found.categories if c.kind == "novel" and c is not new)
    edits = [edit("merge", "", merged.id, new.id), edit("rename", "", named, "red fox")]
    applied = apply_edits(found, edits).discovery
    after = applied.category(new.id).words
    assert after.startswith(new.words.replace(named, "red fox"))
    assert after.endswith(f"(before {merged.name} was merged into it)")
    assert all("red fox" not in c.words or named in found.category(c.id).words for c in applied.categories)
    assert named in new.words
    again = apply_edits(applied, [*edits, edit("rename", "", named, "vixen", time="later")]).discovery
    assert again.category(new.id).words == after.replace("red fox", "vixen")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (edit("rename", "", "new-01", "Sandal"), "is called so; merge 'new-01' into 'Sandal' instead"),
        (edit("rename", "", "Sandal", "new-01"), "is called so; merge 'new-01' into 'Sandal' instead"),
        (edit("rename", "", "Sandal", "Bag"), "is called so; both are known, so move the images of one to"),
        (edit("rename", "", "new-01", "  "), "the new name is empty"),
        (edit("rename", "", "new-99", "Hawk"), "'new-99' is not in this run"),
        (edit("merge", "", "new-01", "new-01"), "one category already"),
        (edit("merge", "", "Sandal", "new-01"), "a known class stays; merge 'new-01' into it instead"),
        (edit("merge", "", "Sandal", "Bag"), "a known class stays; move its images instead"),
        (edit("merge", "", "new-01", "new-99"), "'new-99' is not in this run"),
        (edit("move", "gone.png", "new-01", "new-02"), "no such image"),
        (edit("confirm", "gone.png", "new-01", "new-02"), "no such image"),
        (edit("rename", "", "new-01", "Hawk", run="other"), "1 edit of run 'other' cannot be applied"),
    ],
)
def test_what_cannot_be_applied_is_told_and_the_rest_goes_on(wrong, words, found):
    applied = apply_edits(found, [wrong, edit("rename", "", "new-04", "Owl")])
    assert len(applied.problems) == 1
    assert words in applied.problems[0]
    assert applied.left == applied.problems
    assert applied.discovery.category("new-04").name == "Owl"
    assert applied.count == 1


def test_merge(found):
    both = {*paths(found, "new-01"), *paths(found, "new-02")}
    applied = apply_edits(
        found, [edit("merge", "", "new-01", "new-02"), edit("rename", "", "new-01", "Hawk")]
    )
    target = applied.discovery.category("new-02")
    assert target.n == len(both)
    assert set(paths(applied.discovery, "new-02")) == both
    assert target.name == "Hawk"  # what is said of a merged category holds for the one that it is in
    assert set(target.exemplars) <= both
    one, two = (found.category(id) for id in ("new-01", "new-02"))
    mean = (one.n * one.signature[0] + two.n * two.signature[0]) / (one.n + two.n)
    assert target.signature[0] == pytest.approx(mean)
    assert applied.discovery.facts.edits.merged == {"new-01": "new-02"}
    assert all(c.nearest != "new-01" for c in applied.discovery.categories)


def test_what_was_confirmed_is_told_by_id(found):
    one, two = paths(found, "new-01")[0], paths(found, "Sandal")[0]
    edits = [
        edit("confirm", one, "new-01", "new-01"),
        edit("rename", "", "new-01", "Hawk"),
        edit("confirm", two, "Sandal", "Boot"),
    ]
    applied = apply_edits(found, edits)
    assert applied.confirmed == {one: "new-01", two: "Boot"}
    assert not row(applied, one)["doubtful"]
    assert row(applied, two)["category"] == "Sandal"  # nothing is called Boot before the next round


def test_confirming_twice_and_against_the_label_is_told(found):
    labelled = found.images[found.images["label"] != ""].iloc[0]
    edits = [edit("confirm", labelled["path"], "", "new-01"), edit("confirm", labelled["path"], "", "new-02")]
    applied = apply_edits(found, edits)
    assert applied.confirmed == {labelled["path"]: "new-02"}
    assert f"had the label {labelled['label']!r}" in applied.problems[0]
    assert "confirmed as 'new-01' before; the later one counts" in applied.problems[1]


def test_remarks_call_categories_by_their_names_and_no_label_is_said_to_have_come_with_an_image(found):
    """A label may be that of an edit of an earlier round, or of another frame of a burst."""
    one, two = paths(found, "new-01")[:2]
    found.images.loc[found.images["path"] == two, "label"] = "new-02"
    edits = [
        edit("rename", "", "new-01", "Hawk"),
        edit("rename", "", "new-02", "Owl"),
        edit("confirm", one, "new-01", "new-01"),
        edit("move", one, "new-01", "new-02"),
        edit("confirm", two, "new-01", "new-01"),
        edit("confirm", two, "new-01", "new-02"),
    ]
    assert [problem.split("but ")[1] for problem in apply_edits(found, edits).problems] == [
        "it had been confirmed as 'Hawk' before; the later one counts.",
        "the image had the label 'Owl'; the confirmed one counts in the next round.",
        "the image had been confirmed as 'Hawk' before; the later one counts.",
    ]


def test_confirmed_and_then_moved_or_rejected_is_told_and_forgotten(found):
    one, two, three = paths(found, "new-01")[:3]
    edits = [edit("confirm", path, "new-01", "new-01") for path in (one, two, three)]
    edits += [edit("move", one, "new-01", "new-02"), edit("reject", two), edit("reject", "", "new-01")]
    applied = apply_edits(found, edits)
    assert applied.confirmed == {}
    assert [problem.split("but ")[1] for problem in applied.problems] == [
        "it had been confirmed as 'new-01' before; the later one counts.",
        "it had been confirmed as 'new-01' before; the later one counts.",
        "1 of its images had been confirmed before; the later one counts.",
    ]


def test_what_was_refused_is_not_tried_again(found, tmp_path):
    """Else the report would show as done what the log says was not."""
    taken, free = edit("rename", "", "new-01", "Hawk"), edit("rename", "", "new-02", "Owl")
    found.category("new-02").name = "Hawk"
    first = apply_edits(found, [taken, free])
    assert (first.refused, first.discovery.category("new-01").name) == ([0], "new-01")
    first.discovery.save(tmp_path)
    again = apply_edits(Discovery.load(tmp_path), [taken, free])
    assert (again.count, again.refused, again.discovery.category("new-01").name) == (0, [], "new-01")
    page = page_data(first.discovery, select_shown(first.discovery), tmp_path, [taken, free], None)
    assert len(page["log"]) == 2


def category(id: str, n: int, exemplars: str, signature: list[float], kind: str = "novel") -> Category:
    return Category(
        id=id, name=id, kind=kind, n=n, exemplars=list(exemplars), borderline=[exemplars[-1]],
        signature=signature, words="closest to A", cohesion=0.5, separation=0.5,
    )  # fmt: skip


def test_two_speak_in_turn_and_by_their_numbers():
    target, source = category("one", 3, "abc", [0.4, 0.0]), category("two", 1, "xyzuvw", [0.8, 1.0])
    merge_exemplars(target, source)
    assert "".join(target.exemplars) == "axbyczuvw"
    assert target.borderline == ["c", "w"]
    assert target.signature == pytest.approx([0.5, 0.25])
    assert target.words == "closest to A (before two was merged into it)"
    assert target.n == 4
    assert math.isnan(target.cohesion)


def test_a_known_class_and_one_that_an_empty_category_joins_keep_their_signature():
    known, empty = category("A", 3, "abc", [1.0, 0.0], "known"), category("two", 0, "x", [0.8, 1.0])
    merge_exemplars(known, category("one", 3, "x", [0.0, 0.0]))
    assert known.signature == [1.0, 0.0]
    target = category("one", 0, "a", [0.4, 0.0])
    merge_exemplars(target, empty)
    assert target.signature == [0.4, 0.0]


def test_who_left_does_not_speak_and_the_most_typical_step_in():
    typicality = {path: i / 26 for i, path in enumerate("abcdefghijklmnopqrstuvwxyz")}
    shown = category("one", 3, "abc", [])
    refresh_exemplars(shown, {"b", "z"}, typicality)
    assert (shown.exemplars, shown.borderline) == (["b"], [])
    refresh_exemplars(shown, set("klmnopqrstuvwxyz"), typicality)
    assert shown.exemplars == list("zyxwvutsrqpo")
    assert len(shown.exemplars) == MOST_EXEMPLARS


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
