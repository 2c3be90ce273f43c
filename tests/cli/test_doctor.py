"""`holotype doctor`: words or JSON, and an exit code."""

from __future__ import annotations

import json

import pytest

from holotype.cli import NOT_WELL

FACTS = {
    "versions": {"holotype": "1"},
    "gpus": [{"name": "H", "memory": "80.0 GB", "free": "79.0 GB"}],
    "hub": {"answers": False},
    "auto": {"device": "cuda", "cache views of discover": {"1,000 images": "16+8", "100,000 images": "off"}},
    "self-test": {"passed": True, "words": "16 images in 0.1 s"},
}


@pytest.fixture
def asked(monkeypatch) -> list[bool]:
    seen: list[bool] = []

    def examine(paths: bool) -> dict:
        seen.append(paths)
        return FACTS

    monkeypatch.setattr("holotype.cli.doctor.run_checks", examine)
    return seen


def test_words(holotype, asked: list[bool]) -> None:
    outcome = holotype("doctor")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "versions",
        "  holotype: 1",
        "gpus",
        "  H, 80.0 GB, 79.0 GB free",
        "hub",
        "  answers: no",
        "auto",
        "  device: cuda",
        "  cache views of discover: 1,000 images 16+8; 100,000 images off",
        "self-test",
        "  passed: yes",
        "  words: 16 images in 0.1 s",
    ]
    assert asked == [False]


def test_json_with_paths(holotype, asked: list[bool]) -> None:
    assert json.loads(holotype("doctor", "--json", "--paths").out) == FACTS
    assert asked == [True]


def test_a_self_test_that_fails_is_an_exit_code_of_its_own(holotype, asked: list[bool], monkeypatch) -> None:
    monkeypatch.setitem(FACTS["self-test"], "passed", False)  # type: ignore[arg-type]
    assert holotype("doctor").code == NOT_WELL == 3
    monkeypatch.setitem(FACTS, "gpus", [])
    assert "gpus\n  none\n" in holotype("doctor").out
