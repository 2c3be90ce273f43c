"""The demo runs on the embedded data and prints what it found."""

import numpy as np
import pandas as pd

from holotype.cli import main
from holotype.cli.demo import DemoResult, run_demo, write_demo_images
from holotype.cli.train import score_lines
from holotype.config.schema import DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.decode import read_image
from holotype.data.gcd_split import gcd_split
from holotype.report.page_data import read_scores
from small_run import small_discovery

PUBLISHED_MAPS = True


def test_the_demo_places_every_image_and_scores_both_methods(tmp_path, tiny_backbone_file):
    """With a tiny random backbone and a few steps; `make demo` runs the real one."""
    config = DiscoverConfig(k=10, steps=20, backbone=str(tiny_backbone_file), device="cpu", seeds=1)
    shown = run_demo(tmp_path, config, progress=False)
    assert list(shown.scores) == ["kmeans", "rpc"]
    for record in shown.scores.values():
        assert record["n"] == 750
        assert 0.1 < record["all"] <= 1
        implied = record["share_old"] * record["old"] + (1 - record["share_old"]) * record["new"]
        assert abs(record["all"] - implied) < 1e-9
    lines = score_lines(shown.scores)
    assert "kmeans" in lines[1]
    assert "rpc" in lines[2]
    assert shown.report.is_file()
    assert len(list((tmp_path / "images").glob("*.png"))) == 1000
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert (len(labels), labels.label.nunique()) == (250, 5)
    rows = (tmp_path / "run" / "assignments.csv").read_text().splitlines()
    assert len(rows) == 1001
    assert "truth" not in rows[0]
    told = read_scores(tmp_path / "run")
    assert list(told) == ["kmeans", "rpc"]
    assert told["rpc"]["all"] == shown.scores["rpc"]["all"]
    assert str(shown.scores["rpc"]["all"]) not in (tmp_path / "run" / "discovery.json").read_text()


def test_of_two_demos_at_once_one_writes_the_images(tmp_path, monkeypatch):
    """The second finds the folder finished when it comes to its end, and takes that one."""
    split, others = gcd_split(load_benchmark("fashion-sample")).take(np.arange(6)), []

    def overtaken(path):
        if not others:
            others.append(path)
            write_demo_images(split, tmp_path)
        return read_image(path)

    monkeypatch.setattr("holotype.cli.demo.read_image", overtaken)
    assert len(write_demo_images(split, tmp_path)) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "labels.csv"]


def test_the_last_line_is_where_to_look(tmp_path, monkeypatch, capsys):
    scores = {"n": 2, "all": 0.5, "old": 0.5, "new": 0.5, "share_old": 0.5}
    found = small_discovery(("Bag",), ["Bag", "new-01"])
    shown = DemoResult(found, {"kmeans": scores, "rpc": scores}, tmp_path / "run" / "report.html")
    monkeypatch.setattr("holotype.cli.demo.run_demo", lambda out, config, progress: shown)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f": {tmp_path / 'run' / 'report.html'}")
