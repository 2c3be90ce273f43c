"""Counts are those of the published table where they can be, and steps are those of the real loop."""

from __future__ import annotations

import json
from pathlib import Path

import overhead
import pytest
import torch
from overhead import VARIANTS, Sizes, count, file_name, macs, plan_of
from torch import nn

from holotype.training.loop import Loop

PUBLISHED_HEADS = True

SMALL = ["--device", "cpu", "--steps", "1", "--batch", "8", "--arch", "test_vit", "--image-size", "32"]
SMALL += ["--k", "4"]


@pytest.fixture(scope="module")
def cub() -> Sizes:
    """CUB's sizes with a small network: heads see only its width."""
    paths = [f"{i}.jpg" for i in range(400)]
    return Sizes(paths, "test_vit", 32, 8, 200, torch.device("cpu"))


def heads(world: Sizes, name: str, dim: int = 768) -> int:
    return sum(p.numel() for p in world.method(name, dim).parameters())


def test_the_parameters_of_the_paper(cub: Sizes) -> None:
    """92.25 M and 93.54 M with the 85.80 M of ViT-B/16."""
    backbone = 85_798_656
    assert round((backbone + heads(cub, "simgcd")) / 1e6, 2) == 92.25
    assert round((backbone + heads(cub, "rpc-reading")) / 1e6, 2) == 93.54
    # the default preset has a debiased classifier too
    assert heads(cub, "rpc") - heads(cub, "rpc-reading") == 200 * 768
    assert heads(cub, "rpc") == heads(cub, "debgcd-compact")
    assert heads(cub, "debgcd-published") > 3 * heads(cub, "simgcd")


def test_macs_of_linear_layers_and_of_attention() -> None:
    assert macs(nn.Linear(30, 20), 1, 30) == 30 * 20
    network = Sizes(["a.jpg"], "vit_tiny_patch16_224", 32, 1, 2, torch.device("cpu")).model()
    tokens, dim = 1 + 2 * 2, 192
    block = tokens * 12 * dim**2 + 2 * tokens**2 * dim
    assert macs(network, 1, 3, 32, 32) == 4 * 3 * 16**2 * dim + 12 * block


def test_heads_cost_what_their_matrices_hold(cub: Sizes) -> None:
    """On one vector, a multiply-accumulate for each weight that is no bias."""
    found = count(cub, "rpc")
    method = cub.method("rpc", int(cub.model().num_features))
    assert found["macs"]["heads"] == sum(p.numel() for p in method.parameters() if p.ndim == 2)


def test_plans_take_as_many_steps_as_asked() -> None:
    for steps in (1, 6, 20, 1000):
        plan = plan_of(steps)
        assert plan.blocks * plan.size == steps
        assert plan.warmup >= 1


def test_a_whole_run(tmp_path: Path, monkeypatch, capsys) -> None:
    taken = []
    real = Loop.training
    monkeypatch.setattr(Loop, "training", lambda self, *given: taken.append(self) or real(self, *given))
    monkeypatch.setattr(overhead, "IMAGES", 16)
    assert overhead.main([*SMALL, "--results", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    assert path.name == file_name(record["hardware"])
    assert [row["name"] for row in record["rows"]] == list(VARIANTS)
    assert [type(loop.method).__name__ for loop in taken] == ["SimGCD", "DebGCD", "DebGCD", "RPC", "RPC"]
    assert all(row["step"]["ms"] > 0 and not row["step"]["captured"] for row in record["rows"])
    assert all(row["step"]["pipeline"] == "cached 2+1" for row in record["rows"])
    assert record["torch"] == torch.__version__
    assert {"commit", "hardware"} <= record.keys()
    assert (record["k"], record["n_known"], record["batch"]) == (4, 2, 8)
    assert str(tmp_path) not in record["command"]


def test_mistakes_are_told(capsys) -> None:
    assert overhead.main([*SMALL, "--steps", "0"]) == 2
    assert "--steps is 0" in capsys.readouterr().err
    assert file_name("1 x NVIDIA H200") == "1-x-nvidia-h200.json"
