"""The command: it measures what it is asked for, keeps what it has, and tells mistakes in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import parts
import speed
from measure import EFFORTS, Clusters, Effort, Plan, make_photographs
from parts import PARTS
from speed import BEGIN, END

LINE = "--device cpu --n-images 32 --arch test_vit --image-size 32 --batch 8 --k 4 --cache-views 2+1"
SMALL = LINE.split()


@pytest.fixture(autouse=True)
def little_effort(monkeypatch) -> None:
    plan = Plan(1, 1, 1)
    few = Effort(plan, plan, plan, plan, 1, runs=(1, 2), ks=(4, 6), methods=plan, image_stages=plan)
    few = replace(
        few,
        views=("2+1", "3+2"),
        grown=(40, 80),
        communities=Clusters(60, 8, 4),
        kmeans=Clusters(80, 8, 4, starts=2),
    )
    monkeypatch.setitem(EFFORTS, "cpu", few)
    for name in ("gcd", "dccl", "promptcal"):  # 65 536 outputs take seconds a step on a CPU
        given = parts.SETTINGS.get(name, {})
        monkeypatch.setitem(parts.SETTINGS, name, {**given, "proj_out": 0})
    monkeypatch.setattr(parts, "WORKERS", 1)
    monkeypatch.setattr("parts.SIDES", {"cpu": 64})
    monkeypatch.setattr(speed, "make_photographs", partial(make_photographs, longer=80))
    monkeypatch.setattr("logging.basicConfig", lambda **given: None)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that they are as before when the test is over


def test_a_whole_run(tmp_path: Path, capsys) -> None:
    out = tmp_path / "new" / "speed.json"
    assert speed.main([*SMALL, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert list(record["parts"]) == list(PARTS)
    found = {
        (row["pipeline"], row["method"], row["arithmetic"])
        for name in ("reference", "exact", "cached")
        for row in record["parts"][name]
    }
    kinds = ("reference style", "exact", "cached 2+1")
    assert found == {(kind, method, "fp32") for kind in kinds for method in ("simgcd", "rpc")}
    assert [row["batch"] for row in record["parts"]["batch"]] == [4, 8, 16] * 2
    assert [row["k"] for row in record["parts"]["k"]] == [4, 6] * 2
    assert [row["runs"] for row in record["parts"]["together"]] == [1, 2] * 2
    grown = record["parts"]["images"]
    assert [row["images"] for row in grown] == [32, 16, 8]
    assert grown[0]["cache"]["bytes"] == 4 * grown[2]["cache"]["bytes"]
    assert grown[0]["store_bytes"] > grown[1]["store_bytes"] > grown[2]["store_bytes"]
    assert [row["pipeline"] for row in record["parts"]["views"]] == ["cached 2+1", "cached 3+2"]
    grown = [(row["images"], row["k"]) for row in record["parts"]["growth"]]
    assert grown == [(40, 6), (80, 6), (40, 4)]
    assert record["parts"]["ceilings"]["share"] > 0
    assert [row["method"] for row in record["parts"]["methods"]] == list(parts.TOKEN_METHODS)
    assert [row["method"] for row in record["parts"]["image_stages"]] == ["sptnet"] * 2 + ["promptcal"] * 2
    assert [row["images"] for row in record["parts"]["clustering"]] == [60, 80, 60]
    assert record["torch"] == torch.__version__
    assert record["command"].startswith("python benchmarks/speed.py --device cpu --n-images 32")
    assert record["n_images"] == 32
    # the tables of the file are those that the run printed last
    printed = capsys.readouterr().out
    assert speed.main(["--table", str(out)]) == 0
    assert printed.endswith(capsys.readouterr().out)


def test_parts_join_a_file_and_a_killed_run_keeps_what_it_has(tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "speed.json"
    words = [*SMALL, "--out", str(out), "--only"]
    assert speed.main([*words, "exact"]) == 0
    first = json.loads(out.read_text())

    def broken(bench, effort):
        yield {**first["parts"]["exact"][0], "pipeline": "cached 2+1"}
        raise KeyboardInterrupt

    monkeypatch.setitem(parts.PARTS, "cached", broken)
    with pytest.raises(KeyboardInterrupt):
        speed.main([*words, "cached,ceilings"])
    record = json.loads(out.read_text())
    assert record["parts"]["exact"] == first["parts"]["exact"]
    assert record["costs"] == first["costs"]
    assert len(record["parts"]["cached"]) == 1
    capsys.readouterr()
    assert speed.main([*words[:-1], "--k", "6", "--only", "exact"]) == 2
    assert "another k" in capsys.readouterr().err
    assert json.loads(out.read_text()) == record


def test_what_fails_costs_its_own_rows_alone(tmp_path: Path, monkeypatch, capsys) -> None:
    """A part, or a method of one."""
    real = parts.measure_loop

    def broken(bench, name, *given, **settings):
        if name == "uno":
            raise torch.OutOfMemoryError("too large")
        return real(bench, name, *given, **settings)

    monkeypatch.setattr(parts, "TOKEN_METHODS", ("simgcd", "uno", "rs"))
    monkeypatch.setattr(parts, "measure_loop", broken)
    monkeypatch.setitem(parts.PARTS, "exact", lambda bench, effort: broken(bench, "uno"))
    out = tmp_path / "speed.json"
    assert speed.main([*SMALL, "--out", str(out), "--only", "exact,methods,clustering"]) == 1
    found = json.loads(out.read_text())["parts"]
    assert list(found) == ["methods", "clustering"]
    assert [row["method"] for row in found["methods"]] == ["simgcd", "rs"]
    assert len(found["clustering"]) == 3
    assert "failed, as told above: exact, methods." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "exact,nothing"], ("'nothing'", "--only")),
        (["--table", "nowhere.json"], ("nowhere.json", "measure again")),
        ([*SMALL, "--n-images", "0"], ("--n-images",)),
        ([*SMALL, "--arch", "vit_of_nobody", "--only", "exact"], ("vit_of_nobody", "--arch")),
        ([*SMALL, "--cache-views", "many", "--only", "cached"], ("'many'",)),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: list[str], told: tuple[str, ...], tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert speed.main(words) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in told)
    assert "Traceback" not in message


def test_tables_go_into_a_document(tmp_path: Path, capsys) -> None:
    out, page = tmp_path / "speed.json", tmp_path / "page.md"
    speed.main([*SMALL, "--out", str(out), "--only", "ceilings"])
    page.write_text(f"{BEGIN}\n{END}\n")
    assert speed.main(["--table", str(out), "--into", str(page)]) == 0
    assert "trunk alone" in page.read_text()
    (tmp_path / "run.json").write_text('{"method": "rpc"}')
    assert speed.main(["--table", str(tmp_path / "run.json")]) == 2
    assert "lacks hardware" in capsys.readouterr().err


def test_defaults_are_those_of_the_target() -> None:
    gpu, cpu = speed.DEFAULTS["cuda"], speed.DEFAULTS["cpu"]
    assert (gpu.n_images, gpu.arch, gpu.batch, gpu.k) == (5994, "vit_base_patch16_224", 128, 200)
    assert (cpu.arch, cpu.batch, cpu.cache_views, gpu.cache_views) == ("embedded", 64, "4+2", "16+8")
