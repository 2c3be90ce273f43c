"""Study files: the rows that are compared, on which data and seeds, and the question they answer.

Only the shape of a file is checked here. Whether a setting exists and may have its value depends on the method;
`resolve` says so when the rows become experiments (sweep.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holotype.config.parse import CastError, cast, parse_yaml
from holotype.config.types import Name
from holotype.errors import InputError
from holotype.methods.registry import check_code_allowed
from holotype.utils.text import did_you_mean, suggest, suggest_path

STUDY_KEYS = ("question", "commit", "datasets", "seeds", "cache_views", "reference", "settings", "rows")
ROW_KEYS = ("method", "preset", "asks", "settings", "datasets", "seeds", "record")
KEYS_OF_ROWS = {
    "method_name": "the key `method` of a row",
    "preset": "the key `preset` of a row",
    "label": "the name of the row",
    "dataset": "the key `datasets`",
    "seed": "the key `seeds`",
    "cache_views": "the key `cache_views` of the study",
    "root": "the flag --root",
    "out": "the flag --out",
}
"""Settings of a run that a benchmark gets in another way, and in which one."""
ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+@-]*")
"""It is part of file names, and stands before a colon and between commas on the command line."""


@dataclass(frozen=True)
class StudyRow:
    """One method with its settings: a line of the table."""

    name: str
    method: str
    preset: str
    asks: str
    """What the row is there for, in a few words; may be empty."""
    settings: dict[str, Any]
    """Dotted settings of `holotype train`: the study's with the row's on top."""
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    record: str | None = None
    """Hash of its records, where the row cannot be run any more: its settings or its revision are gone."""


@dataclass(frozen=True)
class Study:
    """What a study file says."""

    file: Path
    """Where it was read; of one that was made in Python, its name."""
    question: str
    cache_views: str
    reference: str | None
    """The row that the others are compared with."""
    rows: dict[str, StudyRow]
    """In the order of the file."""
    commit: str | None = None
    """That the study belongs to, where rows have settings that are gone since."""
    own: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each row, the names of the settings that differ from the study's."""

    @property
    def name(self) -> str:
        """The file's name without its ending; also that of the folder of its results."""
        return self.file.stem


def read_study(path: Path) -> Study:
    """Read a study file; raises InputError where its shape is not that of a study."""
    return build_study(_load(path), path)


def build_study(content: Mapping[str, Any], path: Path | str) -> Study:
    """A study of what stands in its file, or would. path: the file, or a name."""
    content, path, place = dict(content), Path(path), str(path)
    _check_keys(content, STUDY_KEYS, place)
    rows = content.get("rows")
    if not isinstance(rows, dict) or not rows:
        raise InputError(f"{place} has no rows; write `rows:` with at least one `name: {{method: simgcd}}`.")
    common = _settings(content, place)
    made = {name: _row(name, row, content, common, path) for name, row in rows.items()}
    reference = _text(content, "reference", place, "") or None
    if reference is not None and reference not in made:
        raise InputError(
            f"{place} has the reference {reference!r}, which is not among its rows {', '.join(made)}."
        )
    cache_views = _text(content, "cache_views", place, "off")
    commit = _text(content, "commit", place, "") or None
    own = {
        name: tuple(key for key, value in row.settings.items() if key not in common or common[key] != value)
        for name, row in made.items()
    }
    return Study(path, _text(content, "question", place), cache_views, reference, made, commit, own)


def select_rows_by_name(study: Study, names: Sequence[str]) -> list[StudyRow]:
    """Some rows of a study, in the order of the file."""
    for name in names:
        if name not in study.rows:
            raise InputError(
                f"The study {study.name} has no row {name!r}{suggest(name, study.rows)}; its rows are "
                f"{', '.join(study.rows)}."
            )
    return [row for row in study.rows.values() if row.name in names]


def _row(name: Any, row: Any, study: dict[str, Any], common: dict[str, Any], path: Path) -> StudyRow:
    place = f"The row {name!r} of {path}"
    if not isinstance(name, str) or not ROW_NAME.fullmatch(name) or name == "null":
        raise InputError(
            f"{place} cannot be called so; a name begins with a letter or digit and consists of letters, digits and "
            ". _ = + @ -, and is not null."
        )
    if not isinstance(row, dict):
        raise InputError(f"{place} must say its method; write `{name}: {{method: simgcd}}`.")
    _check_keys(row, ROW_KEYS, place)
    return StudyRow(
        name=name,
        method=check_code_allowed(_text(row, "method", place), place),
        preset=_text(row, "preset", place, "default"),
        asks=_text(row, "asks", place, ""),
        settings=common | _settings(row, place),
        datasets=_list(Name, "names or paths, as in [cub, scars]", "datasets", {path: study, place: row}),
        seeds=_list(int, "whole numbers, as in [0, 1, 2]", "seeds", {path: study, place: row}),
        record=_text(row, "record", place, "") or None,
    )


# -- the parts of a file ------------------------------------------------------------------------------


def _check_keys(content: dict[Any, Any], known: Sequence[str], place: str) -> None:
    for key in content:
        if key not in known:
            hint = did_you_mean(str(key), known, f"it may have {', '.join(known)}.")
            raise InputError(f"{place} has the unknown key {key!r}; {hint}")


def _text(content: dict[str, Any], key: str, place: str, default: str | None = None) -> str:
    """default: None where the key must be there."""
    value = content.get(key, default)
    if value is None and key not in content:
        raise InputError(f"{place} lacks the key {key}; write `{key}: ...`.")
    if not isinstance(value, str) or not (value.strip() or value == default):
        raise InputError(f"{place} has {key} = {value!r}, where text belongs; write it in quotes.")
    return value.strip()


def _list(kind: Any, meant: str, key: str, places: dict[Any, dict[str, Any]]) -> tuple[Any, ...]:
    """Of the last place that has it: a row's own list, or else the study's."""
    having = [place for place in places if key in places[place]]
    if not having:
        raise InputError(f"{next(iter(places))} lacks the key {key}; write a list of {meant}.")
    value = places[having[-1]][key]
    try:
        items: tuple[Any, ...] = cast(value, tuple[kind, ...])
    except CastError:
        items = ()
    if not items or len(set(items)) < len(items):
        twice = ", in which one stands twice" if items else ""
        raise InputError(f"{having[-1]} has {key} = {value!r}{twice}; write a list of {meant}, each once.")
    return items


def _settings(content: dict[str, Any], place: str) -> dict[str, Any]:
    """Dotted names, spelled with underscores, and values that a flag could have."""
    settings = content.get("settings") or {}
    if not isinstance(settings, dict):
        raise InputError(f"{place} has settings = {settings!r}; write them as `train.epochs: 100`.")
    for name, value in settings.items():
        if (key := str(name).replace("-", "_")) in KEYS_OF_ROWS:
            raise InputError(f"{place} has {name} under settings; its place is {KEYS_OF_ROWS[key]}.")
        if isinstance(value, dict):
            raise InputError(
                f"{place} has the group {name} under settings; write each setting by its whole name, as in "
                "`train.epochs: 100`."
            )
    return {str(name).replace("-", "_"): value for name, value in settings.items()}


def _load(path: Path) -> dict[str, Any]:
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The study {path} cannot be read: {error.strerror}{suggest_path(path)}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is no study; it must hold question, datasets, seeds and rows.")
    return content
