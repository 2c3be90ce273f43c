"""Check that a commit renames and moves code, and does nothing else: `python tools/check_rename.py OLD NEW --map FILE`.

The map is {"old": "new"} of names ("Shelf": "Resources") and dotted modules ("pkg.old": "pkg.new"). The statements at
the top of all Python files of revision OLD, with the map applied, must be those of NEW, in any file and order. Imports
and `__all__` are left out, and so are docstrings and other text that stands by itself (`--docstrings` compares it). Of
a statement that is no function or class, a copy in another file may go: merged files need one. Exit code 1, and a
line for each difference.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NAMES = ("id", "attr", "name", "arg", "asname", "rest", "kwd_attrs", "names")
"""Fields of nodes that hold identifiers."""
Renames = Mapping[str, str]
Statement = tuple[str, bool]
"""Dump of a statement, and whether it is a definition."""


class Renamer(ast.NodeTransformer):
    """Applies a map, and drops imports, `__all__` and text."""

    def __init__(self, renames: Renames, docstrings: bool) -> None:
        self.renames, self.docstrings = renames, docstrings

    def renamed(self, name: str) -> str:
        return self.renames.get(name, name)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in NAMES:
            value = getattr(node, field, None)
            if isinstance(value, str):
                setattr(node, field, self.renamed(value))
            elif isinstance(value, list) and all(isinstance(one, str) for one in value):
                setattr(node, field, [self.renamed(one) for one in value])
        return node

    def visit_Import(self, node: ast.Import) -> None:
        """Drop it."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Drop it."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        exported = any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        return None if exported else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text and not self.docstrings else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        empty = all(isinstance(one, ast.Import | ast.ImportFrom) for one in [*node.body, *node.orelse])
        return None if empty else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """A string of a name or a dotted path is taken for what it names: the longest part that is in the map."""
        if isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value):
            for old in sorted(self.renames, key=len, reverse=True):
                node.value = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", self.renames[old], node.value)
                if "." not in old:
                    node.value = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", self.renames[old], node.value)
        return node


def imported_modules(tree: ast.Module, renames: Renames) -> dict[str, str]:
    """Renamed modules that a file calls by their last name: `from pkg import old`, then `old.f()`."""
    found = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if (new := renames.get(f"{node.module}.{alias.name}")) and not alias.asname:
                found[alias.name] = new.rpartition(".")[2]
    return found


def statements(
    files: Mapping[str, str], renames: Renames, docstrings: bool = False
) -> dict[Statement, list[str]]:
    """Every statement at the top of files (path -> text), and where it stands.

    >>> old, new = {"a.py": "import re\\ndef f(x):\\n  return x"}, {"b.py": "def g(x):\\n  return x"}
    >>> statements(old, {"f": "g"}).keys() == statements(new, {}).keys()
    True
    """
    found: dict[Statement, list[str]] = {}
    for path, text in files.items():
        tree = ast.parse(text, path)
        renamer = Renamer({**renames, **imported_modules(tree, renames)}, docstrings)
        for node in tree.body:
            line = getattr(node, "lineno", 0)
            if (kept := renamer.visit(node)) is not None:
                place = f"{path}:{line} {getattr(kept, 'name', '')}".rstrip()
                found.setdefault((ast.dump(kept), isinstance(kept, DEFINITIONS)), []).append(place)
    return found


def differences(
    old: Mapping[str, str], new: Mapping[str, str], renames: Renames, docstrings: bool = False
) -> list[str]:
    """A line for every statement that only one side has."""
    before, after = statements(old, renames, docstrings), statements(new, {}, docstrings)
    lines = []
    for sign, mine, theirs in (("-", before, after), ("+", after, before)):
        for key, places in mine.items():
            fewer = len(places) - len(theirs.get(key, ())) if key[1] else len(places) * (key not in theirs)
            lines += [f"{sign} {place}" for place in places[: max(fewer, 0)]]
    return lines


def python_files(revision: str) -> dict[str, str]:
    """Path -> text of the Python files of a revision."""
    packed = subprocess.run(["git", "archive", revision], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [one for one in archive if one.isfile() and one.name.endswith(".py")]
        return {one.name: archive.extractfile(one).read().decode() for one in members}  # type: ignore[union-attr]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--map", help="JSON file of renames")
    parser.add_argument("--docstrings", action="store_true", help="compare docstrings too")
    args = parser.parse_args()
    renames = json.loads(Path(args.map).read_text(encoding="utf-8")) if args.map else {}
    lines = differences(python_files(args.old), python_files(args.new), renames, args.docstrings)
    print("\n".join(lines) or "nothing but renames")
    counts = Counter(line[0] for line in lines)
    print(f"{counts['-']} statements only in {args.old}, {counts['+']} only in {args.new}", file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
