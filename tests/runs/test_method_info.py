"""The facts of a card are those of the method, whoever wrote it; one that cannot be told is a sentence."""

from importlib.metadata import EntryPoint

import pytest

from holotype.errors import InputError
from holotype.methods import METHODS, find_method
from holotype.runs import method_info as module
from holotype.runs.method_info import method_info, published_rows

OWN = '''"""Mine: a method.

    L = 0

Differs: in everything.
"""
from dataclasses import dataclass
from holotype.methods import Card, Method
from holotype.methods.simgcd import SimGCD

@dataclass
class Settings:
    width: int = 3
    """How wide."""

class Mine(Method):
    Config = Settings

class Built(SimGCD):
    """Inherits nothing that speaks of SimGCD."""

class Bare(Method):
    pass

class Demanding(Method):
    @dataclass
    class Config:
        must: int

class Broken(Method):
    Config = Settings
    def stages(self):
        raise ZeroDivisionError("oh")
'''


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    (tmp_path / "card_of_ones_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "card_of_ones_own"


def test_every_method_can_be_told() -> None:
    told = {}
    for name, kind in METHODS.items():
        found = method_info(name)
        assert (found.card, found.line[-1]) == (kind.card, ".")
        assert "L =" in found.computes or not found.stages  # the equation
        assert all(row.key.startswith("method.") and row.help for row in found.settings)
        assert found.settings
        assert found.recipes == vars(kind).get("recipes", {})
        assert found.presets.keys() == kind.presets.keys()
        told[name] = (module.stage_names(found), found.cache, found.capture)
    assert told.pop("kmeans") == ("none", "-", "-")
    assert told.pop("promptcal") == ("2: warm-up, affinity", "no", "yes")
    assert told.pop("sptnet") == ("2: simgcd, prompts", "stage 1", "stage 1")
    for name in ["rs", "uno", "gcd", "dccl", "simgcd", "protogcd", "debgcd", "rpc"]:
        assert told[name] == ("1: train", "yes", "yes"), name
    assert method_info("dccl").presets["as_run"] == {"method.edges": "none"}
    assert module.recipe_applies([True, False, True]) == "stages 1, 3"
    assert (module.recipe_title("*"), module.recipe_title("cub")) == ("all data sets", "cub")


def test_a_docstring_is_split_into_its_parts() -> None:
    doc = "Title: of it.\n\n    L = 0\n\nMore, that Differs not.\n\nDiffers, and why:\n  edges  are gone\nThe end."
    computes = "    L = 0\n\nMore, that Differs not."
    differs = "Differs, and why:\n  edges  are gone\nThe end."
    assert module.split_docstring(doc) == ("Title: of it", computes, differs)
    assert module.split_docstring("Alone") == ("Alone", "", "")
    assert module.split_docstring("A title of\ntwo lines.\n\nMore.") == ("A title of two lines", "More.", "")


def test_a_method_of_ones_own(own: str) -> None:
    found = method_info(f"{own}:Mine")
    assert (found.card, found.title, found.line) == (None, "Mine: a method", "Mine: a method")
    assert (found.computes, found.differs) == ("    L = 0", "Differs: in everything.")
    assert [(row.key, row.value, row.help) for row in found.settings] == [("method.width", "3", "How wide.")]
    assert published_rows(found.name) == []
    ((dataset, scores, progress), *_) = published_rows("gcd")
    assert (dataset, scores.all, round(progress.p, 2)) == ("cub", 51.3, 0.65)
    built = method_info(f"{own}:Built")
    assert find_method(f"{own}:Built").recipes  # SimGCD's
    assert (built.card, built.recipes) == (None, {})
    assert method_info(f"{own}:Bare").settings == ()
    for name, said in (("Demanding", "must"), ("Broken", "ZeroDivisionError: oh")):
        with pytest.raises(InputError, match=rf"{name} cannot be built \(.*{said}"):
            method_info(f"{own}:{name}")


def test_plug_ins_are_listed_and_a_broken_one_breaks_nothing(own: str, monkeypatch, tmp_path) -> None:
    (tmp_path / "card_that_raises.py").write_text("raise RuntimeError('no luck')")
    places = {"mine": f"{own}:Mine", "gone": "no_such_package:Mine", "raises": "card_that_raises:Mine"}
    entries = [EntryPoint(name, place, "holotype.methods") for name, place in places.items()]

    def installed(*, group, name=None):
        return [entry for entry in entries if name in (None, entry.name)]

    monkeypatch.setattr("holotype.methods.registry.entry_points", installed)
    found = module.list_methods()
    assert [one.name for one in found[: len(METHODS)]] == list(METHODS)
    gone, mine, raises = found[len(METHODS) :]
    assert mine.name == "mine"
    assert "cannot be imported" in str(gone)
    assert "RuntimeError: no luck" in str(raises)
