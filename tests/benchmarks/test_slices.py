"""The benchmark of slices: simulated ones are all written, and memory is measured through the real stream."""

from __future__ import annotations

import json

import slices
from holotype.embeddings import store


def test_simulated_slices_are_all_written(tmp_path, capsys) -> None:
    slices.main(["--slices", "20", "--folder", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert told["slices"] == 20
    assert len(list((tmp_path / "parts").glob("part-*"))) == 20


def test_the_memory_of_embed_is_that_of_every_source(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(store, "encode_rows", store.encode_rows)  # as before when the test is over
    (tmp_path / "sources").mkdir()
    for number, source in enumerate(slices.make_sources(30, tmp_path / "sources").values()):
        slices.main(["--one", str(source), "--folder", str(tmp_path / str(number))])
        told = json.loads(capsys.readouterr().out)
        assert told["rows"] == 30
        assert told["peak_MB"] >= told["plan_MB"] >= told["imports_MB"] > 0


def test_the_memory_of_assign_is_measured(tmp_path, squares_folder, tiny_flags, capsys) -> None:
    run = slices.make_run(tmp_path, str(squares_folder), *tiny_flags)
    slices.main(["--one", str(squares_folder), "--run", str(run), "--folder", str(tmp_path / "placed")])
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == sum(path.suffix == ".png" for path in squares_folder.rglob("*"))
    assert len(list((tmp_path / "placed").glob("part-*"))) == 1
