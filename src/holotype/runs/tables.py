"""Tables of records: mean and deviation over seeds, beside published scores.

With one assignment over all images, All = r Old + (1 - r) New, where r is the share of known-class images
among the unlabelled ones. Three numbers rounded to one decimal can miss it by 0.1 at most; published
numbers that miss it by more are marked wherever they are shown.

Only runs that differ in nothing but the seed are averaged. Published numbers stand in columns of their
own, marked where they cannot be right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from holotype.config.parse import value_text
from holotype.config.schema import ProtocolConfig, TrainConfig
from holotype.data.csv import csv_text, escape_formula
from holotype.models.weights_io import backbone_caveat
from holotype.runs.record import Record

ROUNDING = 0.1
"""All carries up to 0.05, and the weighted mean of Old and New up to 0.05 more."""


@dataclass(frozen=True)
class Published:
    """One cell triple of a printed table, in per cent."""

    all: float
    old: float
    new: float
    share_old: float
    """r of the data set."""

    @property
    def implied(self) -> float:
        """What All must be, given Old and New."""
        return self.share_old * self.old + (1 - self.share_old) * self.new

    @property
    def lawful(self) -> bool:
        return abs(self.all - self.implied) <= ROUNDING + 1e-9


@cache
def read_published() -> dict[str, Any]:
    """Return the content of published.json."""
    return dict(json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8")))


def find_published(method: str, dataset: str, table: str = "main") -> Published | None:
    """Return the printed scores of a method (or of an ablation's row), None where nothing is printed."""
    cells = read_published()[table]["cells"].get(dataset, {}).get(method)
    counts = read_published()["share_old"].get(dataset)
    return Published(cells[0], cells[1], cells[2], counts["old"] / counts["unlabelled"]) if cells else None


FLOOR, FOOTNOTE_MARK = "kmeans", "simgcd"
"""The two methods between which progress is measured."""


def progress_to_simgcd(value: float, floor: float, mark: float) -> float | None:
    """Return p = (All - k-means) / (SimGCD - k-means), 0 at k-means and 1 at SimGCD; None where SimGCD is not above.

    It compares methods across backbones, where per cent cannot be compared.
    """
    return (value - floor) / (mark - floor) if mark > floor else None


@dataclass(frozen=True)
class PublishedProgress:
    """p of printed numbers."""

    p: float
    lawful: bool
    """Whether all three rows that it is made of obey the law."""


def published_progress(method: str, dataset: str) -> PublishedProgress | None:
    """Return p of the printed All; None where one of the three is not printed."""
    rows = [find_published(name, dataset) for name in (method, FLOOR, FOOTNOTE_MARK)]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        return None
    p = progress_to_simgcd(*(row.all for row in found))
    return None if p is None else PublishedProgress(p, all(row.lawful for row in found))


SHOWN_FACTS = ("dataset", "method", "variant", "backbone", "train_blocks", "epochs", "mode")
"""Of the table for people."""
SCORE_COLUMNS = ("all", "old", "new")
IN_FACTS = (
    "seed",
    "data.name",
    "method.name",
    "train.epochs",
    "backbone.name",
    "backbone.train_blocks",
    "views",
)
"""Parts of an identity that are facts of a row."""
SHORT = re.compile(r"^data\.(?=protocol\.)|(?<=^method\.)settings\.")
"""Left out of the names of settings in columns."""
DIGESTS = ("data.table", "backbone.digest", "method.code")
"""Parts that nobody can read, of which the first characters are shown."""
LATER_DEFAULTS = {
    f"{group}.{one.name}": one.metadata["before"]
    for group, kind in (("train", TrainConfig), ("protocol", ProtocolConfig))
    for one in fields(kind)
    if "before" in one.metadata
}
"""Settings that are part of an identity only where they differ."""


@dataclass(frozen=True)
class Row:
    """Runs of one configuration over seeds."""

    facts: dict[str, Any]
    """What keeps rows apart. Runs of different hashes are never averaged."""
    scores: dict[str, list[float] | None]
    """Per cent of each seed, by name in SCORE_COLUMNS; None where there is no such image."""
    seeds: tuple[int, ...]
    seconds: float
    """Mean training time."""
    published: Published | None
    commits: tuple[str, ...]
    hardware: tuple[str, ...]
    caveat: str
    """What must be known of the backbone; "" for most."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All other parts of the identity by dotted name; rows that differ in one have it as a column."""


def summarise(records: Iterable[Record]) -> list[Row]:
    """Return one row for each hash, in the order of data set, method and variant."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.identity.hash, []).append(record)
    return sorted((make_row(group) for group in groups.values()), key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    order, method = list(read_published()["methods"]), row.facts["method"]
    rank = order.index(method) if method in order else len(order)
    return (row.facts["dataset"], rank, *map(str, row.facts.values()))


def make_row(records: Sequence[Record], name: str | None = None) -> Row:
    """Join runs that differ in nothing but the seed. name: of the row; else what the first was called when made."""
    group = sorted(records, key=lambda record: record.identity.seed)
    identity, made = group[0].identity, group[0].made
    facts = {
        "dataset": identity.data["name"],
        "method": identity.method["name"],
        "variant": name or made.variant,
        "mode": made.mode,
        "epochs": made.epochs,
        "backbone": identity.backbone["name"],
        "train_blocks": identity.backbone["train_blocks"],
        "config_hash": identity.hash,
    }
    scores = {kind: [getattr(record.scores, kind) for record in group] for kind in SCORE_COLUMNS}
    return Row(
        facts=facts,
        scores={kind: [100 * v for v in values if v is not None] or None for kind, values in scores.items()},
        seeds=tuple(record.identity.seed for record in group),
        seconds=mean(record.made.seconds for record in group),
        published=find_published(facts["method"], facts["dataset"]),
        commits=tuple(sorted({record.made.commit for record in group})),
        hardware=tuple(sorted({record.made.hardware for record in group})),
        caveat=backbone_caveat(identity.backbone["digest"]),
        settings={SHORT.sub("", key): value for key, value in identity.parts.items() if key not in IN_FACTS},
    )


def setting_columns(rows: Sequence[Row]) -> list[str]:
    """Return the settings in which rows differ that the facts of the table do not tell apart."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(str(row.facts[key]) for key in SHOWN_FACTS), []).append(row)
    groups = [[row.settings for row in group] for group in alike.values() if len(group) > 1]
    names = dict.fromkeys(name for group in groups for settings in group for name in settings)
    return [
        name for name in names if any(len({setting_text(one, name) for one in group}) > 1 for group in groups)
    ]


def setting_text(settings: dict[str, Any], name: str) -> str:
    """Return a setting as a cell; one that a run of before it does not have, as its default."""
    value = settings.get(name, LATER_DEFAULTS.get(name, ""))
    return str(value)[:8] if name in DIGESTS else value_text(value)


def mean_and_std(values: list[float] | None) -> str:
    """Return `61.2 ± 0.8` (ddof = 1), without the deviation where there is one value, `none` where there is none."""
    if values is None:
        return "none"
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{mean(values):.1f}"


def table_markdown(rows: Sequence[Row], older: Sequence[str] = ()) -> str:
    """Return the table for people. older: methods of which there are records of an older revision."""
    scores, settings = ["All", "Old", "New"], setting_columns(rows)
    named = [name.replace("_", " ").capitalize() for name in SHOWN_FACTS] + settings
    header = [*named, "n", *scores, *(f"{name} (published)" for name in scores)]
    lines = [_cells(header), _cells(["---"] * len(header))]
    for row in rows:
        cells = [str(row.facts[key]) for key in SHOWN_FACTS]
        cells += [setting_text(row.settings, name) for name in settings] + [str(len(row.seeds))]
        cells += [mean_and_std(row.scores[name]) for name in SCORE_COLUMNS]
        lines.append(_cells([*cells, *published_cells(row.published)]))
    notes = footnotes(rows)
    if older:
        counts = ", ".join(f"{name} ({older.count(name)})" for name in dict.fromkeys(older))
        notes += ["", f"Left out are records of an older revision: {counts}."]
    return "\n".join([*lines, "", *notes]) + "\n"


def published_cells(published: Published | None) -> list[str]:
    """Return All, Old and New as printed, with a star where they cannot be right."""
    if published is None:
        return ["", "", ""]
    star = "" if published.lawful else r"\*"
    return [f"{value:.1f}{star}" for value in (published.all, published.old, published.new)]


def footnotes(rows: Sequence[Row]) -> list[str]:
    """Return what must be said below a table of these rows."""
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
    told = {row.facts["backbone"]: row.caveat for row in rows if row.caveat}
    notes += [f"Backbone {name}: {caveat}" for name, caveat in sorted(told.items())]
    return [line for note in notes for line in (note, "")][:-1]


def _cells(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def row_values(row: Row, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return a row for programs: column to number, unrounded, or text; None where there is nothing.

    settings: names of the columns that rows differ in.
    """
    found = row.facts | {name: row.settings.get(name, LATER_DEFAULTS.get(name)) for name in settings}
    found |= {"n": len(row.seeds), "seeds": " ".join(map(str, row.seeds))}
    for name in SCORE_COLUMNS:
        values = row.scores[name] or []
        found[f"{name}_mean"] = mean(values) if values else None
        found[f"{name}_std"] = stdev(values) if len(values) > 1 else None
    found |= {f"published_{name}": getattr(row.published, name, None) for name in (*SCORE_COLUMNS, "lawful")}
    commits, hardware = " ".join(row.commits), "; ".join(row.hardware)
    return found | {"seconds": row.seconds, "commits": commits, "hardware": hardware}


def table_csv(rows: Sequence[Row]) -> str:
    """Return the table for programs, numbers unrounded."""
    settings = setting_columns(rows)
    lines = [row_values(row, settings) for row in rows]
    cells = [[escape_formula(v) if isinstance(v, str) else v for v in line.values()] for line in lines]
    return csv_text([*(list(line) for line in lines[:1]), *cells])
