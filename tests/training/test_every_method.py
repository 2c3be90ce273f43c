"""What every method in METHODS owes through the loop, on coloured squares; what is true of all is tested of all."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch

from holotype.clustering.metrics import clustering_accuracy
from holotype.errors import InputError
from holotype.methods import METHODS, dccl
from holotype.training import batches
from holotype.training.optim import momentum_tensors
from holotype.training.progress import StopRequest

from .conftest import SMALL, metrics, weights

LEARNING = [name for name in METHODS if name != "kmeans"]
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


def small(name: str) -> dict:
    return SMALL.get(name, {})


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
    loop = world.loop(name, out=tmp_path, epochs=LONGER.get(name, 4), lr=0.1, seed=1, settings=small(name))
    placed = loop.fit()
    truth = np.unique(world.table.truth.astype(str), return_inverse=True)[1]
    hidden = ~world.table.labelled
    assert clustering_accuracy(truth[hidden], placed.category.numpy()[hidden], 2).all > 0.6
    epochs = metrics(tmp_path, "epoch") if loop.stages else []
    assert len(epochs) == sum(loop.epochs(stage) for stage in loop.stages)
    assert all(math.isfinite(value) for line in epochs for value in line.values() if isinstance(value, float))
    last = epochs[-1] if epochs else {}
    assert last.keys() >= LOGGED.get(name, set())
    if name == "rs":
        assert last["pair_precision"] > 0.9
    if name == "protogcd":
        assert (epochs[0]["hard_share"], last["hard_share"]) == (0, 1)
    if name == "dccl":
        assert all(
            min(line["concepts"], line["positives"] - 3) > 0 and line["outliers"] < 48 for line in epochs
        )


@pytest.mark.parametrize("name", LEARNING)
def test_whatever_learns_gets_a_gradient_and_nothing_else_changes(world, name):
    """Within two epochs of each stage, in which methods that take turns have done so."""
    loop = world.loop(name, epochs=2, settings=small(name))
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
    placed = world.loop(name, k=2, epochs=1, settings=small(name)).fit()
    assert set(placed.category.tolist()) <= {0, 1}


@pytest.mark.parametrize("name", LEARNING)
def test_batches_without_a_single_label(world, name, monkeypatch, tmp_path):
    """One epoch, the shortest training."""

    def unlabelled_rows(labelled, unlabelled, n, generator):
        return unlabelled[torch.randint(len(unlabelled), (n,), generator=generator)]

    monkeypatch.setitem(batches.SAMPLERS, "balanced", unlabelled_rows)
    monkeypatch.setattr(dccl, "balanced_rows", unlabelled_rows)
    loop = world.loop(name, epochs=1, out=tmp_path, settings=small(name))
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
    placed = few.loop(name, epochs=1, batch_size=2, settings=small(name)).fit()
    assert placed.category.shape == (4,)
    assert placed.probability.isfinite().all()


def test_one_image_in_a_step_is_too_few_for_uno(world):
    """Its heads take the mean over a batch."""
    with pytest.raises(InputError, match=r"two images in a step.*--train\.batch_size"):
        world.loop("uno", batch_size=1).fit()
    world.loop("uno", batch_size=2, epochs=1).fit()


PROMPT_SETTINGS = {
    "sptnet": {"prompt_epochs": 3.0, "turn": 2},
    "promptcal": {"proj_out": 32, "n_init": 5, "quantile": 0.5, "affinity_epochs": 1.0},
}


def loop_of(world, name, **given):
    return world.loop(name, settings=PROMPT_SETTINGS[name] | given.pop("settings", {}), **given)


def test_who_stands_still_in_sptnet_stays_to_the_bit_with_its_momentum(world):
    loop = loop_of(world, "sptnet", epochs=1, settings={"prompt_epochs": 6.0})
    sides = {"prompt": ("tail.prompt",), "network": ("tail.tail", "method.projector", "method.classifier")}

    def state() -> dict[str, str]:
        momentum = momentum_tensors(loop.current.step.optimiser, loop.learnable)
        every = {**loop.model_tensors(), **{n.removeprefix("momentum."): m for n, m in momentum.items()}}
        every |= {f"{n} ": t for n, t in loop.model_tensors().items()}
        return {
            side: digest({n: t for n, t in every.items() if n.startswith(p)}) for side, p in sides.items()
        }

    start, before, turns = digest(loop.encoder.module.prompt.state_dict()), None, ""
    for _ in steps_of(loop):
        if loop.position.stage == 0:
            assert digest(loop.encoder.module.prompt.state_dict()) == start  # the prompt waits for its stage
        elif before is not None:
            moved = [side for side, now in state().items() if now != before[side]]
            assert len(moved) == 1
            turns += moved[0][0]
        before = state() if loop.position.stage == 1 else None
    assert turns == "nnppnnppnnppnnppn"  # the first step was the prompt's


def test_the_first_stage_of_sptnet_is_simgcd_to_the_bit(world):
    """The same draws, so that the two can be compared in pairs; its heads are drawn before the prompt."""
    simgcd, loop = world.loop("simgcd"), loop_of(world, "sptnet")
    simgcd.fit()
    for _ in steps_of(loop):
        if loop.position.stage == 0:
            found = weights(loop)
    for name, theirs in weights(simgcd).items():
        assert torch.equal(found[name.replace("tail.", "tail.tail.", 1)], theirs), name


def test_sptnet_takes_its_first_stage_from_a_cache(world, tmp_path):
    cached = loop_of(world, "sptnet", cache=world.cache(tmp_path))
    cached.fit()
    assert cached.mode == "cached 4+2 2 epochs, images 6 epochs"
    exact = loop_of(world, "sptnet")
    exact.fit()
    assert not torch.equal(weights(cached)["method.classifier.v"], weights(exact)["method.classifier.v"])


def test_promptcal_enters_its_second_stage_with_a_fresh_head_and_its_teacher_follows(world):
    loop = loop_of(world, "promptcal", settings={"momentum": 1.0})
    fresh = {n: t.clone() for n, t in loop.initial.items() if n.startswith("method.prompt_head")}
    loop.fit()
    after = weights(loop)
    for name, begun in fresh.items():  # m = 1: the teacher stays what it was as the stage began
        taught = after[name.replace("method.prompt_head", "method.teacher.copies.1")]
        assert torch.equal(taught, begun)
        assert not torch.equal(after[name], begun) or "bias" in name
    assert int(after["method.memory.count"]) == 48
    assert after["method.memory_label.rows"].min() == -1
