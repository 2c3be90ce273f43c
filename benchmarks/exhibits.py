"""The tables of the documents, made of nothing but study files and the results of their runs, and their drawings.

    python benchmarks/exhibits.py            rewrites every block, and draws every picture of boxes and arrows
    python benchmarks/exhibits.py --check    says which of them are stale, and changes nothing
    python benchmarks/exhibits.py FILE ...   those of some documents alone

A block of README.md or of a document in docs/ stands between two lines of its own:

    <!-- table: STUDY [DATASET] [rows=a,b,c] [seeds=0-4,7] [kind=study|comparison|progress|ablation|seeds|each] -->
    <!-- table: NAME kind=overhead|backbones|card|methods -->
    <!-- end of table -->

STUDY names experiments/STUDY.yaml, whose rows select their records in experiments/results. kind=seeds: one row's gain
on the reference over several sets of seeds, seeds=0-1;2-9. kind=each: the score of every seed in place of their mean.
kind=progress: a comparison with p, for a study with the rows kmeans and simgcd. NAME: for kind=overhead and
kind=backbones the folder in experiments/results with what benchmarks/overhead.py and benchmarks/backbones.py measured,
for kind=card a method; kind=methods lists them all. Which pictures are
drawn is in benchmarks/pictures.py; each is drawn with the document that shows it.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backbones_table import backbones_table
from method_cards import card_page, methods_table
from overhead_table import overhead_table
from pictures import DRAWN, shown_in
from script import one_sentence
from study_page import KINDS, Choice
from study_table import study_table

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.runs.records import Records

TOP = Path(__file__).resolve().parent.parent
BEGIN = re.compile(r"^<!-- table:(.*)-->[ \t]*$", re.MULTILINE)
END = re.compile(r"^<!-- end of table -->[ \t]*$", re.MULTILINE)
READING = "docs/studies/reading.md"
OTHERS = ("overhead", "backbones", "card", "methods")
"""Kinds of tables that are of no study."""


@dataclass(frozen=True)
class Block:
    """A place for a table."""

    mark: str
    """The line that opens it."""
    choice: Choice


def parse(mark: str, words: Sequence[str], where: str) -> Block:
    """The words of a mark; where: for the message."""
    plain = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    kind = options.pop("kind", "study")
    rows = options.pop("rows", None)
    seeds = tuple(read_seeds(group, where) for group in options.pop("seeds", "").split(";") if group)
    if not 1 <= len(plain) <= 2 or options or kind not in (*KINDS, *OTHERS):
        raise InputError(
            f"{where} has the mark {mark!r}, which cannot be read; write "
            f"<!-- table: STUDY [DATASET] [rows=a,b,c] [seeds=0-4] [kind={'|'.join((*KINDS, *OTHERS))}] -->."
        )
    dataset = plain[1] if len(plain) > 1 else None
    chosen = tuple(rows.split(",")) if rows else None
    return Block(mark, Choice(plain[0], dataset, chosen, kind, seeds, link_from(where)))


def link_from(where: str) -> str:
    """How a document links to the page that says how tables are read."""
    return posixpath.relpath(READING, posixpath.dirname(where) or ".")


def read_seeds(text: str, where: str) -> tuple[int, ...]:
    """`0-4,7` -> 0, 1, 2, 3, 4, 7."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not first.isdigit() or not last.isdigit() or int(last) < int(first):
            raise InputError(f"{where} has seeds={text}, which cannot be read; write seeds=0-4,7.")
        found += range(int(first), int(last) + 1)
    return tuple(found)


def split(text: str, where: str) -> Iterator[str | tuple[Block, str]]:
    """A document as plain text and blocks, each block with what stands in it now."""
    position = 0
    for begin in BEGIN.finditer(text):
        end, following = END.search(text, begin.end()), BEGIN.search(text, begin.end())
        if end is None or (following and following.start() < end.start()):
            raise InputError(
                f"{where} has no line <!-- end of table --> after {begin[0].strip()!r}; add one."
            )
        yield text[position : begin.start()]
        yield parse(begin[0].strip(), begin[1].split(), where), text[begin.end() : end.start()]
        position = end.end()
    yield text[position:]


def rewrite(text: str, where: str, build: Callable[[Choice], str]) -> tuple[str, list[str]]:
    """The document with its blocks made anew, and the marks of those that changed."""
    parts, stale = [], []
    for part in split(text, where):
        if isinstance(part, str):
            parts.append(part)
            continue
        block, old = part
        new = f"\n\n{build(block.choice)}\n\n"
        parts.append(f"{block.mark}{new}<!-- end of table -->")
        if new != old:
            stale.append(block.mark)
    return "".join(parts), stale


def build_table(choice: Choice, top: Path, results: Records) -> str:
    if choice.kind == "overhead":
        return overhead_table(results.folder / choice.study)
    if choice.kind == "backbones":
        return backbones_table(results.folder / choice.study)
    if choice.kind == "card":
        return card_page(choice.study, top, results)
    if choice.kind == "methods":
        return methods_table()
    return study_table(choice, top, results)


def documents(top: Path, wanted: Sequence[str] = ()) -> list[Path]:
    """All that may have blocks, or those that are wanted, as paths from the top."""
    every = [path for path in (top / "README.md", *sorted((top / "docs").rglob("*.md"))) if path.is_file()]
    known = {path.relative_to(top).as_posix() for path in every}
    for name in wanted:
        if name not in known:
            raise InputError(f"There is no document {name}; name README.md, or one in docs/ from the top.")
    return [path for path in every if not wanted or path.relative_to(top).as_posix() in wanted]


@one_sentence
def main(words: Sequence[str] | None = None, top: Path = TOP) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if a block or a picture is stale"
    )
    parser.add_argument("file", nargs="*", help="documents, as in docs/results.md; all of them by default")
    given = parser.parse_args(words)
    found, results = [], Records(top / "experiments" / "results")
    for path in documents(top, given.file):
        name = path.relative_to(top).as_posix()
        old = path.read_text(encoding="utf-8")
        new, stale = rewrite(old, name, lambda choice: build_table(choice, top, results))
        found += [f"{name} ({mark})" for mark in stale]
        if stale and not given.check:
            write_text(path, new)
        for picture in shown_in(new, name):
            drawn = DRAWN[picture]()
            if not (top / picture).is_file() or (top / picture).read_text(encoding="utf-8") != drawn:
                found.append(picture)
                if not given.check:
                    write_text(top / picture, drawn)
    if given.check and found:
        print(f"Stale: {', '.join(found)}; run python benchmarks/exhibits.py.", file=sys.stderr)
        return 1
    for line in found:
        print(f"rewrote {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
