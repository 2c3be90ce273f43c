"""The public names: one list, typed for checkers, and costing nothing before they are used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import holotype

SOURCE = Path(holotype.__file__).read_text(encoding="utf-8")


def typed_imports() -> dict[str, str]:
    """Name and module of what stands under `if TYPE_CHECKING:`."""
    (block,) = (
        node
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom), ast.unparse(node)
        for alias in node.names:
            # `Name as Name` says to checkers that the name is handed on, whatever their settings
            assert alias.asname == alias.name, ast.unparse(node)
            found[alias.name] = str(node.module)
    return found


def test_what_checkers_see_is_what_there_is():
    assert typed_imports() == holotype._HOME
    assert [*holotype._HOME, "__version__"] == sorted(
        holotype.__all__, key=lambda name: name == "__version__"
    )
    assert set(dir(holotype)) == set(holotype.__all__)


def test_every_public_name_is_there_and_typed():
    for name, module in typed_imports().items():
        assert getattr(holotype, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="no attribute 'discovr'"):
        holotype.discovr  # noqa: B018


def test_checkers_do_not_take_a_misspelt_name_for_public():
    """A `__getattr__` that they can see would make every name of the package valid, and of no type."""
    for node in ast.parse(SOURCE).body:
        assert not (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
        if isinstance(node, ast.If) and "__getattr__" in ast.unparse(node):
            assert ast.unparse(node.test) == "not TYPE_CHECKING"
    assert (Path(holotype.__file__).parent / "py.typed").is_file()


def test_names_that_users_were_promised():
    words = """Discoverer Discovery Category METHODS Method Table Task Batch Stage Views InputError Experiment
        default_experiment resolve train bench Record run_experiment discover load load_table __version__"""
    assert set(words.split()) <= set(holotype.__all__)


def test_no_module_takes_the_place_of_a_public_name():
    """A module of the same name would hide the function as soon as somebody imports it."""
    folder = Path(holotype.__file__).parent
    assert not {path.stem for path in folder.iterdir() if path.name != "__pycache__"} & set(holotype.__all__)
    assert holotype.train.__name__ == "train"
    assert holotype.train.__name__ == "train"  # also after it has been imported


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, holotype; print({'torch', 'numpy', 'pandas', 'timm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
