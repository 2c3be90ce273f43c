"""The methods by name. A new one touches two files: its own, and the dictionary below."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from types import ModuleType

from holotype.errors import InputError
from holotype.methods.base import (
    Batch,
    Card,
    Images,
    LRSchedule,
    Method,
    Now,
    ParamGroup,
    Prediction,
    Progress,
    Stage,
    Task,
    Views,
)
from holotype.methods.dccl import DCCL
from holotype.methods.debgcd import DebGCD
from holotype.methods.gcd import GCD
from holotype.methods.kmeans import KMeans
from holotype.methods.promptcal import PromptCAL
from holotype.methods.protogcd import ProtoGCD
from holotype.methods.registry import allow_code, check_code_allowed
from holotype.methods.rpc import RPC
from holotype.methods.rs import RS
from holotype.methods.simgcd import SimGCD
from holotype.methods.sptnet import SPTNet
from holotype.methods.uno import UNO
from holotype.utils.text import suggest

METHODS: dict[str, type[Method]] = {
    "kmeans": KMeans,
    "rs": RS,
    "uno": UNO,
    "gcd": GCD,
    "promptcal": PromptCAL,
    "dccl": DCCL,
    "simgcd": SimGCD,
    "sptnet": SPTNet,
    "protogcd": ProtoGCD,
    "debgcd": DebGCD,
    "rpc": RPC,
}
PLUGINS = "holotype.methods"
"""Group of the entry points by which an installed package brings methods."""


def find_method(name: str) -> type[Method]:
    """A method by its key, by `package.module:Class`, or by an entry point of the group `holotype.methods`."""
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return _import_method(name)
    for entry in entry_points(group=PLUGINS, name=name):
        return _import_method(entry.value)
    there = [*METHODS, *plugin_names()]
    method, at, preset = name.partition("@")  # as in lists of methods
    near = f" (write {method} --preset {preset})" if at and method in there else suggest(method, there)
    raise InputError(
        f"There is no method {name!r}{near}; choose one of {', '.join(there)}, "
        "or name one of your own as package.module:Class."
    )


def plugin_names() -> list[str]:
    """Names of the methods that installed packages bring; a name that is ours stays ours."""
    return sorted({entry.name for entry in entry_points(group=PLUGINS)} - METHODS.keys())


def _import_method(name: str) -> type[Method]:
    module_name, _, class_name = name.partition(":")
    hint = ""
    try:
        module = importlib.import_module(module_name)
        hint = suggest(name, [f"{module_name}:{one}" for one in _methods_in(module)])
        found = getattr(module, class_name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # TypeError: a relative name
        raise InputError(
            f"The method {name!r} cannot be imported ({error}){hint}; "
            "write it as package.module:Class, with the package installed or on PYTHONPATH."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"{name!r} is not a method: it must be a subclass of holotype.methods.Method.")
    return found


def _methods_in(module: ModuleType) -> list[str]:
    """Names of the classes of a module that are methods."""
    return [key for key, one in vars(module).items() if isinstance(one, type) and issubclass(one, Method)]


__all__ = [
    "METHODS",
    "Batch",
    "Card",
    "Images",
    "LRSchedule",
    "Method",
    "Now",
    "ParamGroup",
    "Prediction",
    "Progress",
    "Stage",
    "Task",
    "Views",
    "allow_code",
    "check_code_allowed",
    "find_method",
    "plugin_names",
]
