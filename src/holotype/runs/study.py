"""Studies: the rows that are compared, on which data and seeds; their experiments, and whose a record is.

Only the shape of a file is checked when it is read. Whether a setting exists and may have its value depends on the
method; `resolve` says so when the rows become experiments. A study selects its records by what its rows resolve to, not
by names: one that several studies ask for exists once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from holotype.config.parse import CastError, Constraint, Name, cast, flatten
from holotype.data.datasets.registry import check_dataset
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.methods.registry import check_code_allowed
from holotype.runs.experiment import Experiment, read_yaml, resolve, setting_values
from holotype.runs.identity import identity_matches, identity_outline
from holotype.runs.record import Record
from holotype.runs.resources import drop_unusable_cache, with_views
from holotype.utils.text import did_you_mean, suggest

ONCE = Constraint("a list of different values", lambda items: 0 < len(items) == len(set(items)))
PLACE_KEYS = {"datasets": Annotated[tuple[Name, ...], ONCE], "seeds": Annotated[tuple[int, ...], ONCE]}
STUDY_KEYS: dict[str, Any] = dict.fromkeys(("question", "commit", "cache_views", "reference"), Name)
STUDY_KEYS |= {"settings": dict, "rows": dict}
ROW_KEYS = {"method": Name, "preset": Name, "asks": str, "settings": dict, "record": Name}
NO_SETTINGS = {"method_name", "preset", "label", "dataset", "seed", "cache_views", "root", "out", "log"}
"""Settings of a run that a benchmark gets as keys of its study or as flags."""
ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+@-]*")
"""It is part of file names, and stands before a colon and between commas on the command line."""


@dataclass(frozen=True)
class StudyRow:
    """One method with its settings: a line of the table."""

    name: str
    method: str
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    preset: str = "default"
    asks: str = ""
    """What the row is there for, in a few words; may be empty."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Dotted settings of `holotype train`: the study's with the row's on top."""
    record: str | None = None
    """Hash of its records, where the row cannot be run any more: its settings or its revision are gone."""


@dataclass(frozen=True)
class Study:
    """What a study file says."""

    file: Path
    """Where it was read; of one that was made in Python, its name."""
    rows: dict[str, StudyRow]
    """In the order of the file."""
    question: str = ""
    """Empty where flags describe the study: then its rows have no names of their own."""
    cache_views: str = "off"
    reference: str | None = None
    """The row that the others are compared with."""
    commit: str | None = None
    """That the study belongs to, where rows have settings that are gone since."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Those of all rows."""

    @property
    def name(self) -> str:
        """The file's name without its ending; also that of the folder of its results."""
        return self.file.stem


@dataclass(frozen=True)
class SettingChange:
    """A setting on top of what a study says."""

    setting: str
    value: Any
    where: str = ""
    """A row, a METHOD or a METHOD@PRESET; "" for all rows."""

    def __str__(self) -> str:
        return f"{self.where}{':' if self.where else ''}{self.setting}={self.value}"


@dataclass(frozen=True)
class SweepRequest:
    """Which part of a study is run, and how."""

    rows: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    changes: Sequence[SettingChange] = ()
    cache_views: str | None = None
    root: str | None = None
    progress: bool = True
    log: str | None = None
    """Trackers of every run."""


def read_study(source: Path | str | Mapping[str, Any]) -> Study:
    """Read a study file, or what would stand in one; raises InputError where its shape is not that of a study."""
    if isinstance(source, Mapping):
        return build_study(source, "study")
    return build_study(read_yaml(Path(source)), source)


def build_study(content: Any, path: Path | str) -> Study:
    """Return the study of what stands in its file, or would. path: the file, or a name."""
    told = _values(content, STUDY_KEYS | PLACE_KEYS, str(path), ("question", "rows"))
    told["settings"] = _settings(told, str(path))
    rows = {name: _row(name, row, told, path) for name, row in told["rows"].items()}
    if not rows:
        raise InputError(f"{path} has no rows; write `rows:` with at least one `name: {{method: simgcd}}`.")
    if told.get("reference", next(iter(rows))) not in rows:
        raise InputError(f"{path} has the reference {told['reference']!r}; its rows are {', '.join(rows)}.")
    return Study(Path(path), **{key: told[key] for key in STUDY_KEYS if key in told} | {"rows": rows})


def flags_study(methods: Sequence[str], datasets: Sequence[str], seeds: Sequence[int]) -> Study:
    """Return methods (each with its preset, or not, as in rpc@reading) on data sets, as a study without a file."""
    rows = {}
    for word in methods:
        method, _, preset = word.partition("@")
        rows[word] = StudyRow(word, method, tuple(datasets), tuple(seeds), preset or "default")
    return Study(Path("bench"), rows, cache_views="auto")


def _row(name: Any, content: Any, study: dict[str, Any], path: Path | str) -> StudyRow:
    place = f"The row {name!r} of {path}"
    if not isinstance(name, str) or not ROW_NAME.fullmatch(name) or name == "null":
        raise InputError(f"{place} cannot be called so; write letters, digits and . _ = + @ -, not null.")
    own = _values(content, ROW_KEYS | PLACE_KEYS, place, ("method",))
    check_code_allowed(own["method"], place)
    row = {key: study[key] for key in PLACE_KEYS if key in study} | own
    if absent := next((key for key in PLACE_KEYS if key not in row), None):
        raise InputError(f"{path} lacks the key {absent}; write `datasets: [cub]` and `seeds: [0, 1]`.")
    return StudyRow(name, **row | {"settings": study["settings"] | _settings(own, place)})


def _values(content: Any, kinds: Mapping[str, Any], place: str, required: Sequence[str]) -> dict[str, Any]:
    """Return the values of a part of a study as their types have them."""
    found = {}
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if key not in kinds:
            hint = did_you_mean(str(key), kinds, f"it may have {', '.join(kinds)}.")
            raise InputError(f"{place} has the unknown key {key!r}; {hint}")
        try:
            found[key] = cast(value, kinds[key])
        except CastError as error:
            raise InputError(f"{place} has {key} = {value!r}, which must be {error}.") from error
    if absent := next((key for key in required if key not in found), None):
        raise InputError(f"{place} lacks the key {absent}; write `{absent}: ...`.")
    return found


def _settings(content: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the settings by their dotted names, spelled with underscores."""
    settings = {key.replace("-", "_"): value for key, value in flatten(content.get("settings", {})).items()}
    for key in settings:
        if key in NO_SETTINGS:
            raise InputError(f"{place} has {key} under settings; it is a key of the study, or a flag.")
    return settings


def select_rows_by_name(study: Study, names: Sequence[str]) -> list[StudyRow]:
    """Return some rows of a study, in the order of the file."""
    for name in names:
        if name not in study.rows:
            near, every = suggest(name, study.rows), ", ".join(study.rows)
            raise InputError(f"The study {study.name} has no row {name!r}{near}; its rows are {every}.")
    return [row for row in study.rows.values() if row.name in names]


def selected_rows(study: Study, ask: SweepRequest) -> list[StudyRow]:
    """Return the rows that are asked for, with the seeds that are asked for."""
    rows = list(study.rows.values()) if ask.rows is None else select_rows_by_name(study, ask.rows)
    if not rows or (ask.seeds is not None and not ask.seeds):
        raise InputError(f"--rows names no row or --seeds no seed; the rows are {', '.join(study.rows)}.")
    # a seed that stands twice is no second run
    return [replace(row, seeds=tuple(dict.fromkeys(ask.seeds or row.seeds))) for row in rows]


def rows_by_dataset(rows: Sequence[StudyRow]) -> Iterator[tuple[str, StudyRow]]:
    """Yield every data set with each row that asks for it."""
    for dataset in dict.fromkeys(dataset for row in rows for dataset in row.datasets):
        yield from ((dataset, row) for row in rows if dataset in row.datasets)


def experiments(study: Study, ask: SweepRequest) -> list[Experiment]:
    """Return every row on each of its data sets with each of its seeds, settings checked.

    A row that names its records belongs to another version; it is passed over, and refused if it was asked for.
    """
    rows = selected_rows(study, ask)
    gone = [row for row in rows if row.record is not None]
    if gone and ask.rows is not None:
        at = f"; check out commit {study.commit}" if study.commit else ""
        raise InputError(f"Row {gone[0].name} of {study.file} cannot be run by this version{at}.")
    rows = [row for row in rows if row.record is None]
    changes = changes_by_row(ask.changes, rows, study)
    made = []
    for dataset, row in rows_by_dataset(rows):
        for point, seed in product(settings_grid(row, changes[row.name]), row.seeds):
            one = resolve_row(study, replace(row, seeds=(seed,)), dataset, ask, point)
            made.append(replace(one, label=row.name if study.question else None))
    return made


def settings_grid(row: StudyRow, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the values of the changes: 0.05,0.1 or a list is several, unless the setting itself
    is a list."""
    lists = [value for value in changes.values() if isinstance(value, list | tuple) or "," in str(value)]
    if not lists:
        return [dict(changes)]
    hints = {key: hint for key, _, hint in setting_values(resolve(row.method, row.datasets[0], row.preset))}
    axes = []
    for name, value in changes.items():
        hint = hints.get(name)
        if tuple in [get_origin(part) for part in (hint, *get_args(hint))] or not isinstance(
            value, str | list | tuple
        ):
            axes.append([value])
        else:
            parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
            if not parts:
                raise InputError(f"--set {name} has an empty list of values; give one or more.")
            axes.append(list(dict.fromkeys(parts)))
    return [dict(zip(changes, point, strict=True)) for point in product(*axes)]


def resolve_row(
    study: Study,
    row: StudyRow,
    dataset: str,
    ask: SweepRequest | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return a row on one data set, with its first seed."""
    ask = ask or SweepRequest()
    overrides = {**row.settings, **(changes or {}), "cache_views": ask.cache_views or study.cache_views}
    overrides |= {"seed": row.seeds[0]} | ({} if ask.progress else {"progress": False})
    overrides |= {"log": ask.log} if ask.log else {}
    overrides |= {"root": ask.root} if ask.root else {}
    try:
        check_dataset(dataset)
        return drop_unusable_cache(with_views(resolve(row.method, dataset, row.preset, overrides)))
    except InputError as error:
        if not study.question:  # there is no row to name
            raise
        past = f" The study belongs to commit {study.commit}." if study.commit else ""
        raise InputError(f"Row {row.name} of {study.file}: {error}{past}") from error


def changes_by_row(
    changes: Sequence[SettingChange], rows: Sequence[StudyRow], study: Study
) -> dict[str, dict[str, Any]]:
    """Return the changes that concern each row; later ones win."""
    found: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
    for change in changes:
        where = change.where
        if change.setting in NO_SETTINGS:
            raise InputError(f"--set {change} is not possible; holotype bench --help lists the flag for it.")
        if study.question and where in study.rows:  # called like a method, it means the row alone
            concerned = [row for row in rows if row.name == where]
        else:
            concerned = [row for row in rows if where in ("", row.method, f"{row.method}@{row.preset}")]
        if not concerned:
            near = suggest(where, [word for row in rows for word in (row.name, row.method)])
            rule = f"neither a row that is run nor the method of one; the rows are {', '.join(found)}"
            rule = rule if study.question else "not among --methods"
            raise InputError(f"--set {change} names {where!r}{near}, which is {rule}.")
        for row in concerned:
            found[row.name][change.setting] = change.value
    return found


def select_records(
    study: Study,
    row: StudyRow,
    dataset: str,
    records: Iterable[Record],
    ask: SweepRequest | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Record]:
    """Return the records of a row on one data set (as records call it), by seed; conflicting ones are refused."""
    if row.record is not None:
        found = [r for r in records if r.identity.hash == row.record and r.identity.data["name"] == dataset]
    else:
        named = next(name for name in row.datasets if dataset in (name, collection_name(name)))
        outline = identity_outline(resolve_row(study, row, named, ask, changes))
        found = [record for record in records if identity_matches(record.identity, outline)]
    found = sorted((r for r in found if r.identity.seed in row.seeds), key=lambda r: r.identity.seed)
    if other := next((r.identity for r in found if r.identity.hash != found[0].identity.hash), None):
        first = found[0].identity
        keys = (key for key in first.parts | other.parts if key != "seed")
        apart = next(key for key in keys if first.parts.get(key) != other.parts.get(key))
        what = f"The row {row.name} of {study.name} has records of two kinds, {first.name} and {other.name}"
        raise InputError(f"{what}, which differ in {apart}; move those of one kind away.")
    return found
