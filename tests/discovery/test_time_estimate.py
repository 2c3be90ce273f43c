"""How long it will take: more for more images, more steps and slower networks; and nothing is changed by asking."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.load import load_table
from holotype.discovery.time_estimate import (
    Throughput,
    TimeEstimate,
    TrainingWork,
    duration_phrase,
    embedding_seconds,
    estimate_time,
    measure_throughput,
)
from holotype.models.backbone import load_backbone
from holotype.models.zoo import fastest_pass
from holotype.utils.device import Device

PACE = Throughput(reading=0.01, trunk=0.1, tail=0.02)


def training(n: int = 1_000, pace: Throughput = PACE, **settings) -> float:
    work = TrainingWork.of(n, DiscoverConfig(device="cpu", **settings), pace, "cpu")
    return work.shared + work.steps


def test_embedding_reads_and_computes() -> None:
    assert embedding_seconds(100, PACE, "cpu") == pytest.approx(11)
    assert embedding_seconds(100, PACE, "cuda") == pytest.approx(10)  # one behind the other


def test_training_is_the_sample_the_cache_and_the_steps() -> None:
    """1,000 images are read, seven views of each are kept, and 10 steps draw three views of 64 images."""
    assert training(steps=10, method="rpc") == pytest.approx(1_000 * (0.01 + 7 * 0.1) + 10 * 64 * 3 * 0.02)
    assert training(100_000, steps=10) == training(5_000, steps=10)  # the sample
    assert training(100_000, steps=10, sample=20_000) > training(100_000, steps=10)
    assert training(method="kmeans") == pytest.approx(10)  # nothing is trained
    assert training(steps=10, method="simgcd") < training(steps=10)  # fewer views, no strong ones


def test_a_training_of_methods_in_turn_is_the_mean_of_theirs() -> None:
    """RPC draws three views of an image, UNO+ two; the cache has the strong views that one of them needs."""
    each = {
        method: TrainingWork.of(1_000, DiscoverConfig(device="cpu", steps=10, method=method), PACE, "cpu")
        for method in ("rpc", "uno", "rpc,uno")
    }
    assert each["rpc,uno"].steps == pytest.approx((each["rpc"].steps + each["uno"].steps) / 2)
    assert each["rpc,uno"].shared == each["rpc"].shared > each["uno"].shared


@pytest.mark.parametrize("first", [0.01, 60.0])
def test_a_slow_first_pass_does_not_count(first: float, squares_folder, monkeypatch) -> None:
    """As on a GPU that was not used yet."""
    clock = SlowClock(first)
    monkeypatch.setattr("holotype.discovery.time_estimate.Encoder", lambda *_: clock)
    monkeypatch.setattr("holotype.discovery.time_estimate.learn", clock.learn)
    monkeypatch.setattr(
        "holotype.discovery.time_estimate.fastest_pass", lambda run, device: fastest_pass(run, device, clock)
    )
    backbone = SimpleNamespace(image_size=32, dim=8)
    pace = measure_throughput(load_table(squares_folder), backbone, Device.on("cpu"), views=12)
    assert pace.trunk == pytest.approx(0.01 / 8)
    assert pace.tail == pytest.approx(0.01 / 12)


class SlowClock:
    """An encoder whose passes take 0.01 s by its own clock, the first of each part longer."""

    def __init__(self, first: float) -> None:
        self.now, self.seconds = 0.0, {"inputs": first, "learn": first}

    def __call__(self) -> float:
        return self.now

    def inputs(self, images: torch.Tensor) -> torch.Tensor:
        self.now += self.seconds["inputs"]
        self.seconds["inputs"] = 0.01
        return torch.zeros(len(images), 1, 8)

    def learn(self, *_: object) -> None:
        self.now += self.seconds["learn"]
        self.seconds["learn"] = 0.01


def test_the_words_name_several_trainings() -> None:
    told = TimeEstimate(60.0, 240.0, "cpu", "embedded at 128 pixels", 5).words
    assert "embedding a minute, 5 trainings 4 minutes" in told
    assert told.endswith("5 trainings vote; --seeds changes it.")


def test_a_network_that_learns_as_a_whole_takes_longer() -> None:
    assert training(steps=1_000, method="sptnet") > training(steps=1_000)


def test_measuring_changes_nothing(squares_folder: Path, tiny_backbone_file: Path) -> None:
    backbone = load_backbone(BackboneConfig(str(tiny_backbone_file)))
    before = {name: value.clone() for name, value in backbone.tail.state_dict().items()}
    state = torch.random.get_rng_state()
    table = load_table(squares_folder)
    pace = measure_throughput(table, backbone, Device.on("cpu"), views=12)
    assert min(pace.reading, pace.trunk, pace.tail) > 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in backbone.tail.state_dict().items())
    assert all(p.grad is None for p in backbone.tail.parameters())
    told = estimate_time(table, DiscoverConfig(device="cpu", steps=1), copy.deepcopy(backbone), 3)
    assert (told.device, told.trainings) == ("cpu", 3)
    assert told.network == "tiny at 32 pixels"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3, "under a minute"),
        (70, "a minute"),
        (300, "5 minutes"),
        (9_000, "2.5 hours"),
        (200_000, "2.3 days"),
    ],
)
def test_time_in_words(seconds: float, words: str) -> None:
    assert duration_phrase(seconds) == words


def test_the_line() -> None:
    assert TimeEstimate(60, 600, "cpu", "embedded at 128 pixels").words == (
        "Time on this CPU, roughly: 11 minutes (embedding a minute, training 10 minutes), "
        "with the network embedded at 128 pixels. One training, so there is no vote; --seeds changes it."
    )
    assert "roughly: under a minute, with" in TimeEstimate(3, 20, "cuda", "x at 32 pixels").words
