"""Categories in words: what is said of likeness to known classes, under the names these have now."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.results.describe import (
    relation_text,
    rename_in_texts,
    renamed_categories,
    renamed_note,
    renamed_suggestion,
    renamed_words,
    suggest_names,
)
from holotype.results.discovery import Category
from tests.discovery.made_round import made_discovery


@pytest.mark.parametrize(
    ("signature", "usual", "words"),
    [
        ([0.71, 0.55, 0.05, 0.2], None, "closest to Sneaker 0.71 and Sandal 0.55; unlike Bag"),
        ([0.71, 0.40, 0.05, 0.2], None, "closest to Sneaker 0.71; unlike Bag"),
        ([0.72, 0.6, 0.5, 0.71], None, "closest to Sneaker 0.72 and Boot 0.71; unlike Bag"),
        ([0.71, np.nan, np.nan, np.nan], None, "closest to Sneaker 0.71"),
        ([np.nan] * 4, None, ""),
        # everything here is like a sneaker, and nothing like a bag: that is not worth a word
        (
            [0.71, 0.55, 0.05, 0.2],
            [0.8, 0.1, 0.05, 0.9],
            "like no known class in particular; nearest Sneaker 0.71",
        ),
        ([0.71, 0.5, 0.3, 0.4], [0.4, 0.4, 0.0, 0.3], "closest to Sneaker 0.71"),
    ],
)
def test_words(signature, usual, words) -> None:
    usual = None if usual is None else np.array(usual)
    assert relation_text(signature, ["Sneaker", "Sandal", "Bag", "Boot"], usual=usual) == words


def test_suggested_names_are_numbered_per_neighbour() -> None:
    near = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    categories = [Category("a", "a", "known", 1, signature=near["a"])]
    categories += [
        Category(f"new-{i}", f"new-{i}", "novel", 1, signature=near[x]) for i, x in enumerate("aba")
    ]
    expected = ["a", "near a, new 1", "near b, new 1", "near a, new 2"]
    assert suggest_names(categories, ["a", "b"]) == expected


def test_renamed_classes_are_told_by_their_new_names_and_nothing_else_is_changed():
    words = "closest to fox 0.71 and fox and hound 0.55; unlike dog"
    assert renamed_words(words, {"fox": "dog", "dog": "fox"}) == (
        "closest to dog 0.71 and fox and hound 0.55; unlike fox"
    )
    assert renamed_words(words, {"fox and hound": "pack"}) == "closest to fox 0.71 and pack 0.55; unlike dog"
    assert renamed_words(words, {"ox": "cow", "unlike": "like", "0.71": "1"}) == words
    nowhere = "like no known class in particular; nearest a.b -0.02 (before new-01 was merged into it)"
    assert renamed_words(nowhere, {"a.b": "c"}) == nowhere.replace("a.b", "c")
    assert renamed_words(nowhere, {"a?b": "c", "new-01": "d"}) == nowhere
    assert renamed_words("split off by hand", {"hand": "foot"}) == "split off by hand"
    assert renamed_words(words, {}) == words


def test_a_name_that_two_classes_exchange_goes_to_the_right_one() -> None:
    def categories(first: str, second: str) -> list[Category]:
        words = "closest to fox 0.71; unlike dog"
        new = Category("new-01", "fox", "novel", 1, words=words)
        return [Category("fox", first, "known", 1), Category("dog", second, "known", 1), new]

    now = categories("dog", "fox")
    rename_in_texts(now, categories("fox", "dog"))
    assert [category.words for category in now] == ["", "", "closest to dog 0.71; unlike fox"]
    now = categories("fox", "dog")
    now[2].name = "wolf"  # of a new category, which no words name
    rename_in_texts(now, categories("fox", "dog"))
    assert now[2].words == "closest to fox 0.71; unlike dog"


def test_suggested_names_follow_the_known_classes() -> None:
    def categories(first: str, second: str) -> list[Category]:
        known = [
            Category(id, name, "known", 1, suggested=id) for id, name in (("fox", first), ("dog", second))
        ]
        return [*known, *(Category(f"new-0{i}", f"new-0{i}", "novel", 1) for i in (1, 2, 3))]

    now = categories("red fox", "dog")
    for category, suggested in zip(now[2:], ("near fox, new 1", "near dog, new 1", "new 1"), strict=True):
        category.suggested = suggested
    rename_in_texts(now, categories("fox", "dog"))
    told = ["red fox", "dog", "near red fox, new 1", "near dog, new 1", "new 1"]
    assert [category.suggested for category in now] == told


def test_a_suggested_name_is_taken_whole() -> None:
    names = {"fox": "red fox", "new 1": "x", "a, new 2": "b"}
    assert renamed_suggestion("near fox, new 12", names) == "near red fox, new 12"
    assert renamed_suggestion("near a, new 2, new 3", names) == "near b, new 3"
    for other in ("", "new 1", "near foxes, new 1", "near fox", "fox, new 1"):
        assert renamed_suggestion(other, names) == other


@pytest.mark.parametrize(
    ("note", "now"),
    [
        ("the model would say a", "the model would say Hats"),
        ("seen twice; most frames of its burst are in a", "seen twice; most frames of its burst are in Hats"),
        ("the model would say aa", "the model would say aa"),
        ("moved by hand", "moved by hand"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_a_note_names_a_category_as_it_is_called_now(note, now) -> None:
    assert renamed_note(note, {"a": "Hats"}) == now


def test_names_that_came_since_a_round_are_in_its_words_and_notes() -> None:
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": [*range(4, 12)]})
    found.category("new-01").words = "closest to a 0.50"
    found.images.loc[0, "note"] = "the model would say new-01"
    now = renamed_categories(found, {"a": "Hats", "new-01": "Owls"})
    assert (now.category("new-01").words, now.images.note[0]) == (
        "closest to Hats 0.50",
        "the model would say Owls",
    )
    assert (found.category("new-01").words, found.images.note[0]) == (
        "closest to a 0.50",
        "the model would say new-01",
    )
