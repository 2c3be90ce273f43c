"""What labels mean: ids stay where people call a class otherwise."""

from __future__ import annotations

import unicodedata

import numpy as np

from holotype.data.table import Table
from holotype.discovery.collection import Collection, ImageEntry, LabelAliases, resolve_aliases
from tests.discovery.made_round import made_discovery


def look(*labels: str) -> Collection:
    return Collection(
        "photos", {f"{i}.png": ImageEntry("1-1", f"{i}", label) for i, label in enumerate(labels)}
    )


def meant(
    now: Collection, before: Collection, means: dict[str, str] | None = None, **names: str
) -> LabelAliases:
    """names: new-01 is written new_01."""
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    found = found.called({id.replace("_", "-"): name for id, name in names.items()})
    return resolve_aliases(now, before, {path: path for path in before.images}, means or {}, found)


def test_a_label_is_its_class() -> None:
    assert meant(look("a", "a", "b"), look("a", "a", "")) == LabelAliases()
    assert meant(look("a", "a", "new-01"), look("a", "a", "")) == LabelAliases()


def test_the_name_of_a_category_means_it() -> None:
    """Somebody called new-01 hats in the report, and later sorts pictures into a folder hats."""
    words = meant(look("a", "a", "hats"), look("a", "a", ""), new_01="hats")
    assert words == LabelAliases({"hats": "new-01"})
    again = meant(look("a", "a", "hats"), look("a", "a", "new-01"), words.means, new_01="caps")
    assert again.means == {"hats": "new-01"}  # whatever it is called in the report by now


def test_accents_that_a_mac_writes_apart_are_the_same_letters() -> None:
    apart = unicodedata.normalize("NFD", "é")
    assert meant(look("a", "a", "é"), look("a", "a", ""), new_01=apart) == LabelAliases({"é": "new-01"})
    assert meant(look("a", "é"), look("a", apart)) == LabelAliases({"é": apart})  # the id comes from an edit
    assert meant(look("a", "é"), look(apart, "é")) == LabelAliases()  # two classes then


def test_a_class_whose_images_all_have_another_label_was_renamed() -> None:
    words = meant(look("crimson", "crimson", "b"), look("a", "a", "b"))
    assert words == LabelAliases({"crimson": "a"}, {"a": "crimson"})
    assert meant(look("crimson", "crimson", "b"), look("a", "a", "b"), words.means).names == {}


def test_a_class_that_is_renamed_back_has_its_name_again() -> None:
    """A folder that was called otherwise for a while, or a list of labels that was forgotten once."""
    first = meant(look("crimson", "crimson", "b"), look("a", "a", "b"))
    back = meant(look("a", "a", "b"), look("a", "a", "b"), first.means)
    assert back == LabelAliases({"crimson": "a", "a": "a"}, {"a": "a"})
    assert meant(look("a", "a", "b"), look("a", "a", "b"), back.means).names == {}
    again = meant(look("crimson", "crimson", "b"), look("a", "a", "b"), back.means)
    assert (again.names, list(again.means)) == ({"a": "crimson"}, ["a", "crimson"])
    assert meant(look("crimson", "crimson", "b"), look("a", "a", "b"), again.means).names == {}


def test_a_number_takes_no_name_away() -> None:
    """Labels may name a class by its id, also after they have named it by its name."""
    owls = meant(look("a", "owls", "owls"), look("a", "", ""), new_01="owls")
    assert owls == LabelAliases({"owls": "new-01"})
    by_id = meant(look("a", "new-01", "new-01"), look("a", "new-01", "new-01"), owls.means, new_01="owls")
    assert by_id.names == {}


def test_a_label_that_was_corrected_is_not_a_renamed_class() -> None:
    before = look("a", "a", "b", "b")
    assert meant(look("a", "c", "b", "b"), before) == LabelAliases()  # one of two
    assert meant(look("c", "d", "b", "b"), before) == LabelAliases()  # to different ones
    assert meant(look("b", "b", "b", "b"), before) == LabelAliases()  # to one that was there
    assert meant(look("", "", "b", "b"), before) == LabelAliases()
    assert (
        meant(look("c", "", "b", "b"), look("a", "", "b", "b")) == LabelAliases()
    )  # a single image says little
    assert meant(look("c", "c", "c", "c"), before).names == {"a": "c"}  # two classes cannot both be the one


def test_a_table_speaks_of_ids() -> None:
    label = np.array(["hats", "a", "", "b"], dtype=object)
    table = Table(np.array(list("1234"), dtype=object), label, ("a", "b", "hats"))
    assert LabelAliases().spoken(table) is table
    spoken = LabelAliases({"hats": "new-01", "caps": "new-02", "b": "a"}).spoken(table)
    assert list(spoken.label) == ["new-01", "a", "", "a"]
    assert spoken.known == ("a", "new-01")
