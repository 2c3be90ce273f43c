"""Paths as seen from the root."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from holotype.data.paths import find_images, in_quotes, relative, unquoted


def test_paths_are_seen_from_the_root() -> None:
    assert relative(["a/b/c.png", "a/d#3"], "a") == ["b/c.png", "d#3"]
    assert relative(["a/b.png"], "") == ["a/b.png"]


def test_windows_paths_are_shown_as_they_stand() -> None:
    assert in_quotes("C:\\me\\1.jpg") == "'C:\\me\\1.jpg'"
    assert in_quotes("a\x1b[2J.jpg") == "'a\\x1b[2J.jpg'"  # no letter of a name steers a terminal


BASE = Path("/photos")
IMAGES = ("fox/1.jpg", "fox/2.JPG", "badger/1.jpg", "badger/Köln.jpg", "loose.jpg", "deep/down/owl/7.jpg")


def meant(*given: str, images: tuple[str, ...] = IMAGES) -> list[str | None]:
    there = {str(BASE / image) for image in images}
    found, guessed = find_images(given, (BASE,), there.__contains__, lambda: sorted(there))
    assert all(found[row] is not None for row in guessed)
    return [None if path is None else str(Path(path).relative_to(BASE)) for path in found]


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ("fox/1.jpg", "fox/1.jpg"),
        ("./fox//1.jpg", "fox/1.jpg"),
        ("fox\\1.jpg", "fox/1.jpg"),
        ('  "fox/1.jpg" ', "fox/1.jpg"),
        ("C:\\Users\\me\\photos\\fox\\1.jpg", "fox/1.jpg"),
        ("\\\\server\\share\\badger\\1.jpg", "badger/1.jpg"),
        ("/elsewhere/old/fox/2.jpg", "fox/2.JPG"),
        ("FOX/1.JPG", "fox/1.jpg"),
        (unicodedata.normalize("NFD", "badger/Köln.jpg"), "badger/Köln.jpg"),
        ("7.jpg", "deep/down/owl/7.jpg"),
        ("birds/owl/7.jpg", "deep/down/owl/7.jpg"),
        ("/elsewhere/loose.jpg", "loose.jpg"),
    ],
)
def test_paths_of_other_machines(given: str, image: str) -> None:
    assert meant(given) == [image]


@pytest.mark.parametrize("given", ["1.jpg", "wolf/1.jpg", "wolf/7.jpg", "/photos/fox/3.jpg", "fox", "..", ""])
def test_what_may_mean_another_image_means_none(given: str) -> None:
    """Several images of that name, another folder of one name only, and nothing at all."""
    assert meant(given) == [None]


def test_an_image_that_is_listed_as_it_stands_is_no_other_one() -> None:
    """old/loose.jpg is gone, and loose.jpg is not it."""
    assert meant("loose.jpg", "old/loose.jpg") == ["loose.jpg", None]
    assert meant("a/loose.jpg", "b/loose.jpg") == [None, None]  # nobody knows which of them
    assert meant("a/loose.jpg", "A\\loose.jpg") == ["loose.jpg", "loose.jpg"]  # the same path twice


def test_names_that_differ_in_capitals_only_are_two() -> None:
    assert meant("a/X.jpg", "a/x.jpg", "b/a/x.JPG", images=("a/X.jpg", "a/x.jpg")) == [
        "a/X.jpg",
        "a/x.jpg",
        None,
    ]


def test_quotes_come_in_pairs() -> None:
    assert [unquoted(text) for text in (" 'a' ", '"a b"', "o'", "'", "''", "it's")] == [
        "a",
        "a b",
        "o'",
        "'",
        "",
        "it's",
    ]
