"""Names that mean one class are found, and names of different classes are left alone."""

from __future__ import annotations

import pytest

from holotype.data.label_hygiene import similar_names, unsorted_names


@pytest.mark.parametrize(
    "names",
    [
        ("Canna Lily", "canna lily"),
        ("canna_lily", "Canna-Lily", "cannalily"),
        ("Café noir", "cafe noir"),
        ("Käfer", "Ka\u0308fer"),
        ("great tit", "Great Tits"),
        ("great cormorant", "great comorant"),
        ("great cormorant", "great cormoranr"),
        ("great cormorant", "great cormornat", "great cormorantt"),
    ],
)
def test_one_class_under_several_names(names: tuple[str, ...]) -> None:
    assert similar_names([*names, "red kite", "buzzard"]) == [sorted(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("type 1", "type 2", "type a", "type b"),
        ("Boeing 737-200", "Boeing 737-300", "Boeing 737-30"),
        ("species 0001", "species 0002"),
        ("fox", "box", "fix", "ox"),
        ("horse", "house"),
        ("Least Tern", "Leaf Tern", "Arctic Tern"),
        ("Barn Swallow", "Bank Swallow"),
        ("bus", "bu", "b"),
        ("???", "!!!"),
    ],
)
def test_different_classes_are_different(names: tuple[str, ...]) -> None:
    assert similar_names(names) == []


def test_groups_grow_together_and_stand_in_order() -> None:
    """The first and the last are two letters apart, and one class all the same."""
    names = [
        "zebra finch",
        "Zebra Finch",
        "great cormoran",
        "great cormorant",
        "great kormorant",
        "Great-Cormorants",
    ]
    assert similar_names(names) == [
        ["Great-Cormorants", "great cormoran", "great cormorant"],
        ["Zebra Finch", "zebra finch"],
    ]
    assert similar_names([]) == []


def test_many_names_take_no_time() -> None:
    assert similar_names(f"species of the genus {i:05d}" for i in range(5_000)) == []


def test_heaps_are_called_so() -> None:
    names = [
        "unsorted",
        "Misc",
        "INBOX",
        "new",
        "to do",
        "To_Sort",
        "others",
        "fox",
        "news",
        "new forest pony",
    ]
    assert unsorted_names(names) == ["INBOX", "Misc", "To_Sort", "new", "others", "to do", "unsorted"]


def test_dates_and_folders_of_cameras_are_heaps() -> None:
    """They say when and with what images were taken; numbers that are no dates may well be classes."""
    told = [
        "100CANON",
        "101MSDCF",
        "102_PANA",
        "20230512",
        "2023",
        "2023-05",
        "2023_05_12",
        "DCIM",
        "Camera Roll",
    ]
    assert unsorted_names(told) == sorted(told)
    assert (
        unsorted_names(["7", "42", "1234", "2023-17", "20239999", "3000", "100 CANON 2", "747", "type 2023"])
        == []
    )
