"""Methods by name: the registry, one's own class, an entry point, and a sentence for everything else."""

from importlib.metadata import EntryPoint

import pytest

from holotype.errors import InputError
from holotype.methods import METHODS, Card, Method, find_method, plugin_names

OWN = "from holotype.methods import Method\nclass Mine(Method): pass\na_function = print\n"


@pytest.fixture
def own_module(tmp_path, monkeypatch) -> str:
    (tmp_path / "module_of_ones_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "module_of_ones_own"


def test_a_card_is_read_from_the_docstring():
    class Mine(Method):
        """Heads.

        Title: Mine
        Paper: Ada: A Title: with a colon,
            on two lines. Journal 2024
        Summary: What it does.
        Differs:
        - One - thing
          in two lines.
        - Another.
        """

    paper = "Ada: A Title: with a colon, on two lines. Journal 2024"
    assert Mine.card == Card("Mine", paper, 2024, "What it does.", ("One - thing in two lines.", "Another."))
    assert type("Silent", (Method,), {}).card is None


def test_a_class_of_ones_own_and_an_entry_point_of_another_package(own_module, monkeypatch):
    assert find_method(f"{own_module}:Mine").__name__ == "Mine"
    entries = [EntryPoint(name, f"{own_module}:Mine", "holotype.methods") for name in ("rpc", "mine")]

    def installed(*, group, name=None):
        return [entry for entry in entries if group == entry.group and name in (None, entry.name)]

    monkeypatch.setattr("holotype.methods.registry.entry_points", installed)
    assert find_method("mine").__name__ == "Mine"
    assert plugin_names() == ["mine"]
    assert find_method("rpc") is METHODS["rpc"]  # a package cannot take a name that is ours
    with pytest.raises(InputError, match=r"no method 'mien' \(did you mean mine\?\); .*, rpc, .*, mine, or"):
        find_method("mien")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rcp", " (did you mean rpc?)"),
        ("zzzzzz", ""),
        ("rpc@reading", " (write rpc --preset reading)"),
        ("simgdc@as_run", " (did you mean simgcd?)"),
    ],
)
def test_a_wrong_name_is_answered_with_the_names_there_are(name, told):
    with pytest.raises(InputError) as refused:
        find_method(name)
    assert f"There is no method {name!r}{told}; choose one of {', '.join(METHODS)}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.such.module:Mine", "cannot be imported.*package"),
        (".mine:Mine", "cannot be imported"),
        ("module_of_ones_own:Mien", r"did you mean module_of_ones_own:Mine\?"),
        ("module_of_ones_own:a_function", "not a method"),
        ("module_of_ones_own:__name__", "not a method"),
    ],
)
def test_a_place_where_no_method_is(own_module, name, said):
    with pytest.raises(InputError, match=said):
        find_method(name)


def test_the_default_preset_is_there_whether_a_method_names_it_or_not():
    mine = type("Mine", (Method,), {"presets": {"without": {"near": 0.0}}})
    assert mine.presets == type("Child", (mine,), {}).presets == {"default": {}, "without": {"near": 0.0}}
    assert Method.presets == {"default": {}}
