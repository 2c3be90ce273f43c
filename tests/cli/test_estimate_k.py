"""`holotype estimate-k`: the range, the curve on the terminal, and count.json."""

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from holotype.cli.embed import source_label
from holotype.clustering.k_curve import CountEstimate, CountPoint

from .conftest import assert_sentence

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-many.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def words(tiny_backbone_file: Path) -> list[object]:
    return ["--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]


def test_folders_of_like_names_are_two_collections(tmp_path: Path, monkeypatch) -> None:
    """The folder of the answer is called after them: the estimate of one would take the place of the other's."""
    for name in ("2024.05", "2024.06"):
        (tmp_path / name).mkdir()
    (tmp_path / "squares.csv").write_text("path")
    monkeypatch.chdir(tmp_path / "2024.05")
    found = [source_label(name) for name in (".", "../2024.06/", "../squares.csv", "cub")]
    assert found == ["2024.05", "2024.06", "squares", "cub"]


def test_bad_input_is_one_sentence(holotype, squares_folder: Path, words, tmp_path: Path) -> None:
    outcome = holotype("estimate-k", squares_folder, "--k-max", 1, *words, "--out", tmp_path / "a")
    assert_sentence(outcome, "--k-max 1 is smaller than the 2 known classes")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "one.png").write_bytes(b"no picture")
    outcome = holotype("estimate-k", tmp_path / "broken", *words, "--out", tmp_path / "b")
    assert_sentence(outcome, "None of the 1 images")
    assert_sentence(holotype("estimate-k", "cubb", *words), "did you mean cub")


def test_images_without_labels_and_a_benchmark(holotype, words, tmp_path: Path, monkeypatch) -> None:
    folder, noise = tmp_path / "plain", np.random.default_rng(0)
    folder.mkdir()
    for i in range(12):
        Image.fromarray(noise.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    outcome = holotype("estimate-k", folder, *words, "--out", tmp_path / "o")
    assert (outcome.code, "Labels of fewer than two classes" in outcome.out) == (0, True), outcome.err
    estimate = CountEstimate(8, 8, 8, (CountPoint(8, 0.5, 0.1, 1.0),), "8 categories.")
    monkeypatch.setattr("holotype.cli.estimate_k.estimate_table", lambda *_, **__: estimate)
    embedded = lambda table, *_, **__: SimpleNamespace(features=None, problem=table.problem)  # noqa: E731
    monkeypatch.setattr("holotype.cli.estimate_k.embed_table", embedded)
    outcome = holotype("estimate-k", "fashion-sample", *words, "--out", tmp_path / "b")
    assert "fashion-sample has 10 classes" in outcome.out


def test_the_page_runs(holotype, squares_folder: Path, words, tmp_path: Path, monkeypatch) -> None:
    """What docs/how-many.md estimates and embeds runs as it stands, on coloured squares."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(squares_folder, "photos")
    Path("photos/squares.csv").rename("labels.csv")
    found = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    text = "".join(block for name, block in found if name == "bash")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert len(lines) >= 3
    for _, name, *rest in lines:
        if name in ("estimate-k", "embed"):  # the words of the others are parsed by tests/docs/test_readme.py
            outcome = holotype(name, *rest, *words)
            assert outcome.code == 0, outcome.err
    assert json.loads(Path("runs/photos-estimate-k/count.json").read_text())["of"]["k_max"] == 20
    for block in (text for name, text in found if name == "python"):
        exec(compile(block, str(PAGE), "exec"), {})
