"""The public names, and that importing them costs nothing before they are used."""

import subprocess
import sys

import pytest

import holotype


def test_every_public_name_is_there():
    assert set(holotype.PUBLIC) | {"__version__"} == set(holotype.__all__) == set(dir(holotype))
    for name in holotype.__all__:
        assert getattr(holotype, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'discovr'"):
        holotype.discovr  # noqa: B018


def test_no_module_takes_the_place_of_a_public_name():
    """A module of the same name would hide the function as soon as somebody imports it."""
    for name, module in holotype.PUBLIC.items():
        assert module != f"holotype.{name}"


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, holotype; print({'torch', 'numpy', 'pandas', 'timm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
