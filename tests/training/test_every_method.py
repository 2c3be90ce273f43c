"""What every method in METHODS owes through the loop, on coloured squares; what is true of all is tested of all."""

import hashlib
import math

import numpy as np
import pytest
import torch

from holotype.clustering.metrics import clustering_accuracy
from holotype.errors import InputError
from holotype.methods import METHODS, dccl
from holotype.training import batches
from holotype.training.progress import StopRequest

from .conftest import metrics, weights
from .stubs import LEARNING

LONGER = {"simgcd": 12, "debgcd": 12, "rpc": 12, "protogcd": 12, "rs": 24, "uno": 12}
"""Epochs until the squares are told apart; four are enough for the others."""


LOGGED = {
    "gcd": {"con_u", "con_s"},
    "dccl": {"con_u", "con_s", "concept", "concepts", "outliers", "positives"},
    "protogcd": {"dapl", "ent", "sep", "cls_s", "con_u", "con_s", "hard_share", "hard_precision"},
    "rs": {"ce", "bce", "mse", "positives", "pair_precision", "pair_recall"},
    "uno": {"cluster", "over", "target_peak", "target_known", "labelled_right", "head"},
}
"""What the log says of an epoch, beside what it says of all methods."""


def steps_of(loop):
    """Train, and yield after each step."""
    with StopRequest() as stop:
        yield from loop.training(stop)


def digest(tensors) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", METHODS)
def test_it_finds_the_colours_with_finite_losses(world, name, tmp_path):
    """Guessing gets a third of the images right, even with the best names for its categories."""
    loop = world.loop(name, out=tmp_path, epochs=LONGER.get(name, 4), lr=0.1, seed=1)
    placed = loop.fit()
    truth = np.unique(world.table.truth.astype(str), return_inverse=True)[1]
    hidden = ~world.table.labelled
    assert clustering_accuracy(truth[hidden], placed.category.numpy()[hidden], 2).all > 0.6
    epochs = metrics(tmp_path, "epoch") if loop.stages else []
    assert len(epochs) == sum(loop.epochs(stage) for stage in loop.stages)
    assert all(math.isfinite(value) for line in epochs for value in line.values() if isinstance(value, float))
    last = epochs[-1] if epochs else {}
    assert last.keys() >= LOGGED.get(name, set())
    assert torch.equal(loop.predict().category, placed.category)


@pytest.mark.parametrize("name", LEARNING)
def test_whatever_learns_gets_a_gradient_and_nothing_else_changes(world, name):
    """Within two epochs of each stage, in which methods that take turns have done so."""
    loop = world.loop(name, epochs=2)
    trunk = digest(loop.encoder.trunk.state_dict())
    frozen = {n: p.clone() for n, p in loop.modules.named_parameters() if n not in loop.learnable}
    missing = {stage.name: {n for n in loop.learnable if n.startswith(stage.trains)} for stage in loop.stages}
    resting = {}
    for _ in steps_of(loop):
        stage = loop.stages[loop.position.stage]
        moved = [n for n in missing[stage.name] if loop.learnable[n].grad is not None]
        assert all(torch.isfinite(loop.learnable[n].grad).all() for n in moved)
        # those of the keys of attention have none by nature
        missing[stage.name] -= {n for n in moved if loop.learnable[n].grad.ne(0).any() or "bias" in n}
        still = {n: p for n, p in loop.learnable.items() if not n.startswith(stage.trains)}
        assert resting.setdefault(stage.name, digest(still)) == digest(still)
    assert not any(missing.values()), missing
    assert digest(loop.encoder.trunk.state_dict()) == trunk
    assert all(torch.equal(p, dict(loop.modules.named_parameters())[n]) for n, p in frozen.items())


@pytest.mark.parametrize("name", METHODS)
def test_without_a_novel_category_every_image_gets_a_known_class(world, name):
    if name == "uno":
        with pytest.raises(InputError, match=r"UNO\+ needs a novel category"):
            world.loop(name, k=2)
        return
    placed = world.loop(name, k=2, epochs=1).fit()
    assert set(placed.category.tolist()) <= {0, 1}


@pytest.mark.parametrize("name", LEARNING)
def test_batches_without_a_single_label(world, name, monkeypatch, tmp_path):
    """One epoch, the shortest training."""

    def unlabelled_rows(labelled, unlabelled, n, generator):
        return unlabelled[torch.randint(len(unlabelled), (n,), generator=generator)]

    monkeypatch.setitem(batches.SAMPLERS, "balanced", unlabelled_rows)
    monkeypatch.setattr(dccl, "balanced_rows", unlabelled_rows)
    loop = world.loop(name, epochs=1, out=tmp_path)
    placed = loop.fit()
    assert placed.probability.isfinite().all()
    assert all(p.isfinite().all() for p in loop.learnable.values())
    assert all(math.isfinite(line["loss"]) for line in metrics(tmp_path))


@pytest.mark.parametrize("name", LEARNING)
def test_one_image_a_class(world, name):
    """Two labelled images, one of each known class, and two unlabelled ones, in batches of two."""
    rows = np.array([0, 12, 24, 36])
    table, store = world.table.take(rows), world.store
    assert table.labelled.tolist() == [True, True, False, False]
    few = type(world)(table, type(store).decode(list(table.path), 32, progress=False))
    placed = few.loop(name, epochs=1, batch_size=2).fit()
    assert placed.category.shape == (4,)
    assert placed.probability.isfinite().all()


def test_one_image_in_a_step_is_too_few_for_uno(world):
    """Its heads take the mean over a batch."""
    with pytest.raises(InputError, match=r"two images in a step.*--train\.batch-size"):
        world.loop("uno", batch_size=1).fit()
    world.loop("uno", batch_size=2, epochs=1).fit()


def test_the_first_stage_of_sptnet_is_simgcd_to_the_bit(world):
    """The same draws, so that the two can be compared in pairs; its heads are drawn before the prompt."""
    simgcd, loop = world.loop("simgcd"), world.loop("sptnet")
    simgcd.fit()
    for _ in steps_of(loop):
        if loop.position.stage == 0:
            found = weights(loop)
    for name, theirs in weights(simgcd).items():
        assert torch.equal(found[name.replace("tail.", "tail.tail.", 1)], theirs), name
