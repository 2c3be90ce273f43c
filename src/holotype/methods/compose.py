"""Compositions: wrappers in front of a method, as in eagc+rpc, made into one class.

The order of names is canonical, so that a composition has one name: that of the registry for our own wrappers, those of
others behind them as they are written, the method last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

from holotype.errors import InputError
from holotype.methods.base import Card, Method, Wrapper


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
