"""The docstrings below the fields of a dataclass, which Python itself throws away: the help of every setting."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """Name of a field -> its docstring on one line; without those of classes whose source is not to be had."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        found |= dict(_own_docs(base))
    return found


def first_line(kind: type) -> str:
    """Of the docstring of a class; empty where it has none of its own."""
    doc = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    generated = doc.startswith(f"{kind.__name__}(")  # what @dataclass writes where nobody did
    return "" if generated else doc.split("\n")[0]


def _own_docs(kind: type) -> Iterator[tuple[str, str]]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # made at run time, or typed at a prompt
        return
    if not isinstance(tree, ast.ClassDef):
        return
    for before, after in pairwise(tree.body):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and (doc := _text(after))
        ):
            yield before.target.id, doc


def _text(node: ast.stmt) -> str:
    """Of a string that stands by itself."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""
