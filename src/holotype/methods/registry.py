"""Allow or refuse plug-in methods that a file names as `package.module:Class`.

What a person types, or a program hands over, is their own word. What stands in model.json, in a file of settings or in
a study may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holotype.errors import InputError

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
    whoever wrote the file. Names of ours and of installed packages are always fine."""
    if ":" not in name or _code_is_allowed:
        return name
    module, _, kind = name.partition(":")
    raise InputError(
        f"{where} names the method {name!r}, so the module {module!r} would be imported and its {kind!r} run; "
        "add --allow-code (in Python: with holotype.methods.allow_code()) if you trust whoever wrote it."
    )
