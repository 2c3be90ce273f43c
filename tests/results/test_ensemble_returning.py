"""Which categories come back, in words."""

from __future__ import annotations

import dataclasses

from holotype.results.apply_edits import apply_edits
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit
from holotype.results.ensemble import methods_phrase, stability_summary, stability_text
from tests.discovery.made_round import made_discovery


def five_trainings() -> Discovery:
    groups = {"a": [0, 1], "new-01": [2, 3, 4, 5], "new-02": [6, 7, 8], "new-03": [9, 10, 11]}
    found = made_discovery("r", groups)
    for category, (times, together) in zip(
        found.categories, [(5, 1.0), (5, 0.934), (2, 0.4), (3, 0.7)], strict=True
    ):
        category.comes_back, category.together = times, together
    facts = dataclasses.replace(
        found.facts, trainings=(0, 1, 2, 3, 4), agreement=(0.7, 0.8, 0.916, 0.9, 0.8), seed=2
    )
    return dataclasses.replace(found, facts=facts)


def test_a_category_says_how_often_it_comes_back() -> None:
    found = five_trainings()
    assert (
        stability_text(found.category("new-01"), 5)
        == "Comes back in 5 of 5 trainings; 93 % of its unlabelled images stay together."
    )
    assert stability_text(found.category("new-01"), 0) == ""


def test_those_that_do_not_are_named() -> None:
    assert stability_summary(five_trainings()) == [
        "5 trainings vote; --seeds changes it.",
        "Images are placed where they agree (seeds 0 to 4). The model of the one with seed 2, which agrees on "
        "92 % of these, is kept for new images.",
        "New categories that come back in every training: 1 of 3.",
        "Not in more than half of them, so look twice: new-02 (2 of 5).",
    ]


def test_methods_that_took_turns_are_told() -> None:
    found = five_trainings()
    facts = dataclasses.replace(found.facts, methods=("rpc", "uno"), method="rpc")
    assert stability_summary(dataclasses.replace(found, facts=facts))[1] == (
        "Images are placed where they agree (seeds 0 to 4; rpc and uno in turn). The model of rpc with seed 2, "
        "which agrees on 92 % of these, is kept for new images."
    )


def test_one_training_is_no_vote() -> None:
    found = made_discovery("r", {"a": list(range(12))})
    of_train, of_discover = (
        dataclasses.replace(found, facts=dataclasses.replace(found.facts, round=round)) for round in (0, 1)
    )
    assert stability_summary(of_train) == []
    assert (
        [line for line in stability_summary(of_discover) if "--seeds" in line]
        == stability_summary(of_discover)
        != []
    )


def test_a_merged_category_is_another_one() -> None:
    found = apply_edits(five_trainings(), [Edit("r", "t", "merge", "", "new-02", "new-01")]).discovery
    assert stability_text(found.category("new-01"), 5) == ""
    assert stability_text(found.category("new-03"), 5) != ""


def test_it_is_kept_on_disk(tmp_path) -> None:
    found = five_trainings()
    found.save(tmp_path)
    again = Discovery.load(tmp_path)
    assert [(c.comes_back, c.together) for c in again.categories] == [
        (c.comes_back, c.together) for c in found.categories
    ]
    assert again.facts.trainings == (0, 1, 2, 3, 4)
    assert stability_summary(again) == stability_summary(found)


def test_methods_in_words() -> None:
    assert methods_phrase(("rpc", "uno")) == "rpc and uno in turn"
    assert methods_phrase(("rpc", "uno", "gcd")) == "rpc, uno and gcd in turn"
    assert methods_phrase(("rpc",)) == "rpc"
