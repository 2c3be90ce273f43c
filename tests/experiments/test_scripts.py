"""The scripts of studies and benchmarks take their words, and the tables on pages are those of their records."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import harness
from holotype.errors import InputError

TOP = Path(__file__).resolve().parents[2]
STUDIES = TOP / "docs" / "studies"
SCRIPTS = (
    *(
        "confidence",
        "corrections",
        "counting",
        "defaults",
        "exhibits",
        "folders",
        "labelling",
        "new_images",
    ),
    "votes",
    *("backbones", "sampling", "slices", "speed", "whole_run"),
)
TABLES = {
    "folders --mix --table --out folders.jsonl#confirmed": "ensembles.md",
    "votes --table": "ensembles.md",
    "defaults --table": "defaults.md",
    "defaults --blank --table --out unlabelled.jsonl": "defaults.md",
    "new_images --table": "confidence.md",
    "counting --table counting.jsonl#embedded": "counting.md",
    "counting --few --table counting-few.jsonl#few": "counting.md",
    "counting --mixed --table counting-mixed.jsonl#embedded": "counting.md",
}
"""Commands that print the table of a record, and the page that shows at least three of its lines."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_takes(name: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(["--help"])
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("command", TABLES)
def test_the_table_of_a_record_stands_on_its_page(command: str, capsys, monkeypatch) -> None:
    monkeypatch.chdir(TOP)
    name, *words = command.split()
    words = [f"experiments/results/{word}" if ".jsonl" in word else word for word in words]
    assert importlib.import_module(name).main(words) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    page = (STUDIES / TABLES[command]).read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line in page]) >= 3


def test_a_record_is_a_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    for name, value in (("b", 1), ("a", 2), ("b", 3)):
        harness.write_record(Path(f"{file}#{name}"), {"rows": {"x": value}})
    assert [line[:11] for line in file.read_text().splitlines()] == ['{"name":"a"', '{"name":"b"']
    assert harness.read_rows(Path(f"{file}#b"), "this.py") == {"x": 3}
    assert harness.read_rows(Path(f"{file}#c"), "this.py") == {}
    assert len(harness.read_records(file, ["rows"], "this.py")) == 2
    with pytest.raises(InputError, match="lacks other"):
        harness.read_record(Path(f"{file}#a"), ["other"], "this.py")
    path = tmp_path / "new" / "study.json"
    harness.write_record(path, {"rows": {}})
    assert (harness.has_record(path), harness.read_record(path, ["rows"], "this.py")) == (True, {"rows": {}})


def test_the_interval_is_students() -> None:
    low, high = harness.interval_of([1.0, 2.0, 3.0])  # 2 ± 4.303 / sqrt(3)
    assert (round(low, 2), round(high, 2)) == (-0.48, 4.48)
