"""The split keeps what training must not see apart, and the script prints a share for every kind of new image."""

from __future__ import annotations

import pytest
from strangers import main, split_sample


def test_what_is_left_out_is_left_out() -> None:
    images, labels, new = split_sample("Ankle boot", 0)
    assert len(images) == len(labels) == 9 * 80
    assert {kind: len(pictures) for kind, pictures in new.items()} == {
        "seen classes": 180,
        "unseen class Ankle boot": 100,
        "noise": 50,
    }
    assert "Ankle boot" not in labels
    assert labels.count("") == 720 - 5 * 40
    trained = {image.tobytes() for image in images}
    assert not trained & {image.tobytes() for image in new["seen classes"] + new["unseen class Ankle boot"]}
    with pytest.raises(SystemExit, match="must be one of"):
        split_sample("Boot", 0)


def test_the_script_runs(tiny_backbone_file, squares_folder, capsys, monkeypatch) -> None:
    monkeypatch.setattr("holotype.discovery.several.TRAININGS", {})  # one training
    shares = main(["--steps", "2", "--backbone", str(tiny_backbone_file), "--others", str(squares_folder)])
    assert set(shares) == {"seen classes", "unseen class Ankle boot", "noise", squares_folder.name}
    assert all(0 <= share <= 1 for share in shares.values())
    assert "fit nothing" in capsys.readouterr().out
