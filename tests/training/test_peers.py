"""GCD, ProtoGCD, RS+ and UNO+ from end to end on coloured squares, and at the edges of the task."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from holotype.clustering.metrics import clustering_accuracy
from holotype.errors import InputError
from holotype.methods import METHODS, Batch, Progress, Task

from .conftest import SMALL

PEERS = ("gcd", "protogcd", "rs", "uno")
SETTINGS = {**SMALL, "uno": {"heads": 2}}
LOGGED = {
    "gcd": {"con_u", "con_s"},
    "protogcd": {"dapl", "ent", "sep", "cls_s", "con_u", "con_s", "hard_share", "hard_precision"},
    "rs": {"ce", "bce", "mse", "positives", "pair_precision", "pair_recall"},
    "uno": {"cluster", "over", "target_peak", "target_known", "labelled_right", "head"},
}


@pytest.mark.parametrize("name", PEERS)
def test_it_finds_the_colours_and_says_what_it_did(world, name, tmp_path):
    """Guessing gets a third of the images right, even with the best names for its categories."""
    loop = world.loop(name, out=tmp_path, epochs=24, lr=0.1, seed=1, settings=SETTINGS.get(name))
    placed = loop.fit()
    truth = np.unique(world.table.truth.astype(str), return_inverse=True)[1]
    hidden = ~world.table.labelled
    found = clustering_accuracy(truth[hidden], placed.category.numpy()[hidden], 2)
    assert found.all > 0.6
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == 24
    assert epochs[-1].keys() >= LOGGED[name]
    assert all(math.isfinite(value) for line in epochs for value in line.values() if isinstance(value, float))
    if name == "rs":
        assert epochs[-1]["pair_precision"] > 0.9
    if name == "protogcd":
        assert [epochs[0]["hard_share"], epochs[-1]["hard_share"]] == [0, 1]


@pytest.mark.parametrize("preset", ["default", "as_run"])
@pytest.mark.parametrize("name", ["rs", "uno"])
def test_both_presets_train(world, name, preset):
    settings = {**SETTINGS.get(name, {}), **METHODS[name].presets[preset]}
    loop = world.loop(name, settings=settings)
    before = {key: p.detach().clone() for key, p in loop.learnable.items()}
    loop.fit()
    still = [key for key, p in loop.learnable.items() if torch.equal(p, before[key])]
    assert not [key for key in still if key.startswith("method.")]


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("labelled", [0, 3, 6])
def test_any_number_of_labels_and_one_image_a_class(name, labelled):
    """Six images, each of a class of its own, of which none, some or all are labelled."""
    torch.manual_seed(0)
    task = Task(n_known=6, k=8, dim=16, n_images=12, n_labelled=6)
    method = METHODS[name](METHODS[name].Config(**SETTINGS.get(name, {})), task)
    mask = torch.arange(6) < labelled
    features = torch.randn(2, 6, 16, requires_grad=True)
    now = {key: torch.tensor(x) for key, x in method.schedule(method.stages()[0], Progress(3, 10)).items()}
    terms = method.loss(Batch(features, torch.arange(6) * mask, mask, torch.arange(6)), now)
    torch.stack(list(terms.values())).sum().backward()
    assert all(term.isfinite() for term in terms.values())
    assert features.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in method.parameters())
    method.after_step()
    assert all(x.isfinite() for x in method.diagnostics().values())


@pytest.mark.parametrize("name", PEERS)
def test_recipes_and_cards_are_there(name):
    kind = METHODS[name]
    assert kind.card.title
    assert kind.card.differs
    assert "default" in kind.presets


def test_one_image_in_a_step_is_too_few_for_uno(world):
    """Its heads take the mean over a batch."""
    with pytest.raises(InputError, match=r"two images in a step.*--train\.batch_size"):
        world.loop("uno", batch_size=1).fit()
    world.loop("uno", batch_size=2, epochs=1).fit()
