"""What the doctor finds: true facts, in time, that name nobody."""

import json
import threading
from pathlib import Path

import pytest
import torch

from holotype.cli import doctor
from holotype.cli.doctor import (
    auto_choices,
    cache_facts,
    embed_sample,
    redact_names,
    run_checks,
    self_test,
)
from holotype.discovery import backbone_choice


@pytest.fixture
def offline(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "hub_online", lambda: False)
    monkeypatch.setattr(backbone_choice, "is_cached", lambda name: False)


@pytest.fixture
def alice(monkeypatch, tmp_path: Path) -> Path:
    home = tmp_path / "alice"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "alice")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache-of-mine"))
    return home


def test_everything_is_told_and_nobody_named(offline, alice: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        doctor, "embed_sample", lambda: (_ for _ in ()).throw(OSError(f"{alice}/x of alice is gone"))
    )
    facts = run_checks()
    text = json.dumps(facts)
    assert str(alice) not in text
    assert "alice" not in text
    assert facts["self-test"] == {"passed": False, "words": "OSError: ~/x of USER is gone"}
    assert torch.__version__.startswith(facts["versions"]["torch"].partition("+")[0])
    assert facts["cache"]["folder"] == "set by XDG_CACHE_HOME"
    assert facts["machine"]["cores"] >= 1
    told = json.dumps(run_checks(paths=True))
    assert str(alice / "cache-of-mine") in told


def test_classes_come_apart_in_the_sample(offline, monkeypatch) -> None:
    within_class, between = embed_sample()
    assert 1 > within_class > between + 0.2
    assert self_test()["passed"]
    for found in ((0.5, 0.6), (float("nan"), float("nan"))):  # features that say nothing
        monkeypatch.setattr(doctor, "embed_sample", lambda found=found: found)
        assert not self_test()["passed"]


def test_a_hub_that_does_not_answer_is_a_fact(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "SECONDS_FOR_HUB", 0.05)
    over = threading.Event()
    monkeypatch.setattr(doctor, "hub_answers", lambda seconds: over.wait(60) or True)
    assert doctor.hub_online() is False
    over.set()
    monkeypatch.setattr(doctor, "hub_answers", lambda seconds: seconds == 20.0)
    monkeypatch.setattr(doctor, "SECONDS_FOR_HUB", 20.0)
    assert doctor.hub_online() is True


def test_what_auto_chooses(offline, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "pick_device", lambda name: "cpu")
    chosen = {"device": "cpu", "precision": "fp32", "backbone": "embedded"}
    assert auto_choices(False) == chosen | {"cache views of discover": "4+2"}
    monkeypatch.setattr(doctor, "pick_device", lambda name: "cuda")
    found = auto_choices(True)
    assert found["precision"] == "bf16"
    assert found["backbone"] == f"{backbone_choice.PUBLIC_BACKBONE[0]}, to be fetched from the hub"
    assert found["cache views of discover"]["1,000 images"] == "16+8"
    assert found["cache views of discover"]["100,000 images"] != "16+8"


def test_the_cache_folder_need_not_exist_and_names_within_words_stay(alice: Path) -> None:
    facts = cache_facts(paths=True)
    assert (facts["folder"], facts["kept"]) == (str(alice / "cache-of-mine" / "holotype"), "0 bytes")
    assert not (alice / "cache-of-mine").exists()
    redacted = redact_names(["alice and malice", 3, {"a": f"{alice}/b {alice}2"}])
    assert redacted == ["USER and malice", 3, {"a": f"~/b {alice}2"}]
