"""The studies in experiments/ can be run, and each selects its own records and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.made_study import asked_for

from holotype.data.load import collection_name
from holotype.runs.identity import identity_matches, identity_outline
from holotype.runs.record import Record, Records
from holotype.runs.study import Study, StudyRow, read_study, resolve_row, select_records

TOP = Path(__file__).parents[2]
STUDIES = sorted((TOP / "experiments").glob("*.yaml"))


def name(path: Path) -> str:
    return path.stem


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(Records(TOP / "experiments" / "results").by_key.values())


def selected(study: Study, row: StudyRow, records: list[Record]) -> list[Record]:
    names = [collection_name(Path(dataset)) for dataset in row.datasets]
    return [record for dataset in names for record in select_records(study, row, dataset, records)]


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_every_row_of_a_study_is_an_experiment(path: Path) -> None:
    """Of a study of the past, those without records of their own."""
    rows = {row.name for row in read_study(path).rows.values() if row.record is None}
    made = asked_for(["--study", str(path), "--root", "data"])
    assert {experiment.label for experiment in made} == rows
    settings = [repr((e.dataset, e.method_name, e.method, e.train, e.backbone)) for e in made if e.seed == 0]
    assert len(set(settings)) == len(settings), "two rows are the same experiment"


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_each_row_selects_its_records(path: Path, records: list[Record]) -> None:
    study = read_study(path)
    found = {row.name: selected(study, row, records) for row in study.rows.values()}
    assert all(found.values()), "a row without a record"
    for row, mine in found.items():
        plan = study.rows[row]
        assert {record.identity.method["name"] for record in mine} <= {plan.method}
        assert {record.identity.seed for record in mine} <= set(plan.seeds)
        assert len({record.key for record in mine}) == len(mine)
        epochs = plan.settings.get("train.epochs")
        for record in mine:
            if plan.method == "kmeans":  # trains nothing
                assert record.made.epochs == 0
            else:
                assert epochs is None or record.made.epochs >= int(epochs)
    hashes = [record.identity.hash for mine in found.values() for record in mine]
    by_row = [{record.identity.hash for record in mine} for mine in found.values()]
    assert sum(map(len, by_row)) == len(set(hashes)), "two rows share a record"


def test_every_record_is_shown_somewhere(records: list[Record]) -> None:
    shown = {
        record.key
        for study in map(read_study, STUDIES)
        for row in study.rows.values()
        for record in selected(study, row, records)
    }
    assert [record.identity.name for record in records if record.key not in shown] == []


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_a_live_row_fits_records_of_one_hash_and_others_name_theirs(
    path: Path, records: list[Record]
) -> None:
    """Whatever their seed: --reuse experiments/results finds nothing that contradicts. What this version still makes is
    selected by what it resolves to."""
    study = read_study(path)
    shown = set()
    for row in (row for row in study.rows.values() if row.record is None):
        shown |= {record.key for record in selected(study, row, records)}
        for dataset in row.datasets:
            told = identity_outline(resolve_row(study, row, dataset))
            fits = {record.identity.hash for record in records if identity_matches(record.identity, told)}
            assert len(fits) <= 1, row.name
    for row in (row for row in study.rows.values() if row.record is not None):
        named = {record.key for record in records if record.identity.hash == row.record}
        assert named, row.name
        assert study.commit is not None, "say which commit could run it"
        assert not named & shown, row.name


def printed_commands() -> list[str]:
    """The commands below the tables of the documents."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((TOP / "docs").rglob("*.md")))
    return sorted(set(re.findall(r"Runs: `holotype (bench [^`]+)`", text)))


@pytest.mark.parametrize("command", printed_commands())
def test_the_commands_below_the_tables_are_taken(command: str) -> None:
    """Also those of studies some of whose rows belong to an earlier version."""
    words = command.replace("experiments/", f"{TOP}/experiments/").replace("DIR", "data").split()
    assert asked_for(words[1:])
