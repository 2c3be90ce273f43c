"""Figures show what was recorded, are small, and come out the same each time."""

from __future__ import annotations

import json
from pathlib import Path

import figures
import numpy as np
import pytest

from holotype.errors import InputError
from holotype.study import read_study
from made_study import add_run, write_study

ROWS = ("rpc", "lambda_1=0.2", "lambda_1=1", "lambda_2=0.0", "alpha=1.0", "simgcd")
STUDY = "question: How far?\ndatasets: [cub]\nseeds: [0, 1]\nrows:\n" + "".join(
    f"  {name}: {{method: {'simgcd' if name == 'simgcd' else 'rpc'}}}\n" for name in ROWS
)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """Old and New are equal, and so is All; means: rpc 61, lambda_1 0.2 60.5 and 1.0 57, lambda_2 0 63, alpha 1 61."""
    for row, first, second in (
        *(("rpc", 60, 62), ("lambda_1=0.2", 60, 61), ("lambda_1=1", 57, 57)),
        *(("lambda_2=0.0", 63, 63), ("alpha=1.0", 61, 61), ("simgcd", 10, 10)),
    ):
        for seed, score in enumerate((first, second)):
            add_run(tmp_path, row, seed, score, score, study="curves")
    return write_study(tmp_path, STUDY, "curves")


def test_the_defaults_are_a_point_of_every_curve(study_file: Path) -> None:
    found = figures.points(read_study(study_file), study_file.parent.parent / "results" / "curves")
    assert {name: sorted(values) for name, values in found.items()} == {
        "lambda_1": [0.2, 0.5, 1.0],
        "lambda_2": [0.0, 0.3],
        "alpha": [0.3, 1.0],
    }
    for name, default in (("lambda_1", 0.5), ("lambda_2", 0.3), ("alpha", 0.3)):
        assert found[name][default]["all"] == pytest.approx([60, 62])


def test_the_spread_of_means_within_a_range(study_file: Path) -> None:
    study, results = read_study(study_file), study_file.parent.parent / "results" / "curves"
    whole = figures.spread(study, results)
    assert whole == pytest.approx({"lambda_1": 4.0, "lambda_2": 2.0, "alpha": 0.0})
    part = figures.spread(study, results, {"lambda_1": (0.1, 0.6)})
    assert part["lambda_1"] == pytest.approx(0.5)
    assert part["lambda_2"] == pytest.approx(2.0)


def test_results_of_two_settings_make_no_curve(study_file: Path) -> None:
    top = study_file.parent.parent
    add_run(top, "rpc", 0, 50, 50, study="curves", epochs=7)
    with pytest.raises(InputError, match="two settings"):
        figures.points(read_study(study_file), top / "results" / "curves")


def test_a_study_without_results_is_told(tmp_path: Path, capsys) -> None:
    study = write_study(tmp_path, STUDY, "curves")
    assert figures.main(["curves", "--study", str(study), "--out", str(tmp_path / "c.svg")]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_ranges_are_read() -> None:
    assert figures.read_range("alpha=0.1:0.5") == ("alpha", (0.1, 0.5))
    with pytest.raises(InputError, match="PARAMETER=LOW:HIGH"):
        figures.read_range("beta=1:2")


def test_without_matplotlib_there_is_advice(monkeypatch) -> None:
    def absent(name: str):
        raise ImportError(name)

    monkeypatch.setattr(figures, "import_module", absent)
    with pytest.raises(InputError, match="pip install matplotlib"):
        figures.pyplot()


def test_the_command_draws_the_curves_and_tells_their_spread(
    study_file: Path, tmp_path: Path, capsys
) -> None:
    pytest.importorskip("matplotlib")
    words = ["curves", "--study", str(study_file), "--within", "lambda_1=0.1:0.6", "--out"]
    for name in ("a.svg", "b.svg"):
        assert figures.main([*words, str(tmp_path / name)]) == 0
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    for word in (b"lambda_1", b"lambda_2", b"alpha", b"Old", b"default"):
        assert word in first
    assert b"<dc:date>" not in first
    told = capsys.readouterr().out
    assert "lambda_1 from 0.2 to 0.5: mean All moves by 0.5 points, within 1." in told
    assert "lambda_2 from 0 to 0.3: mean All moves by 2.0 points, more than 1." in told


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
