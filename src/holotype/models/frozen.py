"""A module that is called and never registered: whoever keeps it as an attribute neither trains nor saves it."""

from __future__ import annotations

from typing import Any

from torch import nn


class Unregistered:
    """Stands for a module: it is called like it and has its attributes, but is no submodule of its owner."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.module(*given, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # a copy in the making has none yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Unregistered:
        """Everybody shares the one module."""
        return self


def registered_count(owner: nn.Module, module: nn.Module) -> bool:
    """Whether `owner` would train or save a parameter of `module`."""
    theirs = {id(parameter) for parameter in module.parameters()}
    return any(id(parameter) in theirs for parameter in owner.parameters())
