"""Methods from outside in examples/, trained by the command line: my_method.py, cms.py and mugcd.py."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from holotype.losses.contrastive import info_nce
from holotype.losses.ops import l2_normalize
from holotype.methods import Batch, Images, Progress, Stage, Task
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
        ("mugcd:MuGCD", (), {"con_u", "con_s"}),
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
    assert len(file.read_text(encoding="utf-8").splitlines()) < 125


def test_a_teacher_follows_and_its_targets_teach_the_strong_view() -> None:
    mugcd = importlib.import_module("mugcd")
    torch.manual_seed(0)
    method, tail = mugcd.MuGCD(mugcd.MuGCDConfig(), Task(2, 4, 6, 21, 9)), torch.nn.Linear(6, 6)
    method.bind(method.build_encoder(None, tail))
    stage = method.stages()[1]
    start, end = (method.schedule(stage, Progress(epoch, 10))["momentum"] for epoch in (0, 10))
    assert (start, end) == pytest.approx((0.699, 0.999))
    x = torch.randn(2, 5, 6)
    now = {"momentum": torch.tensor(0.9)}
    features = method.encode(stage, x, now)
    batch = Batch(
        features, torch.zeros(5, dtype=torch.long), torch.arange(5) < 2, torch.arange(5), stage="teach"
    )
    terms = method.loss(batch, now)
    target = (method.teacher[1](tail(x[0])) / 0.05).softmax(-1)
    expected = -(target * (method.classifier(tail(x[1])) / 0.1).log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(terms["cls_u"], 0.65 * expected)
    before = method.teacher.copies[0].weight.clone()
    with torch.no_grad():
        tail.weight += 1
        method.after_step()
    torch.testing.assert_close(method.teacher.copies[0].weight, 0.9 * before + 0.1 * tail.weight)


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
