"""Pages as they read on the documentation site: links that leave docs/, and figures that a line must not part.

mkdocs knows the files of `docs_dir` alone. Pages are read in the repository as well, where `../CONTRIBUTING.md` leads
somewhere; on the site, which may lie on a laptop without the repository, it must not lead nowhere. So two files outside
docs/ become pages, and links to the others become their names.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Path in the repository -> page of the site. docs/ has no file of such a name."""
STANDS_FOR = PAGES | {"README.md": "index.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
FIGURE = re.compile(r"\d ± \d|\(-?\d+\.\d+ to -?\d+\.\d+\)")
"""57.5 ± 0.8, and the interval (-0.2 to 1.1)."""
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages whose text lies at the top of the repository."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (TOP / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=moved(text, source, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page of docs/ that leave it."""
    name = page.file.src_uri
    return markdown if name in PAGES.values() else moved(markdown, f"docs/{name}", name)


def moved(text: str, source: str, page: str) -> str:
    """The text of a file of the repository as it reads on the site, blocks of code left alone."""
    return "".join(
        piece if piece.startswith("```") else whole(LINK.sub(lambda found: link(found, source, page), piece))
        for piece in FENCE.split(text)
    )


def whole(text: str) -> str:
    """Figures with spaces that do not break: in a narrow cell of a table each stays on one line."""
    return FIGURE.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def link(found: re.Match[str], source: str, page: str) -> str:
    """One link: to a page where the site has it, else the words and the path that it names in the repository."""
    words, target = found[1], found[2]
    path, _, anchor = target.partition("#")
    if not path or "://" in path:
        return found[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (TOP / file).exists():
        return found[0]  # mkdocs says which page it stands on
    there = file.removeprefix("docs/") if file.startswith("docs/") else STANDS_FOR.get(file)
    if there is None:
        return f"{words} (`{file}` in the repository)" if words.strip("`") != file else f"`{file}`"
    relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
    anchor = "" if file == "README.md" else anchor
    return f"[{words}]({relative}{'#' * bool(anchor)}{anchor})"
