"""docs/place-new-images.md, run as it stands: on coloured squares, with a tiny network."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.discovery.estimator import Discoverer
from holotype.export.assign import ASSIGN_COLUMNS
from holotype.results.centroids import FAR_QUANTILE
from small_run import train_small

PAGE = Path(__file__).resolve().parents[2] / "docs" / "place-new-images.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in FENCE.findall(PAGE.read_text(encoding="utf-8")) if name == language]


def test_the_commands_run(tmp_path, monkeypatch, holotype, squares_folder, tiny_backbone_file) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    monkeypatch.chdir(tmp_path)
    train_small(tmp_path / "runs" / "photos-discover", squares_folder, tiny_backbone_file, epochs=1)
    (tmp_path / "new").mkdir()
    for number, path in enumerate(sorted(squares_folder.rglob("*.png"))[::9]):
        (tmp_path / "new" / f"{number}.png").write_bytes(path.read_bytes())
    lines = [line for block in blocks("bash") for line in block.strip().splitlines()]
    assert len(lines) >= 4
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "holotype"
        outcome = holotype(*words)
        assert outcome.code == 0, outcome.err
    n = len(list((tmp_path / "new").iterdir()))
    assert len(pd.read_csv("runs/photos-discover/assigned/new.csv")) == n
    assert len(pd.read_parquet("placed.parquet")) == n
    assert len(list(Path("by-category").rglob("*.png"))) == n
    assert Path("model.onnx").is_file()


def test_the_python_runs(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> None:
    class Small(Discoverer):
        def __init__(self, k: object = 4, out: str | None = None) -> None:
            super().__init__(k=4, out=out, steps=4, backbone=str(tiny_backbone_file), device="cpu")

        def get_params(self, deep: bool = True) -> dict[str, object]:
            return {"k": self.k, "out": self.out}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("holotype.discovery.estimator.Discoverer", Small)
    frame = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    images = [np.asarray(Image.open(squares_folder / path)) for path in frame.path]
    names = {"images": images, "labels": list(frame.label), "new_images": images[:3]}
    first, service = blocks("python")
    exec(compile(first, str(PAGE), "exec"), names)
    assert list(names["again"].labels_) == list(names["found"].labels_)
    exec(compile(service, str(PAGE), "exec"), names)
    told = names["answer"]((squares_folder / frame.path[0]).read_bytes())
    assert told["category_id"] == names["again"].predict([images[0]])[0]
    assert told["problem"] == ""
    assert json.loads(json.dumps(told)) == told  # it can be sent
    for content in (b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        assert names["answer"](content) == {"problem": "This is no image that can be read."}


def test_the_page_tells_the_columns_and_the_rule() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ASSIGN_COLUMNS if f"| `{name}` |" not in text] == []
    assert f"{100 * (1 - FAR_QUANTILE):g} %" in text
