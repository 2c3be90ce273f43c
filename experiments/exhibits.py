"""The tables of the documents, made of nothing but study files and the records of their runs.

    python experiments/exhibits.py            rewrites every block
    python experiments/exhibits.py --check    says which of them are stale, and changes nothing
    python experiments/exhibits.py FILE ...   those of some documents alone
    python experiments/exhibits.py --pairs cub-exact:rpc cub-exact:debgcd
    python experiments/exhibits.py --pairs cub-exact:rpc cub:rpc cub-exact:debgcd cub:debgcd

A block of README.md or of a document in docs/ stands between two lines of its own:

    <!-- table: STUDY [DATASET] [rows=a,b,c] [seeds=0-4,7] [kind=study|comparison|progress|ablation|seeds|each] -->
    <!-- table: NAME kind=backbones|card|methods -->
    <!-- end of table -->

STUDY names experiments/STUDY.yaml, whose rows select their records in experiments/results. kind=seeds: one row's gain
on the reference over several sets of seeds, seeds=0-1;2-9. kind=each: the score of every seed in place of their mean.
kind=progress: a comparison with p, for a study with the rows kmeans and simgcd. NAME: for kind=backbones the line of
experiments/results/backbones.jsonl that benchmarks/backbones.py wrote, for kind=card a method; kind=methods lists them
all.

--pairs: how far is one row of a study above another, in pairs of the same seed, with its 95 % interval? Two rows: the
first minus the second. Four: the difference of the first two minus that of the last two. A row that was run in several
studies, other seeds in each, is named with all of them, separated by commas. Seeds that only some rows have are left
out, and told.
"""

from __future__ import annotations

import math
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness import interval_of, one_sentence, read_record, script_parser, table
from holotype.config.parse import value_text
from holotype.errors import InputError
from holotype.methods import METHODS, WRAPPERS
from holotype.runs.method_info import (
    MethodInfo,
    method_info,
    paper_docstring,
    recipe_title,
    split_docstring,
    stage_line,
)
from holotype.runs.record import Record, Records
from holotype.runs.study import read_study, select_records, select_rows_by_name
from holotype.runs.tables import (
    FLOOR,
    FOOTNOTE_MARK,
    SCORE_COLUMNS,
    PublishedProgress,
    Row,
    make_row,
    mean_and_std,
    published_progress,
)
from holotype.utils.atomic import write_text
from study_tables import (
    KINDS,
    Choice,
    ends_of,
    name_of,
    own_cell,
    printed_on,
    progress_of,
    published_cell,
    study_table,
)

TOP = Path(__file__).resolve().parent.parent
BEGIN = re.compile(r"^<!-- table:(.*)-->[ \t]*$", re.MULTILINE)
END = re.compile(r"^<!-- end of table -->[ \t]*$", re.MULTILINE)
READING = "docs/studies/reading.md"
OTHERS = ("backbones", "card", "methods")
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
    if choice.kind == "backbones":
        return backbones_table(results.folder / f"backbones.jsonl#{choice.study}")
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


SIGNS = {2: (1, -1), 4: (1, -1, -1, 1)}
"""Of the rows, by how many there are."""
Scored = dict[int, np.ndarray]
"""Seed -> (3,) All, Old and New in per cent; NaN where there is no such image."""


def scores_of(name: str, folder: Path, records: Sequence[Record]) -> Scored:
    """name: STUDY:ROW, or several with commas between them. folder: of the studies."""
    found: Scored = {}
    for one in name.split(","):
        study_name, _, row_name = one.partition(":")
        path = folder / f"{study_name}.yaml"
        if not row_name or not path.is_file():
            raise InputError(f"{one} names no row; write STUDY:ROW, with STUDY.yaml in {folder}.")
        study = read_study(path)
        (row,) = select_rows_by_name(study, [row_name])
        if len(row.datasets) > 1:
            raise InputError(f"{one} was run on several data sets, and pairs are of one.")
        for record in select_records(study, row, name_of(row.datasets[0]), records):
            values = [getattr(record.scores, score) for score in SCORE_COLUMNS]
            of_seed = np.array([math.nan if value is None else 100 * value for value in values])
            seed = record.identity.seed
            if not np.array_equal(found.setdefault(seed, of_seed), of_seed, equal_nan=True):
                raise InputError(f"{name} has two records of seed {seed}; name one study.")
    return found


def pair_differences(rows: Sequence[Scored]) -> tuple[list[int], np.ndarray]:
    """The seeds that all rows have, and (n, 3) their pair_differences."""
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    if len(seeds) < 2:
        raise InputError(f"These rows share {len(seeds)} seeds; an interval needs two.")
    signs = SIGNS[len(rows)]
    return seeds, np.array(
        [sum(sign * row[seed] for sign, row in zip(signs, rows, strict=True)) for seed in seeds]
    )


def pairs_line(seeds: Sequence[int], pairs: np.ndarray, left_out: int) -> str:
    cells = []
    for score, column in zip(SCORE_COLUMNS, pairs.T, strict=True):
        if not np.isnan(column).any():
            low, high = interval_of(column.tolist())
            cells.append(f"{score.title()} {column.mean():+.1f} ({low:.1f} to {high:.1f})")
    rest = f"; {left_out} other seeds are not in every row" if left_out else ""
    return f"{', '.join(cells)}\n{len(seeds)} seeds: {' '.join(map(str, seeds))}{rest}"


def print_pairs(names: Sequence[str], folder: Path) -> None:
    """folder: of the studies and of their results."""
    if len(names) not in SIGNS:
        raise InputError(f"Name two rows or four, not {len(names)}.")
    records = list(Records(folder / "results").by_key.values())
    rows = [scores_of(name, folder, records) for name in names]
    seeds, pairs = pair_differences(rows)
    print(pairs_line(seeds, pairs, len(set().union(*rows)) - len(seeds)))


NetworkRow = dict[str, Any]
FACTS = ("hardware", "torch", "timm", "commit")


def backbones_table(path: Path) -> str:
    """The networks of each tail, a family once, and how much faster the tail is than the whole block."""
    record = read_record(path, ("rows", *FACTS), "backbones.py")
    kinds: dict[str, list[NetworkRow]] = {}
    for row in record["rows"]:
        if "refused" not in row:
            kinds.setdefault(row["tail"], []).append(row)
    body = []
    for kind, rows in sorted(kinds.items()):
        gains = [row["whole_ms"] / row["tail_ms"] for row in rows]
        families = "; ".join(dict.fromkeys(row["family"] for row in rows))
        body.append(
            [kind, families, "" if kind == "WholeTail" else f"{min(gains):.1f} to {max(gains):.1f} times"]
        )
    return "\n\n".join(
        [table(["Tail", "Networks", "Faster than the whole block"], body), backbone_note(record)]
    )


def scientific(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def backbone_note(record: NetworkRow) -> str:
    rows = [row for row in record["rows"] if "refused" not in row]
    refused = [row["name"].partition(".")[0] for row in record["rows"] if "refused" in row]
    off = {
        double: max(
            (row[key] for row in rows for key in ("values", "gradients") if row["double"] is double),
            default=0,
        )
        for double in (True, False)
    }
    return (
        f"{len(rows)} networks with random weights on {record['hardware']}, torch {record['torch']}, timm "
        f"{record['timm']}, commit {record['commit']} (`python benchmarks/backbones.py`; each: "
        f"`experiments/results/backbones.jsonl`); forward and backward of an image whose trunk is done. Values and "
        f"gradients of the last block equal timm's to {scientific(off[True])} of the largest in double precision, to "
        f"{scientific(off[False])} where a network has single precision alone. Refused, without last blocks of a plain "
        f"vision transformer: {', '.join(refused)}."
    )


# -- cards of methods ---------------------------------------------------------------------------------
# What a method computes, its settings, presets and differences are read from it (runs/method_info.py), what was
# measured from experiments/results. Why p differs from the published one is written by hand, below the block.

CARD_STUDIES = {
    "../results.md#all-methods": ("peers", "peers-cifar", "cars"),
}
"""Page with whole tables -> studies whose rows a card shows, for which there is p; the first page that has any."""
APART = 0.3
"""Where p differs by more than this from the published one, the card says why."""
UNLAWFUL = r"\* Cannot be right as printed, or rests on such a score."


def methods_table() -> str:
    """All methods, a line each, with links to their cards."""
    head = ["Method", "Year", "What it does"]
    body = []
    for name in METHODS:
        card = METHODS[name].card
        assert card is not None
        body.append([f"[`{name}`](methods/{name}.md)", str(card.year), card.line])
    return words(head, body)


def card_page(name: str, top: Path, results: Records) -> str:
    """All that is known of one method. top: the folder that holds experiments/."""
    found = own_info(name)
    parts = [*head(found), *works(name), *computes(found), *settings_part(found), *differs(found)]
    parts += with_note(["## Results", *results_part(name, top, results)])
    return "\n\n".join(parts)


def own_info(name: str) -> MethodInfo:
    """The facts of a method; of a wrapper before one, `eagc+simgcd`, the wrapper's alone: the method has its card."""
    found = method_info(name)
    wrapper, _, inner = name.partition("+")
    if not inner:
        return found
    kind = WRAPPERS[wrapper]
    _, computes, differing = split_docstring(paper_docstring(kind))
    settings = tuple(row for row in found.settings if row.key.startswith(f"method.{wrapper}."))
    own = replace(found, card=kind.card, computes=computes, differs=differing, settings=settings)
    return replace(own, recipes={}, presets={})


def words(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown of cells that may hold anything."""
    return table(head, [[cell.replace("|", r"\|") for cell in row] for row in rows], words=len(head))


# -- what the method says of itself -------------------------------------------------------------------


def head(found: MethodInfo) -> Iterator[str]:
    if found.card:
        yield found.card.line
        yield f"{found.card.paper}."
    if found.stages:
        yield "\n".join(f"- Stage {stage_line(stage, found.epochs)}" for stage in found.stages)


def works(name: str) -> Iterator[str]:
    if name in METHODS:
        yield f"![Diagram of {name}: images, features, heads, losses]({name}.svg)"


def computes(found: MethodInfo) -> Iterator[str]:
    if found.computes:
        yield "## What it computes"
        yield f"```text\n{found.computes}\n```"


@cache
def settings_index(name: str) -> set[tuple[str, str, str]]:
    return {(row.key, row.value, row.help) for row in method_info(name).settings}


def settings_part(found: MethodInfo) -> Iterator[str]:
    """Defaults with the first clause of their help, then what data sets and presets change."""
    yield "## Settings"
    shared: dict[str, list[str]] = {}
    rows = []
    for row in found.settings:
        told = (row.key, row.value, row.help)
        first = next((name for name in METHODS if told in settings_index(name)), found.name)
        key = f"`{row.key.removeprefix('method.')}`"
        if first == found.name:
            rows.append([key, f"`{row.value}`", row.help.partition("; ")[0].rstrip(".")])
        else:
            shared.setdefault(first, []).append(key)
    if rows:
        yield words(["`--method.`", "Default", "Meaning"], rows)
    for first, keys in shared.items():
        yield f"As [{first}]({first}.md#settings): {', '.join(keys)}."
    if found.recipes:
        yield changes("Data set", {recipe_title(name): own for name, own in found.recipes.items()})
    usual = {row.key: row.value for row in found.settings}
    changed = {
        name: {key: value for key, value in own.items() if usual.get(key) != value_text(value)}
        for name, own in found.presets.items()
    }
    if named := {f"`{name}`": own for name, own in changed.items() if own}:
        yield changes("Preset", named)


def changes(title: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """Names that change the same stand together."""
    groups: dict[str, list[str]] = {}
    for name, own in values.items():
        told = ", ".join(f"`{key.removeprefix('method.')}={value_text(value)}`" for key, value in own.items())
        groups.setdefault(told, []).append(name)
    return words([title, "Settings"], [[", ".join(names), told] for told, names in groups.items()])


def differs(found: MethodInfo) -> Iterator[str]:
    yield "## What differs from the publication"
    points = found.card.differs if found.card else ()
    if points:
        yield "\n".join(f"- {point}" for point in points)
    elif found.differs:
        yield f"```text\n{found.differs}\n```"
    else:
        yield "Nothing that we know of."


# -- what was measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A row of a study on one data set."""

    name: str
    row: Row
    p: float | None
    printed: PublishedProgress | None

    @property
    def apart(self) -> bool:
        return self.p is not None and self.printed is not None and abs(self.p - self.printed.p) > APART


def results_of(method: str, studies: Sequence[str], top: Path, results: Records) -> Iterator[Result]:
    """Every row of these studies with a method, or a wrapper and any; top: the folder that holds experiments/."""
    records, wrapper = list(results.by_key.values()), method.partition("+")[0] if "+" in method else ""
    for path in (top / "experiments" / f"{name}.yaml" for name in studies):
        study = read_study(path) if path.exists() else None
        for one in study.rows.values() if study else ():
            named = one.method.startswith(f"{wrapper}+") if wrapper else one.method == method
            for dataset in map(name_of, one.datasets if named else ()):
                if study and (made := select_records(study, one, dataset, records)):
                    row, ends = make_row(made, one.name), {FLOOR, FOOTNOTE_MARK} <= set(study.rows)
                    p = progress_of(row, ends_of(study, dataset, records)) if ends else None
                    printed = published_progress(one.method, printed_on(dataset)) if ends else None
                    yield Result(one.name, row, p, printed)


def results_part(name: str, top: Path, results: Records) -> Iterator[str]:
    """All and p; Old, New and how the runs were made stand once, on the page with the tables."""
    for page, studies in CARD_STUDIES.items():
        if rows := list(results_of(name, studies, top, results)):
            yield "\n".join(map(result_line, rows))
            told = [f"[Old, New, seeds, commits and commands]({page})."]
            if any(one.apart for one in rows):
                told.append(f"Bold: more than {APART} from the published p; [why](#why-p-differs).")
            yield " ".join(told)
            return
    yield "No record of its runs is in `experiments/results`."


def result_line(one: Result) -> str:
    p = own_cell(one.p)
    told = f"- {one.name} on {one.row.facts['dataset']}: All {mean_and_std(one.row.scores['all'])}"
    told += " (one seed)" * (len(one.row.seeds) == 1)
    if not p:
        return told
    marked = f"{told}, p **{p}**" if one.apart else f"{told}, p {p}"
    return f"{marked} (published {published_cell(one.printed)})" if one.printed else marked


def with_note(parts: list[str]) -> list[str]:
    """What a star means, below the tables that have one."""
    return [*parts, UNLAWFUL] if any(r"\*" in part for part in parts) else parts


@one_sentence
def main(words: Sequence[str] | None = None, top: Path = TOP) -> int:
    parser = script_parser(__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if a block is stale"
    )
    parser.add_argument("file", nargs="*", help="documents, as in docs/results.md; all of them by default")
    parser.add_argument("--pairs", nargs="+", metavar="STUDY:ROW", help="print the difference of these rows")
    given = parser.parse_args(words)
    if given.pairs:
        print_pairs(given.pairs, top / "experiments")
        return 0
    found, results = [], Records(top / "experiments" / "results")
    for path in documents(top, given.file):
        name = path.relative_to(top).as_posix()
        old = path.read_text(encoding="utf-8")
        new, stale = rewrite(old, name, lambda choice: build_table(choice, top, results))
        found += [f"{name} ({mark})" for mark in stale]
        if stale and not given.check:
            write_text(path, new)
    if given.check and found:
        print(f"Stale: {', '.join(found)}; run python experiments/exhibits.py.", file=sys.stderr)
        return 1
    for line in found:
        print(f"rewrote {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
