"""Figures show what was recorded, are small, and come out the same each time."""

from __future__ import annotations

import json
from pathlib import Path

import figures
import numpy as np
import pytest


def write_series(path: Path, name: str, **series: list) -> str:
    path.write_text(json.dumps({"name": name, "epochs": [1, 10], "series": series}))
    return str(path)


def test_panels_without_series_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = write_series(tmp_path / "a.json", "one", **{"w_old/known": [0.5, 0.1], "old": [60, None]})
    second = write_series(tmp_path / "b.json", "two", **{"old": [61, 62], "unheard of": [1, 2]})
    out = tmp_path / "m.svg"
    assert figures.main(["mechanism", "--files", first, second, "--out", str(out)]) == 0
    text = out.read_text()
    for word in ("mean w_old (known", "scores", "one", "two"):
        assert word in text
    assert "detector" not in text
    assert "unheard of" not in text
    before = out.read_bytes()
    figures.main(["mechanism", "--files", first, second, "--out", str(out)])
    assert out.read_bytes() == before


def test_broken_files_are_told(tmp_path: Path, capsys) -> None:
    uneven = write_series(tmp_path / "a.json", "one", old=[1, 2, 3])
    assert figures.main(["mechanism", "--files", uneven, "--out", str(tmp_path / "m.svg")]) == 2
    assert "not as long as its epochs" in capsys.readouterr().err
    (tmp_path / "b.json").write_text("{}")
    assert figures.main(["mechanism", "--files", str(tmp_path / "b.json"), "--out", "m.svg"]) == 2
    np.savez(tmp_path / "c.npz", points=np.zeros((3, 2)))
    assert figures.main(["tsne", "--files", str(tmp_path / "c.npz"), "--out", "m.svg"]) == 2
    assert "does not hold points, class, kind and name" in capsys.readouterr().err


def write_map(path: Path, name: str, n: int = 3000) -> str:
    random = np.random.default_rng(len(name))
    label = np.sort(random.integers(0, 200, n))
    kind = np.where(label < 100, "known", "novel")
    words = np.array([f"class {i}" for i in label])
    np.savez(path, points=random.normal(size=(n, 2)), kind=kind, name=name, **{"class": words})
    return str(path)


def test_the_same_classes_are_coloured_in_all_maps() -> None:
    """Those with most images over all maps, ties by name; a class counts where its kind says."""
    kinds = np.array(["known"] * 4 + ["novel"] * 2)
    first = {"class": np.array(["b", "b", "a", "c", "x", "y"]), "kind": kinds}
    second = {"class": np.array(["c", "c", "c", "a", "y", "y"]), "kind": kinds}
    assert figures.coloured([first, second]) == {"known": ["c", "a", "b"], "novel": ["y", "x"]}


def test_maps_are_small_and_always_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [write_map(tmp_path / f"{name}.npz", name) for name in ("before", "after")]
    for name in ("a.svg", "b.svg"):
        assert figures.main(["tsne", "--files", *files, "--out", str(tmp_path / name)]) == 0
    content = (tmp_path / "a.svg").read_bytes()
    assert content == (tmp_path / "b.svg").read_bytes()
    assert len(content) <= figures.MAX_BYTES
    assert content.count(b"<image") == 2
    assert b"before" in content
