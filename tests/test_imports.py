"""The order of the house: a folder imports from those below it and never from those above, typing imports included."""

from __future__ import annotations

import ast
from pathlib import Path

import holotype

PACKAGE = Path(holotype.__file__).parent
LADDER = (
    "errors",
    "config",
    "utils",
    "data",
    "losses",
    "models",
    "clustering",
    "methods",
    "training",
    "embeddings",
    "results",
    "runs",
    "report",
    "export",
    "discovery",
    "studio",
    "cli",
)
"""From the ground up. The root's own modules stand on top: they hand out what lies below."""
ROOT = {"__init__", "__main__", "errors"}


def room(module: str) -> str:
    """`holotype.data.table` -> `data`."""
    return module.split(".")[1] if "." in module else "__init__"


def imports(file: Path) -> list[tuple[int, str]]:
    """Line and module of every import of the package's own modules, wherever it stands in the file."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            own = node.module == "holotype"
            names = [f"holotype.{alias.name}" for alias in node.names] if own else [node.module]
        found += [(node.lineno, name) for name in names if name.split(".")[0] == "holotype"]
    return found


def test_the_root_is_nearly_empty() -> None:
    assert {file.stem for file in PACKAGE.glob("*.py")} == ROOT
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} == set(LADDER) - {
        "errors"
    }


def test_imports_go_down_only() -> None:
    upward = []
    for file in sorted(PACKAGE.rglob("*.py")):
        here = file.relative_to(PACKAGE).with_suffix("").parts[0]
        if here in ROOT - {"errors"}:
            continue
        for line, module in imports(file):
            to = room(module)
            if to in ("__version__", "__init__"):  # the version is a word, and asks nothing of anybody
                continue
            if LADDER.index(to) > LADDER.index(here):
                upward.append(f"{file.relative_to(PACKAGE)}:{line} imports {module}")
    assert upward == []


def test_no_file_imports_a_file_that_imports_it() -> None:
    """Within a folder, too: a circle means that two files are one, or that something stands in the wrong one."""
    edges: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("holotype", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        edges[name] = {module for _, module in imports(file)}
    circles = [
        f"{one} and {other}"
        for one in edges
        for other in edges[one]
        if one in edges.get(other, ()) and one < other
    ]
    assert circles == []
