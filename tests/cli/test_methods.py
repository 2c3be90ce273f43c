"""`holotype methods`: a line for each, a card for one, a sentence for what is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holotype.methods import METHODS

from .test_cli import HEAVY

TOP = Path(__file__).resolve().parents[2]


def test_a_line_for_each(holotype) -> None:
    outcome = holotype("methods")
    assert outcome.code == 0
    head, *lines = outcome.out.splitlines()
    assert head.split()[:5] == ["method", "year", "stages", "cache", "graph"]
    for line, (name, kind) in zip(lines[: len(METHODS)], METHODS.items(), strict=True):
        assert line.split()[:2] == [name, str(kind.card.year)]
        assert kind.card.line.startswith(line[line.index(kind.card.line[:20]) :])  # its first sentence
    assert "holotype methods NAME" in outcome.out


def test_a_card(holotype) -> None:
    outcome = holotype("methods", "dccl")
    assert outcome.code == 0
    text, card = outcome.out, METHODS["dccl"].card
    assert text.startswith("DCCL (dccl), 2023\nNan Pu, ")
    flat = " ".join(text.split())
    assert card.line in flat
    assert "L = (1 - lam) L_con_u + lam L_con_s + w(e) L_C" in flat
    assert (
        "method.concept_weight = 0.4 [a number (at least 0 and at most 1e+30)] Weight of the concept loss once it "
        "has grown" in flat
    )
    assert "cifar100: method.recluster = 5, method.neighbours = 127, method.least_similarity = 0.5" in flat
    assert "as_run: method.edges = none" in flat
    assert all(f"- {point}" in flat for point in card.differs)
    assert "cub 63.5 60.8 64.9 1.12 scars 43.1 55.7 36.2* 0.74*" in flat
    assert "docs/methods/dccl.md" in text


@pytest.mark.parametrize("name", METHODS)
def test_every_card_is_printed(name: str, holotype) -> None:
    outcome = holotype("methods", name)
    assert outcome.code == 0, outcome.err
    assert METHODS[name].card.title in outcome.out
    assert ("Nothing is trained" in outcome.out) == (name == "kmeans")


def test_a_method_of_ones_own(holotype, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(TOP / "examples"))
    outcome = holotype("methods", "cms:CMS")
    assert outcome.code == 0
    assert outcome.out.startswith("CMS (cms:CMS), 2024\n")
    assert "all data sets: train.lr = 0.05" in outcome.out
    assert "Nothing is printed of it" in outcome.out
    outcome = holotype("methods", "my_method:Mine")
    assert outcome.code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("dcll",), "did you mean dccl?"),
        (("no.such:Method",), "cannot be imported"),
        (("dccl", "rpc"), "does not know 'rpc'"),
        (("--all",), "does not know '--all'"),
    ],
)
def test_what_is_none_is_a_sentence(words: tuple[str, ...], told: str, holotype) -> None:
    outcome = holotype("methods", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert told in outcome.err


@pytest.mark.parametrize("words", ["methods --all", "methods --help"])
def test_nothing_heavy_is_loaded_before_the_words_make_sense(words: str) -> None:
    code = f"import sys; from holotype.cli import main; main({words.split()!r}); print(*sys.modules, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split("\n"))
    assert "holotype.cli.methods" in loaded
    assert not loaded & HEAVY
