"""The methods by name, and which of them may be run. A new one touches two files: its own, and METHODS or WRAPPERS.

What a person types, or a program hands over, is their own word. What stands in model.json, in a file of settings or in
a study may come from a stranger: `package.module:Class` there needs `allow_code`.

Wrappers in front of a method, as in eagc+rpc, are made into one class. The order of names is canonical, so that a
composition has one name: that of WRAPPERS for our own, those of others behind them as they are written, the method
last.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeGuard

from holotype.errors import InputError
from holotype.methods.base import Card, Method, Wrapper
from holotype.methods.bia import BIA
from holotype.methods.dccl import DCCL
from holotype.methods.debgcd import DebGCD
from holotype.methods.eagc import EAGC
from holotype.methods.gcd import GCD
from holotype.methods.hyp import Hyp
from holotype.methods.kmeans import KMeans
from holotype.methods.promptcal import PromptCAL
from holotype.methods.protogcd import ProtoGCD
from holotype.methods.rpc import RPC
from holotype.methods.rs import RS
from holotype.methods.selex import SelEx
from holotype.methods.simgcd import SimGCD
from holotype.methods.sptnet import SPTNet
from holotype.methods.uno import UNO
from holotype.utils.text import suggest


@cache
def compose(name: str, parts: tuple[type[Method], ...], ours: tuple[type[Wrapper], ...]) -> type[Method]:
    """Return the class of a composition; raises InputError where it makes no sense.

    name: as it was written, a word for each part. ours: the wrappers of the registry, in their order.
    """
    words, (*wrappers, method) = name.split("+"), parts
    _check_kinds(name, words, parts)
    _check_order(name, words, wrappers, ours)
    made = method
    for word, wrapper in reversed([*zip(words, wrappers, strict=False)]):
        assert issubclass(wrapper, Wrapper)
        if why := wrapper.unfit(made):
            raise InputError(f"{name} makes no sense: {why}; leave out {word}.")
        made = _wrapped(wrapper, made)
    return made


def _check_kinds(name: str, words: Sequence[str], parts: Sequence[type[Method]]) -> None:
    *front, last = (issubclass(part, Wrapper) for part in parts)
    if last or not all(front):
        methods = [word for word, part in zip(words, parts, strict=True) if not issubclass(part, Wrapper)]
        one = (
            f"it has {len(methods)} ({' and '.join(methods)})"
            if len(methods) != 1
            else f"{methods[0]} stands before it"
        )
        raise InputError(f"{name} must end with its one method, as in eagc+rpc, and {one}.")


def _check_order(
    name: str, words: Sequence[str], wrappers: Sequence[type[Method]], ours: Sequence[type[Method]]
) -> None:
    if len(set(wrappers)) < len(wrappers):
        raise InputError(f"{name} names a wrapper twice; leave one out.")
    place = {wrapper: number for number, wrapper in enumerate(ours)}
    order = sorted(range(len(wrappers)), key=lambda i: place.get(wrappers[i], len(ours)))
    usual = "+".join([*(words[i] for i in order), words[-1]])
    if usual != name:
        raise InputError(f"{name} is called {usual}; write it so.")


def _wrapped(wrapper: type[Wrapper], method: type[Method]) -> type[Method]:
    parts = (wrapper, *(method.parts or (method,)))
    cards = [part.card for part in parts if part.card is not None]
    digests = [part.code_digest for part in parts if part.code_digest]
    made: type[Method] = type(
        "".join(part.__name__ for part in parts),
        (wrapper, method),
        {
            "__module__": __name__,
            "__doc__": f"{' + '.join(part.__name__ for part in parts)}.",
            "parts": parts,
            "Config": _config(wrapper, method),
            # each only ever grows, so that the sum tells every state of the parts
            "revision": sum(part.revision for part in parts),
            "recipes": dict(vars(method).get("recipes", {})),
            "card": _card(cards) if len(cards) == len(parts) else None,
        },
    )
    made.code_digest = "+".join(digests)
    return made


def _config(wrapper: type[Wrapper], method: type[Method]) -> type[Any]:
    """The settings of the method, and those of the wrapper as a group that bears its name."""
    group = wrapper.__name__.lower()
    field = (group, wrapper.Config, dataclasses.field(default_factory=wrapper.Config))
    config: Any = method.Config
    title = f"{wrapper.__name__}{config.__name__}"
    return dataclasses.make_dataclass(
        title, [field], bases=(config,), namespace={"__doc__": f"Settings of {title.removesuffix('Config')}."}
    )


def _card(cards: Sequence[Card]) -> Card:
    return Card(
        " + ".join(card.title for card in cards),
        "; ".join(card.paper for card in cards),
        max(card.year for card in cards),
        " ".join(card.line for card in cards),
        tuple(f"{card.title}: {point}" for card in cards for point in card.differs),
    )


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
    "selex": SelEx,
}
WRAPPERS: dict[str, type[Wrapper]] = {"eagc": EAGC, "bia": BIA, "hyp": Hyp}
"""What stands in front of a method, in the order of names: eagc+bia+rpc."""
_CLASSES: dict[str, type[Method]] = {}
"""Classes that somebody handed over in Python, by module and name; the newest of a name."""
PLUGINS = "holotype.methods"
"""Group of the entry points by which an installed package brings methods."""


def find_method(name: str) -> type[Method]:
    """Return a method by its key, by `package.module:Class`, or by an entry point of the group `holotype.methods`; a
    composition by its parts, as in eagc+rpc."""
    if "+" in name:
        return compose(name, tuple(map(_find_part, name.split("+"))), tuple(WRAPPERS.values()))
    found = _find_part(name)
    if issubclass(found, Wrapper):
        raise InputError(f"{name} stands in front of a method; write {name}+rpc, or another one.")
    return found


def _find_part(name: str) -> type[Method]:
    if name in METHODS or name in _CLASSES:
        return METHODS.get(name) or _CLASSES[name]
    if name in WRAPPERS:
        return WRAPPERS[name]
    if ":" in name:
        return _import_method(name)
    for entry in entry_points(group=PLUGINS, name=name):
        return _import_method(entry.value)
    there = [*METHODS, *WRAPPERS, *plugin_names()]
    method, at, preset = name.partition("@")  # as in lists of methods
    near = f" (write {method} --preset {preset})" if at and method in there else suggest(method, there)
    raise InputError(
        f"There is no method {name!r}{near}; choose one of {', '.join(there)}, "
        "or name one of your own as package.module:Class."
    )


def method_name(method: str | type[Method]) -> str:
    """Return the name of a method; a class, as of a notebook, is known by its own from here on in this process."""
    if isinstance(method, str):
        return method
    if not _is_method(method):
        what = f"An object of {type(method).__name__}" if isinstance(method, Method) else repr(method)
        raise InputError(f"{what} is neither the name of a method nor a subclass of holotype.Method.")
    for name, kind in METHODS.items():
        if kind is method:
            return name
    name = f"{method.__module__}:{method.__name__}"
    _CLASSES[name] = _constructible(method)
    return name


def _constructible(method: type[Method]) -> type[Method]:
    """The method; InputError where it cannot be made as every method is."""
    try:
        inspect.signature(method).bind(None, None)
    except TypeError as error:
        raise InputError(f"{method.__name__}.__init__ must take (config, task): {error}.") from error
    return method


def is_imported(name: str) -> bool:
    """Return whether package.module:Class, or each part of such a composition, is here without running code."""
    parts = [part for part in name.split("+") if ":" in part]
    return all(part in _CLASSES or part.partition(":")[0] in sys.modules for part in parts)


def plugin_names() -> list[str]:
    """List the methods that installed packages bring; a name that is ours stays ours."""
    ours = METHODS.keys() | WRAPPERS.keys()
    return sorted({entry.name for entry in entry_points(group=PLUGINS)} - ours)


def _import_method(name: str) -> type[Method]:
    module_name, _, class_name = name.partition(":")
    hint = ""
    try:
        module = importlib.import_module(module_name)
        methods = [key for key, value in vars(module).items() if _is_method(value)]
        hint = suggest(name, [f"{module_name}:{key}" for key in methods])
        found = getattr(module, class_name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # TypeError: a relative name
        raise InputError(
            f"The method {name!r} cannot be imported ({error}){hint}; "
            "write it as package.module:Class, with the package installed or on PYTHONPATH."
        ) from error
    if not _is_method(found):
        raise InputError(f"{name!r} is not a method: it must be a subclass of holotype.methods.Method.")
    return _constructible(found)


def _is_method(value: object) -> TypeGuard[type[Method]]:
    return isinstance(value, type) and issubclass(value, Method)


_code_is_allowed = False


@contextmanager
def allow_code(allowed: bool = True) -> Iterator[None]:
    """Within the block, files may name methods as `package.module:Class`: whoever wrote them is trusted."""
    global _code_is_allowed
    before, _code_is_allowed = _code_is_allowed, allowed
    try:
        yield
    finally:
        _code_is_allowed = before


def check_code_allowed(name: str, where: Path | str) -> str:
    """The name of a method that stands in a file, before it is looked up: InputError where that would run code of
    whoever wrote the file. Names of ours and of installed packages are always fine; so are classes of this process."""
    if ":" not in name or _code_is_allowed or name in _CLASSES:
        return name
    module, _, kind = name.partition(":")
    raise InputError(
        f"{where} names the method {name!r}, so the module {module!r} would be imported and its {kind!r} run; "
        "add --allow-code (in Python: with holotype.methods.allow_code()) if you trust whoever wrote it."
    )
