"""Two rounds with corrections between them: the figures are those of untouched images, and a rerun trains nothing."""

from __future__ import annotations

import json

import corrections
import numpy as np
import pandas as pd
import pytest
from corrections import Judge, collection, main, nameless
from twenty import Collection

from holotype.categories.found import Discovery
from holotype.data.sources import load_table
from holotype.data.table import Table
from holotype.errors import InputError


def found(ids: list[str]) -> Discovery:
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(len(ids))], "category_id": ids})
    return Discovery("made-1", ("a",), frame, [])


def test_all_is_that_of_the_rows_and_a_rejected_image_is_wrong() -> None:
    label = np.array(["a", *[""] * 7], dtype=object)
    paths = np.array([f"{i}.png" for i in range(8)], dtype=object)
    judge = Judge(
        Collection("made", Table(paths, label, ("a",), np.array(list("aaaabbbb"), dtype=object)), 2)
    )
    ids = ["a", "a", "a", "new-01", "new-01", "new-01", "new-01", ""]
    assert judge.free.tolist() == [False, *[True] * 7]
    assert judge.score(found(ids), judge.free) == pytest.approx(100 * 5 / 7, abs=1e-3)
    untouched = judge.free & (np.array(ids) != "")
    assert judge.score(found(ids), untouched) == pytest.approx(100 * 5 / 6, abs=1e-3)
    with pytest.raises(InputError, match="lay elsewhere"):
        judge.score(found(ids[::-1][:7]), untouched)
    renamed = [{"a": "z", "new-01": "y"}.get(id, id) for id in ids]
    assert judge.score(found(renamed), untouched) == judge.score(found(ids), untouched)


@pytest.fixture
def squares(squares_folder, monkeypatch) -> Collection:
    """Coloured squares; six of the yellow ones are something that no category stands for."""
    table = load_table(squares_folder / "squares.csv")
    assert table.truth is not None
    truth = table.truth.astype(object)
    truth[np.flatnonzero(truth == "yellow")[:6]] = "straw"
    of = Collection("squares", Table(table.path, table.label, table.known, truth, root=table.root), 4)
    monkeypatch.setattr(corrections, "collection", lambda *_: of)
    return of


def test_two_rounds_of_two_seeds_and_a_rerun(
    squares, tiny_backbone_file, tmp_path, capsys, monkeypatch
) -> None:
    words = ["squares", "--seeds", "1", "2", "--steps", "12", "--k", "told", "--device", "cpu"]
    words += ["--backbone", str(tiny_backbone_file), "--work", str(tmp_path / "work")]
    out = tmp_path / "record.json"
    assert main([*words, "--out", str(out)]) == 0
    record, printed = json.loads(out.read_text()), capsys.readouterr().out
    assert str(tmp_path) not in out.read_text()
    assert [row["seed"] for row in record["collections"]] == [1, 2]
    for row in record["collections"]:
        made = row["edits"]
        named = made["confirm"] + made["move"] + made["split"] + made["reject"]
        assert row["corrections"] == named + made["merge"]
        assert row["untouched_images"] == row["unlabelled"] - named == 48 - named
        assert row["labels"] >= made["confirm"] + made["move"] + made["split"] > 0
        assert row["untouched"]["others"] is not None
    first, second = record["collections"]
    assert f"squares seed 1 untouched {first['untouched']['round 1']:5.1f} -> " in printed
    assert record["summary"]["squares"]["pairs"] == 2
    # a record that was lost is written again from what is there, and nothing is trained
    out.unlink()
    monkeypatch.setattr(corrections, "discover_table", None)
    assert main([*words, "--out", str(out)]) == 0
    assert json.loads(out.read_text())["collections"] == [first, second]
    assert main(["--table", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("| squares | 64 | ")


def test_the_truth_is_not_given_to_training(squares, tmp_path, monkeypatch) -> None:
    class Seen(Exception):
        pass

    def look(table, *_, **__) -> None:
        assert table.truth is None
        raise Seen

    monkeypatch.setattr(corrections, "discover_table", look)
    with pytest.raises(Seen):
        main(["squares", "--work", str(tmp_path), "--device", "cpu"])


def test_records_of_one_kind_make_one_table(tmp_path, capsys) -> None:
    def record(name: str, steps: int) -> str:
        row = {"collection": name, "seed": 0, "images": 1000, "corrections": 80}
        row["untouched"] = {"round 1": 50.0, "corrected": 52.0, "round 2": 60.0, "others": None}
        content = {"backbone": "embedded", "steps": steps, "k": "auto", "collections": [row]}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return str(tmp_path / f"{name}.json")

    one, two, other = record("one", 450), record("two", 450), record("other", 20)
    assert main(["--table", one, two, two]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| one", "| two", "| mean"]
    assert main(["--table", one, other]) == 2
    assert "differ in backbone, steps, k" in capsys.readouterr().err
    assert main([]) == 2
    assert "Name a collection" in capsys.readouterr().err


def test_the_whole_sample_is_that_of_the_demo(tmp_path) -> None:
    of = collection("full", {}, tmp_path)
    assert (len(of.table), of.k, len(of.table.known)) == (1000, 10, 5)
    assert of.table.truth is not None
    labelled = of.table.labelled
    assert (of.table.truth[labelled] == of.table.label[labelled]).all()


def test_folders_are_nobodys_business() -> None:
    words = [
        "cub9",
        "--cub",
        "/somewhere",
        "--backbone",
        "/there/net.safetensors",
        "--work",
        "/x",
        "--out",
        "y",
    ]
    assert nameless(words) == ["cub9", "--backbone", "net.safetensors"]


def test_what_was_measured_before_a_stop_is_kept(squares, tmp_path, monkeypatch) -> None:
    def stopped(of, seed, *_) -> dict:
        if seed == 2:
            raise InputError("stopped")
        score = {"round 1": 50.0, "corrected": 52.0, "round 2": 60.0}
        return {
            "collection": "squares",
            "seed": seed,
            "untouched": score,
            "everything": score,
            "k": [4, 5],
            "corrections": 80,
            "edits": {},
            "labels": 60,
            "seconds": [1.0, 1.0],
        }

    monkeypatch.setattr(corrections, "measure", stopped)
    monkeypatch.setattr(corrections, "add_others", lambda *_: None)
    out = tmp_path / "record.json"
    words = ["squares", "--seeds", "1", "2", "--work", str(tmp_path), "--device", "cpu", "--out", str(out)]
    assert main(words) == 2
    assert [row["seed"] for row in json.loads(out.read_text())["collections"]] == [1]
