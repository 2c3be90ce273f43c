"""The study of how many categories there are, from end to end on the embedded sample."""

from __future__ import annotations

import json
from pathlib import Path

import counting
import numpy as np


def write_made(folder, n_classes: int, each: int) -> None:
    """Features of classes that lie apart, half of them known, as the script keeps them."""
    draw = np.random.default_rng(0)
    truth = np.repeat([f"c{i:02}" for i in range(n_classes)], each)
    centres = draw.standard_normal((n_classes, 8))
    features = np.repeat(centres, each, axis=0) + 0.2 * draw.standard_normal((len(truth), 8))
    labelled = (truth < f"c{n_classes // 2:02}") & (np.arange(len(truth)) % 2 == 0)
    np.savez(folder / "made.npz", f=features, truth=truth, label=np.where(labelled, truth, ""))


def test_a_whole_data_set_beside_its_curve(tmp_path, capsys) -> None:
    write_made(tmp_path, 10, 30)
    words = ["--datasets", "made", "--features", str(tmp_path), "--out", str(tmp_path / "a.json"), "--curve"]
    assert counting.main(words) == 0
    record = json.loads((tmp_path / "a.json").read_text())
    (one,) = record["problems"]
    assert (one["name"], one["known"], one["k"], one["images"]) == ("made", 5, 10, 300)
    assert one["low"] <= one["estimate"] <= one["high"]
    assert one["curve"] == 10
    assert record["command"].startswith("python benchmarks/counting.py")
    capsys.readouterr()
    assert counting.main(["--table", str(tmp_path / "a.json")]) == 0
    assert f"| made | embedded | 5 | 10 | {one['estimate']} |" in capsys.readouterr().out


def test_random_problems_are_told_in_the_mean(tmp_path, capsys) -> None:
    write_made(tmp_path, 24, 30)
    words = [
        "--datasets",
        "made",
        "--features",
        str(tmp_path),
        "--problems",
        "6",
        "--out",
        str(tmp_path / "a.json"),
    ]
    assert counting.main(words) == 0
    record = json.loads((tmp_path / "a.json").read_text())
    assert [one["name"] for one in record["problems"]] == ["made", *(f"made {i}" for i in range(6))]
    capsys.readouterr()
    counting.main(["--table", str(tmp_path / "a.json")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[-3:]] == ["| equal sizes", "| 10 to 1", "| all"]
    off = np.mean([abs(one["estimate"] / one["k"] - 1) for one in record["problems"][1:]])
    assert f" {100 * off:.1f} % " in lines[-1]


def test_the_page_shows_what_was_recorded() -> None:
    top = Path(__file__).parents[2]
    folder = top / "experiments" / "results" / "counting"
    records = [folder / f"{name}.json" for name in ("embedded", "small", "small-whole")]
    shown = counting.tables([json.loads(path.read_text()) for path in records])
    page = (top / "docs" / "how-many.md").read_text()
    assert shown in page
    now, before = (
        counting._summary(
            [
                one
                for one in json.loads((folder / f"{name}.json").read_text())["problems"]
                if " " in one["name"]
            ]
        ).split(" | ")
        for name in ("embedded-more", "embedded-more-before")
    )
    assert f"On {now[0]} more random problems" in page
    assert (
        f"it is off by {now[1]} with a bias of {now[2]}, and the range holds the truth in {now[3]}." in page
    )
    assert (
        f"the estimate before was off by {before[1]} with a bias of {before[2]}; now it is {now[1]}" in page
    )


def test_a_file_to_write_must_be_named(capsys) -> None:
    assert counting.main([]) == 2
    assert "--out" in capsys.readouterr().err
