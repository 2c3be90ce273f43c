"""SPTNet and PromptCAL from end to end: images go through the whole network, in two stages of different rules."""

from __future__ import annotations

import json

import torch

from holotype.training.optim import momentum_tensors

from .conftest import weights
from .test_every_method import digest, steps_of

SETTINGS = {
    "sptnet": {"prompt_epochs": 3.0, "turn": 2},
    "promptcal": {"proj_out": 32, "n_init": 5, "quantile": 0.5, "affinity_epochs": 1.0},
}
STEPS = 3
"""Of an epoch: 48 images in batches of 16."""


def loop_of(world, name, **given):
    return world.loop(name, settings=SETTINGS[name] | given.pop("settings", {}), **given)


def told(loop):
    """The lines of the log, by stage."""
    lines = [json.loads(line) for line in (loop.journal.folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "epoch"]


def test_the_graph_and_the_turns_are_told_in_the_log(world, tmp_path):
    spt, cal = (loop_of(world, name, out=tmp_path / name) for name in SETTINGS)
    spt.fit(), cal.fit()
    last = told(spt)[-1]
    assert 0 < last["model_steps"] < STEPS
    assert last["prompt_size"] > 0
    last = told(cal)[-1]
    assert last["positives"] > 0
    assert 0 <= last["precision"] <= 1


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


def test_as_run_never_trains_the_network_on_a_small_data_set(world):
    loop = loop_of(world, "sptnet", epochs=1, settings={"turn": 20, "count": "epoch"})
    for _ in steps_of(loop):
        if loop.position.stage == 0:
            before = digest(loop.encoder.module.tail.state_dict())
    assert digest(loop.encoder.module.tail.state_dict()) == before


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
