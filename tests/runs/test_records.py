"""Records on disk: one file for each run, and nothing that was changed by hand is taken for a result."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.machine.sealed import unsealed
from holotype.runs.record import Record
from holotype.runs.records import Records, check_agree, read_record
from holotype.runs.settings import resolve
from tests.made_study import made_identity, made_record

TOP = Path(__file__).resolve().parents[2]
ROWS = [
    {"class": "a", "kind": "known", "n": 3, "correct": 2, "accuracy": 2 / 3, "category": 0},
    {"class": "“b”", "kind": "novel", "n": 4, "correct": 0, "accuracy": 0.0, "category": None},
]


def record(seed: int = 0, new: float = 50, **changes: Any) -> Record:
    return made_record(made_identity(resolve("rpc", "cub", overrides={"seed": seed}), changes), 60, new)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_record_is_written_under_its_name_and_comes_back(tmp_path: Path) -> None:
    one, other = record(), record(3)
    records = Records(tmp_path)
    assert records.by_key == {}
    assert records.add(one) == tmp_path / "runs" / f"{one.identity.hash}-s0.json" == records.path(one.key)
    records.add(other)
    assert records.by_key == Records(tmp_path).by_key == {one.key: one, other.key: other}
    assert read_record(records.path(one.key)) == one
    assert sorted(files(tmp_path)) == sorted(f"runs/{each.identity.name}.json" for each in (one, other))


def test_classes_stand_once_for_all_runs_of_a_table(tmp_path: Path) -> None:
    for seed in (0, 1):
        Records(tmp_path).add(record(seed), ROWS)
    found = {name: unsealed(text) for name, text in files(tmp_path / "classes").items()}
    table = record().identity.data["table"]
    assert found[f"table-{table[:16]}.json"] == {
        "format": 1,
        "table": table,
        "class": ["a", "“b”"],
        "kind": ["known", "novel"],
        "n": [3, 4],
    }
    mine = {"format": 1, "table": table, "correct": [2, 0], "category": [0, None]}
    assert [found[f"{record(seed).identity.name}.json"] for seed in (0, 1)] == [mine, mine]
    assert len(found) == 3


def test_a_second_record_of_one_run_must_say_the_same(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.add(record())
    before = files(tmp_path)
    with pytest.raises(InputError, match=r"contradicts .*scores\.all 0\.525 and 0\.5325") as refused:
        records.add(record(new=51))
    assert str(refused.value).count("\n") == 0
    assert files(tmp_path) == before
    later = dataclasses.replace(record(), made=dataclasses.replace(record().made, seconds=9.0))
    records.add(later)  # made once more, with the same end
    check_agree(record(), None, "")
    check_agree(None, record(), "")


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / "runs" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda told: told["scores"].update(all=0.54),
            "says All = 0.540000 where its Old and New imply 0.525",
        ),
        (lambda told: told["scores"].update(new=0.6), "says All = 0.525000"),
        (
            lambda told: told["identity"]["train"].update(epochs=7),
            "does not bear the hash of its own identity",
        ),
        (lambda told: told.update(hash="0" * 16), "does not bear the hash of its own identity"),
        (lambda told: told["identity"].update(seed=5), "holds the record of run"),
    ],
)
def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    content = json.loads(json.dumps(record().as_dict()))
    change(content)
    path = write(tmp_path, record().identity.name, content)
    with pytest.raises(InputError) as refused:
        _ = Records(tmp_path).by_key
    assert told in str(refused.value)
    assert str(path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "copy", record().as_dict())
    with pytest.raises(InputError, match=rf"copy\.json holds the record of run {record().identity.name}"):
        _ = Records(tmp_path).by_key
    path.rename(path.with_name(f"{record().identity.name}.json"))
    assert list(Records(tmp_path).by_key) == [record().key]


@pytest.mark.parametrize(
    "content", ["", "[]", "3", '{"method": "rpc"}', json.dumps(record().as_dict())[:-9], '"\\ud800"']
)
def test_a_file_that_is_no_record(tmp_path: Path, content: str) -> None:
    write(tmp_path, "x", content)
    with pytest.raises(InputError, match=r"x\.json") as refused:
        _ = Records(tmp_path).by_key
    assert len(str(refused.value).splitlines()) == 1


def test_a_record_of_another_version_says_so(tmp_path: Path) -> None:
    write(tmp_path, "x", record().as_dict() | {"format": 1})
    with pytest.raises(InputError, match=r"record of another version \(format 1, not 2\)"):
        _ = Records(tmp_path).by_key


def test_files_of_other_kinds_are_nobodys_business(tmp_path: Path) -> None:
    """Tables and measurements lie beside the folder of records."""
    (tmp_path / "speed.json").write_text("{}")
    (tmp_path / "table.md").write_text("")
    assert Records(tmp_path).by_key == {}


def test_records_of_a_jsonl_file_are_read_beside_those_of_the_folder(tmp_path: Path) -> None:
    one, other = record(0), record(1)
    Records(tmp_path).add(one)
    lines = [json.dumps(other.as_dict()), json.dumps({"name": "h200", "parts": {}})]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines) + "\n")
    assert Records(tmp_path).by_key == {other.key: other, one.key: one}


def test_a_jsonl_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_text("{")
    with pytest.raises(InputError):
        _ = Records(tmp_path).by_key


def test_every_record_of_the_repository_can_be_read() -> None:
    assert len(Records(TOP / "experiments" / "results").by_key) > 400
