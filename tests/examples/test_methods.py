"""examples/my_method.py and examples/cms.py: methods from outside, trained by the command line; the second with recipes
and a card of its own."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

from holotype.losses.contrastive import info_nce
from holotype.losses.ops import l2_normalize
from holotype.methods import Batch, Images, Stage, Task
from holotype.runs.experiment import recipe

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def importable(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize(
    ("name", "flags", "losses"),
    [
        ("my_method:Mine", ("--method.near", 0.5), {"con", "cls_s", "near", "me"}),
        ("cms:CMS", (), {"con_u", "con_s"}),
    ],
)
def test_it_is_short_and_trains(name, flags, losses, holotype, tmp_path, squares_folder, tiny_flags) -> None:
    """One epoch, from random features: better than the third that one category for all would give."""
    words = (name, squares_folder / "squares.csv", *tiny_flags, *flags, "--out", tmp_path / "run")
    outcome = holotype("train", *words)
    assert outcome.code == 0, outcome.err
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["scores"]["all"] > 0.5
    assert losses <= set(json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0]))
    file = EXAMPLES / f"{name.partition(':')[0]}.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) < 90


def test_its_recipes_are_found() -> None:
    assert recipe("cms:CMS", "cub") == {"train.lr": 0.05}
    assert recipe("cms:CMS", "cifar100") == {"train.lr": 0.01}


def test_an_embedding_is_shifted_to_the_mean_of_its_neighbours_in_the_bank() -> None:
    cms = importlib.import_module("cms")
    torch.manual_seed(0)
    x = torch.randn(20, 6)
    rows = torch.cat([torch.arange(3), torch.arange(4, 21)])  # image 3 cannot be read
    images = Images(rows, torch.full((20,), -1), 21, torch.Generator(), lambda: x)
    method = cms.CMS(cms.CMSConfig(k=4), Task(2, 4, 6, 21, 0))
    with torch.no_grad():
        method.before_epoch(Stage(), 0, images)
        v = l2_normalize(method.projector(x))
    cosine = (v @ v.T).fill_diagonal_(-2)
    for i, row in enumerate(rows):
        torch.testing.assert_close(method.around[row], v[cosine[i].topk(4).indices].mean(0))
    assert not method.around[3].any()
    label, labelled = torch.zeros(5, dtype=torch.long), torch.zeros(5, dtype=torch.bool)
    batch = Batch(torch.randn(2, 5, 6), label, labelled, rows[:5])
    z = 0.5 * l2_normalize(method.projector(batch.features)) + 0.5 * method.around[rows[:5]]
    torch.testing.assert_close(method.loss(batch, {})["con_u"], 0.65 * info_nce(z, 0.25))
