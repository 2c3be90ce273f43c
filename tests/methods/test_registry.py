"""Methods by name: the registry, one's own class, an entry point, and a sentence for everything else."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from holotype.errors import InputError
from holotype.methods import METHODS, Method, find_method, plugin_names

OWN = """
from holotype.methods import Method

class Mine(Method):
    pass

a_function = print
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch) -> str:
    (tmp_path / "module_of_ones_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "module_of_ones_own"


def test_a_package_cannot_take_a_name_that_is_ours(monkeypatch):
    ours = [EntryPoint(name, "elsewhere:Mine", "holotype.methods") for name in ("rpc", "other")]
    monkeypatch.setattr("holotype.methods.registry.entry_points", lambda *, group, name=None: ours)
    assert plugin_names() == ["other"]


def test_every_key_leads_to_its_method():
    assert {"kmeans", "simgcd", "debgcd", "rpc"} <= set(METHODS)
    for name, cls in METHODS.items():
        assert find_method(name) is cls
        assert issubclass(cls, Method)
        assert dataclasses.is_dataclass(cls.Config)
        assert cls.presets["default"] == {}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_card_of_its_own(name):
    card = vars(METHODS[name])["card"]
    assert 1950 < card.year < 2100
    for words in (card.title, card.paper, card.line, *card.differs):
        assert words.strip() == words != ""
        assert "\n" not in words


def test_a_class_of_ones_own(own_module):
    assert find_method(f"{own_module}:Mine").__name__ == "Mine"


def test_an_entry_point_of_another_package(own_module, monkeypatch):
    entry = EntryPoint("mine", f"{own_module}:Mine", "holotype.methods")

    def installed(*, group, name="mine"):
        return [entry] if (group, name) == ("holotype.methods", "mine") else []

    monkeypatch.setattr("holotype.methods.registry.entry_points", installed)
    assert find_method("mine").__name__ == "Mine"
    assert plugin_names() == ["mine"]
    with pytest.raises(InputError, match=r"no method 'yours'; choose one of .*, rpc, mine, or"):
        find_method("yours")
    with pytest.raises(InputError, match=r"no method 'mien' \(did you mean mine\?\)"):
        find_method("mien")
    assert find_method("rpc") is METHODS["rpc"]  # a package cannot take a name that is ours


@pytest.mark.parametrize(("name", "close"), [("rcp", "rpc"), ("simgdc", "simgcd"), ("zzzzzz", None)])
def test_a_wrong_name_is_answered_with_the_names_there_are(name, close):
    with pytest.raises(InputError) as refused:
        find_method(name)
    sentence = str(refused.value)
    assert f"{name!r} (did you mean {close}?);" in sentence if close else f"{name!r};" in sentence
    assert ", ".join(METHODS) in sentence
    assert "package.module:Class" in sentence


@pytest.mark.parametrize("name", ["no.such.module:Mine", "holotype.methods:Nothing", ":Mine", ".mine:Mine"])
def test_a_place_where_nothing_is(name):
    with pytest.raises(InputError, match=r"cannot be imported.*package\.module:Class"):
        find_method(name)


def test_a_class_that_is_misspelt_is_answered_with_the_nearest_of_its_module(own_module):
    with pytest.raises(
        InputError, match=rf"no attribute 'Mien'\) \(did you mean {own_module}:Mine\?\); write"
    ):
        find_method(f"{own_module}:Mien")


@pytest.mark.parametrize("name", ["a_function", "__name__"])
def test_something_that_is_no_method(own_module, name):
    with pytest.raises(InputError, match="not a method"):
        find_method(f"{own_module}:{name}")


def test_the_default_preset_is_there_whether_a_method_names_it_or_not():
    from holotype.methods import Method

    class Mine(Method):
        presets = {"without": {"near": 0.0}}  # noqa: RUF012

    assert Mine.presets == {"default": {}, "without": {"near": 0.0}}
    assert Method.presets == {"default": {}}
    assert type("Child", (Mine,), {}).presets == Mine.presets


@pytest.mark.parametrize(
    ("name", "told"),
    [("rpc@reading", "(write rpc --preset reading)"), ("simgdc@as_run", "(did you mean simgcd?)")],
)
def test_a_preset_behind_the_name_is_told_apart(name, told):
    """Lists of methods take it there, and nothing else does."""
    with pytest.raises(InputError) as refused:
        find_method(name)
    assert f"There is no method {name!r} {told}; choose one of" in str(refused.value)
