"""The concept loss and its memory against the released code, and what no golden number says."""

from __future__ import annotations

import math

import pytest
import torch

from holotype.losses.contrastive import concept_nce, info_nce, sup_con, update_concept_memory

CASES = [
    "random",
    "same_concept_5_times",
    "one_concept",
    "untouched_concepts",
    "momentum_0p2",
    "closed_form",
]


def case_of(golden, name: str) -> dict[str, torch.Tensor]:
    prefix = f"memory_{name}__"
    return {
        key.removeprefix(prefix): torch.tensor(value)
        for key, value in golden("dccl").items()
        if key.startswith(prefix)
    }


def one_row_at_a_time(memory, concept, x, momentum):
    for c, row in zip(concept, x, strict=True):
        memory = update_concept_memory(memory, c[None], row[None, None], momentum)
    return memory


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("spare", [0, 3])
def test_loss_gradient_and_memory_equal_the_released_code(golden, name, spare):
    case = case_of(golden, name)
    x = case["inputs"].float().requires_grad_()
    before = case["memory_before"].float()
    n = len(before)
    memory = torch.cat([before, torch.zeros(spare, before.shape[1])])  # rows beyond n are not in use
    loss = concept_nce(x, case["targets"], memory, torch.tensor(n), float(case["tau"]))
    torch.testing.assert_close(loss, case["loss"].float(), rtol=1e-4, atol=2e-6)
    loss.backward()
    if "grad_inputs" in case:
        torch.testing.assert_close(x.grad, case["grad_inputs"], rtol=1e-4, atol=2e-6)
    after = one_row_at_a_time(memory, case["targets"], x.detach(), float(case["momentum"]))
    torch.testing.assert_close(after[:n], case["memory_after"], rtol=1e-4, atol=2e-6)
    assert not after[n:].any()


def test_the_instance_terms_equal_the_released_code(golden):
    features = torch.tensor(golden("dccl")["instance_a__features"]).view(2, 9, -1)
    label, labelled = (torch.tensor(golden("dccl")[f"instance_a__{name}"]) for name in ("labels", "labelled"))
    nce, con = info_nce(features, 1.0), sup_con(features, label, labelled, 0.07)
    for mine, name in ((nce, "infonce"), (con, "supcon"), (0.65 * nce + 0.35 * con, "loss")):
        assert float(mine) == pytest.approx(float(golden("dccl")[f"instance_a__{name}"]), rel=1e-7)


def test_a_centre_moves_as_computed_by_hand():
    memory = update_concept_memory(
        torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([[[0.0, 1.0]]])
    )
    torch.testing.assert_close(memory, torch.tensor([[0.1104, 0.9939]]), rtol=0, atol=1e-4)


def test_slots_move_at_once_as_they_would_one_by_one():
    g = torch.Generator().manual_seed(0)
    memory = torch.nn.functional.normalize(torch.randn(20, 6, generator=g, dtype=torch.float64), dim=1)
    concept = torch.randperm(20, generator=g)[:8]
    x = torch.randn(32, 8, 6, generator=g, dtype=torch.float64)
    at_once = update_concept_memory(memory, concept, x)
    one_by_one = one_row_at_a_time(memory, concept.repeat(32), x.flatten(0, 1), 0.1)
    torch.testing.assert_close(at_once, one_by_one, rtol=1e-12, atol=1e-12)
    untouched = [c for c in range(20) if c not in concept.tolist()]
    assert torch.equal(at_once[untouched], memory[untouched])
    torch.testing.assert_close(at_once.norm(dim=1), torch.ones(20, dtype=torch.float64))
    mean = torch.nn.functional.normalize(0.1 * memory[concept] + 0.9 * x.mean(0), dim=1)
    assert (at_once[concept] - mean).abs().max() > 0.1  # a batched mean would be another method


def test_of_two_slots_of_one_concept_the_last_one_stays_and_no_concept_moves_nothing():
    g = torch.Generator().manual_seed(0)
    memory, x = torch.randn(4, 3, generator=g), torch.randn(5, 4, 3, generator=g)
    moved = update_concept_memory(memory, torch.tensor([0, 2, 0, -1]), x)
    torch.testing.assert_close(moved[0], update_concept_memory(memory, torch.tensor([0]), x[:, 2:3])[0])
    assert torch.equal(moved[[1, 3]], memory[[1, 3]])
    assert torch.equal(update_concept_memory(memory, torch.full((4,), -1), x), memory)


def test_rows_without_a_concept_count_for_nothing_and_none_at_all_is_zero():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=g, requires_grad=True)
    memory = torch.nn.functional.normalize(torch.randn(7, 5, generator=g), dim=1).requires_grad_()
    concept = torch.tensor([0, -1, 2, 1, -1, 0])
    torch.testing.assert_close(
        concept_nce(x, concept, memory, 3),
        concept_nce(x[[0, 2, 3, 5]], concept[[0, 2, 3, 5]], memory[:3], 3),
    )
    nothing = concept_nce(x, torch.full((6,), -1), torch.zeros(7, 5), torch.tensor(0))
    assert nothing == 0
    nothing.backward()
    assert not x.grad.any()
    x.grad = None
    concept_nce(x, concept, memory, 3).backward()
    assert x.grad.any()
    assert not x.grad[[1, 4]].any()
    assert memory.grad is None  # the gradient reaches the images alone


def test_one_concept_has_nothing_to_be_told_from():
    assert concept_nce(torch.randn(4, 3), torch.zeros(4, dtype=torch.long), torch.randn(9, 3), 1) == 0


def test_equal_centres_cost_the_logarithm_of_their_number():
    memory = torch.eye(3)[:1].expand(8, 3)
    loss = concept_nce(torch.randn(5, 3), torch.arange(5), memory, 8)
    assert float(loss) == pytest.approx(math.log(8), rel=1e-5)


def test_half_precision_is_computed_in_full():
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    memory = torch.nn.functional.normalize(
        torch.randn(4, 16, generator=torch.Generator().manual_seed(1)), dim=1
    )
    concept = torch.tensor([0, 1, 2, 3, 0, 1])
    assert concept_nce(x, concept, memory, 4) == concept_nce(x.float(), concept, memory, 4)
