"""results/*.json, one file per run, and the table made of them.

Only runs that differ in nothing but the seed are averaged. Published numbers stand in columns of their
own, marked where they cannot be right.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.runs.published import Published, find_published, read_published

Record = dict[str, Any]

RECORDED = (
    *("method", "dataset", "variant", "seed", "mode", "epochs", "backbone", "all", "old", "new"),
    *("seconds", "config_hash", "commit", "hardware", "share_old", "n", "train_blocks"),
)
"""What every result must hold."""
APART = ("dataset", "method", "variant", "mode", "epochs", "backbone", "train_blocks", "config_hash")
"""Runs that differ in one of these are never averaged."""
SCORES = ("all", "old", "new")


@dataclass(frozen=True)
class Row:
    """Runs of one configuration over seeds."""

    facts: Record
    """The values of APART."""
    scores: dict[str, list[float] | None]
    """Per cent of each seed, by name in SCORES; None where there is no such image."""
    seeds: tuple[int, ...]
    seconds: float
    """Mean training time."""
    published: Published | None
    commits: tuple[str, ...]
    hardware: tuple[str, ...]


def result_name(record: Record) -> str:
    """File name of a result; also names the run folder of a benchmark run."""
    method = str(record["method"]).replace(":", ".").replace("/", "-")
    hash8 = record["config_hash"][:8]
    return f"{record['dataset']}-{method}-{record['variant']}-s{record['seed']}-{hash8}"


def write_result(folder: Path, record: Record) -> Path:
    path = folder / f"{result_name(record)}.json"
    write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return path


def read_results(folder: Path) -> dict[Path, Record]:
    """Every result in a folder, checked; two results of one configuration and seed are an error."""
    found: dict[Path, Record] = {}
    first: dict[tuple[str, int], Path] = {}
    for path in sorted(folder.glob("*.json")):
        record = _read_result(path)
        other = first.setdefault((record["config_hash"], record["seed"]), path)
        if other != path:
            raise InputError(
                f"{other} and {path} are results of the same settings and seed; delete one of them."
            )
        found[path] = record
    return found


def find_results(top: Path) -> dict[tuple[str, int], Record]:
    """Every result in a folder and those below it, by config_hash and seed; other files are passed over."""
    found: dict[tuple[str, int], Record] = {}
    for path in sorted(top.rglob("*.json")):
        try:
            record = _read_result(path)
        except InputError:  # of another kind, such as a measurement of speed
            continue
        found.setdefault((record["config_hash"], record["seed"]), record)
    return found


def _read_result(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        absent = [key for key in RECORDED if key not in record]
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path} is not a result that can be read ({error}); delete it or run it again."
        ) from error
    if absent:
        raise InputError(f"{path} lacks {', '.join(absent)}; delete it or run it again.")
    check_law(record, path)
    return dict(record)


def check_law(record: Record, path: Path) -> None:
    """All = r Old + (1 - r) New, which the one global assignment guarantees, to 1e-9."""
    if record["all"] is None:
        return
    share = record["share_old"]
    implied = share * (record["old"] or 0.0) + (1 - share) * (record["new"] or 0.0)
    if not abs(record["all"] - implied) <= 1e-9:
        raise InputError(
            f"{path} says All = {record['all']:.6f} where its Old and New imply {implied:.6f}; "
            "it was changed by hand or scored by another metric: run it again."
        )


def summarise(records: Iterable[Record]) -> list[Row]:
    """One row per configuration, in the order of data set, method and variant."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in APART), []).append(record)
    rows = [_row(sorted(group, key=lambda record: int(record["seed"]))) for group in groups.values()]
    order = list(read_published()["methods"])

    def place(row: Row) -> tuple[Any, ...]:
        method = row.facts["method"]
        rank = order.index(method) if method in order else len(order)
        return (row.facts["dataset"], rank, *(str(row.facts[key]) for key in APART))

    return sorted(rows, key=place)


def _row(group: list[Record]) -> Row:
    first = group[0]
    scores: dict[str, list[float] | None] = {}
    for name in SCORES:
        values = [100 * record[name] for record in group if record[name] is not None]
        scores[name] = values or None
    return Row(
        facts={key: first[key] for key in APART},
        scores=scores,
        seeds=tuple(record["seed"] for record in group),
        seconds=mean(record["seconds"] for record in group),
        published=find_published(first["method"], first["dataset"]),
        commits=tuple(sorted({record["commit"] for record in group})),
        hardware=tuple(sorted({record["hardware"] for record in group})),
    )


def mean_and_std(values: list[float] | None) -> str:
    """`61.2 ± 0.8` (ddof = 1), without the deviation where there is one value, `none` where there is none."""
    if values is None:
        return "none"
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{mean(values):.1f}"


def to_markdown(rows: list[Row], caveats: dict[str, str]) -> str:
    """The table for people. caveats: what must be known of each backbone."""
    header = [
        "Data set",
        "Method",
        "Variant",
        "Backbone",
        "Blocks",
        "Epochs",
        "Mode",
        "n",
        "All",
        "Old",
        "New",
    ]
    header += ["All (published)", "Old (published)", "New (published)", "Config"]
    lines = [_cells(header), _cells(["---"] * len(header))]
    for row in rows:
        names = ("dataset", "method", "variant", "backbone", "train_blocks", "epochs", "mode")
        cells = [str(row.facts[key]) for key in names] + [str(len(row.seeds))]
        cells += [mean_and_std(row.scores[name]) for name in SCORES] + published_cells(row.published)
        lines.append(_cells([*cells, row.facts["config_hash"][:8]]))
    return "\n".join([*lines, "", *footnotes(rows, caveats)]) + "\n"


def published_cells(published: Published | None) -> list[str]:
    """All, Old and New as printed, with a star where they cannot be right."""
    if published is None:
        return ["", "", ""]
    star = "" if published.lawful else r"\*"
    return [f"{value:.1f}{star}" for value in (published.all, published.old, published.new)]


def footnotes(rows: list[Row], caveats: dict[str, str]) -> list[str]:
    """What must be said below a table of these rows."""
    notes = [
        "All, Old, New: per cent of the unlabelled training images, one global assignment, last epoch; "
        "mean ± standard deviation (ddof 1) over n seeds."
    ]
    printed = [row.published for row in rows if row.published]
    if printed:
        content = read_published()
        notes.append(f"Published: {content['paper']}, {content['setting']}.")
    if not all(published.lawful for published in printed):
        notes.append(
            r"\* cannot be right as printed: All differs from r Old + (1 - r) New by more than rounding, "
            "r being the share of known-class images among the unlabelled ones."
        )
    notes += [f"Backbone {name}: {caveat}" for name, caveat in sorted(caveats.items()) if caveat]
    return [line for note in notes for line in (note, "")][:-1]


def _cells(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def to_csv(rows: list[Row]) -> str:
    """The table for programs, numbers unrounded."""
    stream = io.StringIO()
    names = [f"{name}_{kind}" for name in SCORES for kind in ("mean", "std")]
    printed = [f"published_{name}" for name in SCORES]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [*APART, "n", "seeds", *names, *printed, "published_lawful", "seconds", "commits", "hardware"]
    )
    for row in rows:
        cells: list[Any] = [row.facts[key] for key in APART]
        cells += [len(row.seeds), " ".join(map(str, row.seeds))]
        for name in SCORES:
            values = row.scores[name]
            cells += ["" if values is None else mean(values)]
            cells += [stdev(values) if values is not None and len(values) > 1 else ""]
        known = row.published
        cells += ["", "", "", ""] if known is None else [known.all, known.old, known.new, known.lawful]
        writer.writerow([*cells, row.seconds, " ".join(row.commits), "; ".join(row.hardware)])
    return stream.getvalue()


def write_table(folder: Path) -> str:
    """Build table.md and table.csv from the results in a folder; returns the Markdown."""
    records = read_results(folder)
    if not records:
        raise InputError(
            f"There is no result in {folder}; run holotype bench first, or name its folder with --results."
        )
    rows = summarise(records.values())
    caveats = {record["backbone"]: record.get("caveat", "") for record in records.values()}
    text = to_markdown(rows, caveats)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", to_csv(rows))
    return text
