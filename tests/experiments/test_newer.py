"""The script of the newer methods: its rules on made records, and what of them the documents get."""

import shutil
from argparse import Namespace
from pathlib import Path

import pytest
from tests.made_study import made_identity, made_record

import exhibits
import newer
from harness import compact
from holotype.runs.record import Records
from holotype.runs.study import SweepRequest, experiments, read_study

TOP = Path(__file__).parents[2]


def made(dataset: str, row: str, seeds, old: float, new: float) -> list[str]:
    study = newer.STUDIES[newer.study_name(dataset)]
    runs = experiments(study, SweepRequest([row], seeds, root="data"))
    changes = {"data.name": dataset, "train.precision": "bf16"}
    identities = [made_identity(run, changes) for run in runs if run.dataset == dataset]
    return [compact(made_record(one, old, new).as_dict()) for one in identities]


@pytest.fixture
def bench(tmp_path, monkeypatch) -> newer.Bench:
    """Two newer rows on CUB, and two readings: one gains on all sets, the other more, but loses on one."""
    lines = [*made("cub", "selex", (20, 21), 70, 66), *made("cub", "eagc+rpc", (20, 21), 70, 68)]
    for dataset in (newer.CUB, newer.CARS, newer.CIFAR):
        lines += made(dataset, newer.TODAY, (0, 1), 60, 60)
        lines += made(dataset, "printed", (0, 1), 61, 61)
        lines += made(dataset, "labelled", (0, 1), *([57, 57] if dataset == newer.CARS else [70, 70]))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "newer.jsonl").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(newer, "RESULTS", tmp_path / "none")
    options = {"out": tmp_path / "out", "share": [], "device": "cpu", "device_gb": None}
    options |= {"rehearse": False, "root": Path("data"), "minutes": 1.0}
    return newer.Bench(Namespace(**options, backbone="vit_small_patch14_224"))


def test_the_reading_that_loses_on_a_set_is_not_chosen(bench, monkeypatch):
    assert newer.gains(bench)["printed"] == pytest.approx([1, 1, 1])
    assert newer.gains(bench)["labelled"] == pytest.approx([10, -3, 10])
    assert newer.chosen_reading(bench) == "printed"
    monkeypatch.setattr(newer, "LEAST_GAIN", 1.5)
    assert newer.chosen_reading(bench) == ""


def test_the_best_rows_of_the_screening_go_on(bench):
    assert newer.chosen_rows(bench) == ["eagc+rpc", "selex"]
    assert not newer.is_ranked(bench)
    assert not newer.is_read(bench)
    waves = [*newer.bases(), *newer.newer(newer.chosen_rows(bench)), *newer.confirm("printed")]
    assert {wave.dataset for wave in waves} == {newer.CUB, newer.CARS, newer.CIFAR}
    for wave in waves:
        assert bench.experiments(wave)
    assert sum("rpc-printed" in wave.rows for wave in waves) == 3
    assert sum({"eagc+rpc", "selex"} <= set(wave.rows) for wave in waves) == 3
    assert all(bench.experiments(wave) for wave in (*newer.screen(), *newer.pairs(), *newer.peers()))


def test_of_a_method_in_two_settings_only_the_better_goes_on(bench, monkeypatch):
    monkeypatch.setattr(newer, "ranking", lambda _: ["selex-half", "selex", "bia+rpc"])
    assert newer.chosen_rows(bench) == ["selex-half", "bia+rpc"]


def test_seeds_come_one_after_the_other_over_all_rows(bench):
    seeds = [one.seed for one in bench.experiments(newer.screen()[0])]
    assert seeds == sorted(seeds)
    assert len(seeds) == 2 * len(newer.NEWER)


def test_records_become_studies_a_page_and_a_table_in_the_readme(bench, tmp_path, monkeypatch):
    top = tmp_path / "top"
    for name in ("README.md", "mkdocs.yml"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, top / name)
    (top / "docs" / "studies").mkdir(parents=True)
    shutil.copy(TOP / "docs/studies/index.md", top / "docs/studies/index.md")
    (top / "experiments").mkdir()
    monkeypatch.setattr(newer, "RESULTS", Path("experiments/results"))
    monkeypatch.setattr(exhibits, "main", lambda words: None)
    for _ in range(2):
        newer.adopt([tmp_path / "out"], top)
    study = read_study(top / "experiments" / "newer.yaml")
    assert set(study.rows) == {"selex", "eagc+rpc", "today", "printed", "labelled"}
    assert study.rows["selex"].datasets == ("cub",)
    assert study.rows["selex"].seeds == (20, 21)
    records = Records(top / "experiments/results")
    tables = [
        exhibits.build_table(block.choice, top, records)
        for name in ("README.md", "docs/studies/newer.md")
        for block in exhibits_of(top, name)
    ]
    assert sum("| eagc+rpc |" in table for table in tables) == 2
    assert (top / "README.md").read_text().count("<!-- table: newer ") == 1
    assert (top / "mkdocs.yml").read_text().count("studies/newer.md") == 1


def exhibits_of(top: Path, name: str):
    text = (top / name).read_text(encoding="utf-8")
    return [part[0] for part in exhibits.split(text, name) if not isinstance(part, str)]
