"""The public names: one list, typed for checkers, and costing nothing before they are used."""

import ast
import importlib
from pathlib import Path

import pytest

import holotype

TREE = ast.parse(Path(holotype.__file__).read_text(encoding="utf-8"))


def typed_imports() -> dict[str, str]:
    """Name and module of what stands under `if TYPE_CHECKING:`."""
    blocks = [node for node in TREE.body if isinstance(node, ast.If)]
    (block,) = [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]
    aliases = [(alias, node.module) for node in block.body for alias in node.names]
    # `Name as Name` says to checkers that the name is handed on, whatever their settings
    assert all(alias.asname == alias.name for alias, _ in aliases)
    return {alias.name: str(module) for alias, module in aliases}


def test_what_checkers_see_is_what_there_is():
    assert typed_imports() == holotype._HOME
    assert {*holotype._HOME, "__version__"} == set(holotype.__all__) == set(dir(holotype))
    for name, module in typed_imports().items():
        assert getattr(holotype, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="no attribute 'discovr'"):
        holotype.discovr  # noqa: B018


def test_checkers_do_not_take_a_misspelt_name_for_public():
    """A `__getattr__` that they can see would make every name of the package valid, and of no type."""
    for node in TREE.body:
        assert not (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
        if isinstance(node, ast.If) and "__getattr__" in ast.unparse(node):
            assert ast.unparse(node.test) == "not TYPE_CHECKING"
    assert (Path(holotype.__file__).parent / "py.typed").is_file()


def test_names_that_users_were_promised():
    words = """Discoverer Discovery Category METHODS Method Table Task Batch Stage Views InputError Experiment
        default_experiment resolve train bench Record run_experiment discover load load_table __version__"""
    assert set(words.split()) <= set(holotype.__all__)
    folder = Path(holotype.__file__).parent  # a module of the same name would hide the function
    assert not {path.stem for path in folder.iterdir() if path.name != "__pycache__"} & set(holotype.__all__)
