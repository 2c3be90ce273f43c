"""The demo runs on the embedded data and prints what it found."""

from holotype.cli import main
from holotype.demo import run_demo, table


def test_the_demo_places_every_image_and_prints_both_methods(tmp_path, tiny_backbone_file):
    """With a tiny random backbone; `make demo` runs the real one."""
    changes = {
        "backbone.name": str(tiny_backbone_file),
        "train.epochs": 2,
        "device": "cpu",
        "progress": False,
    }
    records = run_demo(tmp_path, changes)
    assert [r["method"] for r in records] == ["kmeans", "rpc"]
    assert all(r["n"] == 750 and 0.2 < r["all"] <= 1 for r in records)
    for record in records:
        implied = record["share_old"] * record["old"] + (1 - record["share_old"]) * record["new"]
        assert abs(record["all"] - implied) < 1e-9
    lines = table(records).splitlines()
    assert "kmeans" in lines[1]
    assert "rpc" in lines[2]
    assert [r["mode"] for r in records] == ["exact", "cached 4+2"]
    rows = (tmp_path / "rpc" / "assignments.csv").read_text().splitlines()
    assert len(rows) == 1001


def test_demo_help_names_its_flags(capsys):
    assert main(["demo", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--out", "--device", "--no-progress"))
