"""SGD: what decays, what is frozen, and that saved momentum gives the very next step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from holotype.errors import InputError
from holotype.methods import ParamGroup, Progress
from holotype.methods.schedules import cosine_lr
from holotype.models.heads import CosineClassifier, Projector
from holotype.training.optim import build_optimiser, logged_rate, set_rates, state_tensors

GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "param_groups.npz", allow_pickle=False)


def network(seed: int = 0) -> dict[str, nn.Parameter]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tail = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
        modules = nn.ModuleDict({"tail": tail, "method": CosineClassifier(6, 3)})
    return dict(modules.named_parameters())


def step(learnable: dict[str, nn.Parameter], optimiser: torch.optim.Optimizer, number: int) -> None:
    """One step on a loss of its own, in which every parameter takes part."""
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(number))
    h = torch.tanh(x @ learnable["tail.0.weight"].T + learnable["tail.0.bias"])
    h = h * learnable["tail.1.weight"] + learnable["tail.1.bias"]
    optimiser.zero_grad(set_to_none=True)
    (h @ learnable["method.v"].T).pow(2).mean().backward()
    optimiser.step()


def test_groups_are_those_of_the_reference_code():
    """Names of the released code's groups: a ViT of 12 blocks with the last one trained, and SimGCD's head."""
    from holotype.models.zoo import patch_torchvision

    patch_torchvision()
    import timm

    sizes = {"img_size": 32, "embed_dim": 8, "depth": 12, "num_heads": 2, "num_classes": 0}
    vit = timm.create_model("vit_tiny_patch16_224", **sizes)
    learnable = {f"0.{name}": p for name, p in vit.named_parameters()}
    learnable |= {f"1.{name}": p for name, p in Projector(8, 16, 4).named_parameters()}
    learnable["1.last_layer.weight_v"] = CosineClassifier(8, 5).v
    frozen = set(GOLDEN["groups.frozen"].tolist()) - {"1.last_layer.weight_g"}  # ours has no gain
    assert set(learnable) == {*GOLDEN["groups.decay"], *GOLDEN["groups.no_decay"], *frozen}

    block = int(GOLDEN["groups.grad_from_block"])
    optimiser = build_optimiser(learnable, (f"0.blocks.{block}.", "1."), 0.1, 0.9, 5e-5)
    name_of = {id(p): name for name, p in learnable.items()}
    decaying, plain = [{name_of[id(p)] for p in group["params"]} for group in optimiser.param_groups]
    assert decaying == set(GOLDEN["groups.decay"].tolist())
    assert plain == set(GOLDEN["groups.no_decay"].tolist())
    decay = [group["weight_decay"] for group in optimiser.param_groups]
    assert decay == [5e-5, float(GOLDEN["groups.no_decay_weight_decay"])]
    assert {name for name, p in learnable.items() if not p.requires_grad} == frozen


def test_what_a_stage_does_not_train_is_frozen_until_one_does_and_nothing_is_refused():
    learnable = network()
    before = {name: p.detach().clone() for name, p in learnable.items()}
    step(learnable, build_optimiser(learnable, ("method",), 0.1, 0.9, 0.1), 0)
    for name, p in learnable.items():
        assert (p.grad is not None) == p.requires_grad == name.startswith("method"), name
        assert torch.equal(p, before[name]) != name.startswith("method"), name
    step(learnable, build_optimiser(learnable, ("tail",), 0.1, 0.9, 0.1), 1)
    assert all(not torch.equal(p, before[name]) for name, p in learnable.items())
    with pytest.raises(InputError, match="no parameter learns: none begins with trunk or other"):
        build_optimiser(network(), ("trunk", "other"), 0.1, 0.9, 0.0)


def test_momentum_begins_at_zero_and_the_first_step_is_that_of_plain_sgd():
    mine, theirs = network(), network()
    ours = build_optimiser(mine, ("tail", "method"), 0.1, 0.9, 0.1)
    found = state_tensors(ours, mine)
    assert found.keys() == {f"momentum.{name}" for name in mine}
    assert not any(tensor.any() for tensor in found.values())
    decay = [{"params": [p], "weight_decay": 0.1 if p.ndim > 1 else 0.0} for p in theirs.values()]
    reference = torch.optim.SGD(decay, lr=0.1, momentum=0.9)
    for number in range(3):
        step(mine, ours, number), step(theirs, reference, number)
        for name in mine:
            assert torch.equal(mine[name], theirs[name]), (number, name)


def test_the_rate_can_be_set_as_a_number_and_as_a_tensor():
    optimiser = build_optimiser(network(), ("tail",), 0.1, 0.9, 0.1)
    first = cosine_lr(0.1, 1, 4)
    set_rates(optimiser, 0, Progress(1, 4))
    assert [group["lr"] for group in optimiser.param_groups] == [first, first]
    tensor = torch.tensor(0.1)
    for group in optimiser.param_groups:
        group["lr"] = tensor  # as on CUDA, where a captured step reads it
    set_rates(optimiser, 0, Progress(2, 4))
    assert optimiser.param_groups[0]["lr"] is tensor
    assert float(tensor) == pytest.approx(cosine_lr(0.1, 2, 4))


def settings_of(learnable: dict[str, nn.Parameter], optimiser: torch.optim.Optimizer) -> dict[str, tuple]:
    """Rate and decay of each parameter at the start."""
    set_rates(optimiser, 0, Progress(0, 4))
    name_of = {id(p): name for name, p in learnable.items()}
    groups = optimiser.param_groups
    return {name_of[id(p)]: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}


def test_the_longest_prefix_decides_the_rate_and_the_decay_and_vectors_never_decay():
    learnable, no_rate = network(), ParamGroup("method", lr=0.0, weight_decay=0.0)
    rates = (ParamGroup("tail", lr=0.5), ParamGroup("tail.1", weight_decay=0.7), no_rate)
    optimiser = build_optimiser(learnable, ("tail", "method"), 0.1, 0.9, 0.3, rates)
    assert settings_of(learnable, optimiser) == {
        "tail.0.weight": (0.5, 0.3),
        "tail.0.bias": (0.5, 0.0),
        "tail.1.weight": (0.1, 0.0),  # of one dimension: the decay is for matrices
        "tail.1.bias": (0.1, 0.0),
        "method.v": (0.0, 0.0),
    }
    before = learnable["method.v"].detach().clone()
    step(learnable, optimiser, 0)
    assert torch.equal(learnable["method.v"], before)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_earlier_blocks_learn_at_a_share_of_the_rate_of_the_block_after_them(share):
    names = ("tail.blocks.10.w", "tail.blocks.11.w", "tail.blocks.12.w", "tail.norm", "method.v", "method.w")
    learnable = {name: nn.Parameter(torch.zeros(2, 2)) for name in names}
    own = (ParamGroup("method.w", lr=0.4),)
    optimiser = build_optimiser(
        learnable, ("tail", "method"), 0.1, 0.9, 0.0, own, slowed=0.5, block_rate=share
    )
    found = {name: rate for name, (rate, _) in settings_of(learnable, optimiser).items()}
    shares = (share**2, share, 1, 1, 1, 2)
    assert found == pytest.approx({name: 0.1 * rate for name, rate in zip(names, shares, strict=True)})
    assert logged_rate(optimiser, 0, Progress(0, 4)) == pytest.approx(0.1)
