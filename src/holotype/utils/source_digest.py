"""The digest of a plug-in's source: its file, and what it imports from beside it.

Beside it lies what is found from the folder that the plug-in's top package or module was imported from; in
site-packages, where every package lies beside every other, its own package alone. Files are read and never imported.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

OWN = ("holotype", "torch")
"""Whose classes have no digest. torch.export makes a subclass of a module at each look at it."""
INSTALLED = ("site-packages", "dist-packages")
Name = tuple[str, ...]
"""A dotted name in its parts."""


def source_digest(kind: type) -> str:
    """Sixteen characters for the code of a class, "" for a class of this package or of torch. To be asked where the
    class is made: later, its files may be newer than what was imported."""
    if kind.__module__.split(".")[0] in OWN:
        return ""
    file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    content = _contents(kind.__module__, file) if file.is_file() else _cells(kind)
    digest = hashlib.sha256()
    for name in sorted(content):
        digest.update(f"{name}\0{len(content[name])}\0".encode() + content[name])
    return digest.hexdigest()[:16]


def _contents(module: str, file: Path) -> dict[str, bytes]:
    """Every file by its path from the folder that the module was imported from."""
    file, name = file.absolute(), tuple(module.split("."))
    folder = file.parent.parent if file.name == "__init__.py" else file.parent
    package = name[:-1]
    if folder.parts[len(folder.parts) - len(package) :] != package:
        package = ()  # loaded under a name that is not its path
    root = folder.parents[len(package) - 1] if package else folder
    top = name[0] if root.name in INSTALLED else None
    found: dict[str, bytes] = {}
    waiting = [file, *_files(root, name)]
    while waiting:
        path = waiting.pop()
        place = path.relative_to(root)
        if place.as_posix() in found:
            continue
        found[place.as_posix()] = content = path.read_bytes()
        for imported in _imports(content, place.parent.parts):
            if imported and imported[0] not in OWN and top in (None, imported[0]):
                waiting += _files(root, imported)
    return found


def _files(root: Path, name: Name) -> list[Path]:
    """The files that an import of `name` runs, as far as they lie below `root`: those of the packages around it too."""
    found = []
    for end in range(1, len(name) + 1):
        path = root.joinpath(*name[:end])
        here = (path / "__init__.py", path.with_name(f"{path.name}.py"))
        found += [one for one in here if one.is_file()][:1]
    return found


def _imports(source: bytes, package: Name) -> Iterator[Name]:
    """Everything that a file imports, those inside functions too. package: the one that the file lies in."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # compiled, or not of this version
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield base
            yield from ((*base, alias.name) for alias in node.names)  # may be a module


def _cells(kind: type) -> dict[str, bytes]:
    """The cells of a notebook that made the class and those it is built on. Code that cannot be read is never taken for
    other code."""
    made = [one for part in kind.__mro__ if part.__module__ == kind.__module__ for one in vars(part).values()]
    cells = {one.__code__.co_filename for one in made if hasattr(one, "__code__")}
    source = sorted("".join(linecache.getlines(cell)) for cell in cells)
    return {"": ("".join(source) or uuid.uuid4().hex).encode()}
