"""InfoNCE and SupCon against loops over pairs, golden numbers and their own symmetries."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.contrastive import concept_nce, info_nce, sup_con, update_concept_memory

INFONCE = ["b16_d32", "b16_d256", "b1_d32", "dup_images_b6", "identical_rows_b4", "large_norm_b8"]
SUPCON = ["b16_d32", "b16_d256", "one_image", "all_same_label", "all_distinct", "dup_images_dup_labels"]


def slow_info_nce(z: Tensor, tau: float) -> float:
    rows = [F.normalize(row, dim=0) for view in z for row in view]
    n, total = len(rows), 0.0
    for i in range(n):
        weight = [math.exp(float(rows[i] @ rows[j]) / tau) for j in range(n)]
        total -= math.log(weight[(i + n // 2) % n] / (sum(weight) - weight[i]))
    return total / n


def slow_sup_con(z: Tensor, label: Tensor, labelled: Tensor, tau: float) -> float:
    rows = [(F.normalize(v[i], dim=0), int(label[i])) for v in z for i in range(len(label)) if labelled[i]]
    total = 0.0
    for i, (a, y) in enumerate(rows):
        others = [(math.exp(float(a @ b) / tau), c) for j, (b, c) in enumerate(rows) if j != i]
        everything = sum(w for w, _ in others)
        terms = [-math.log(w / everything) for w, c in others if c == y]
        total += sum(terms) / len(terms)
    return total / len(rows)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    z = torch.randn(2, 9, 5, dtype=torch.float64)
    return z, torch.randint(0, 3, (9,)), torch.rand(9) < 0.6


@pytest.mark.parametrize("tau", [1.0, 0.1, 0.07])
def test_they_are_the_slow_loops(batch, tau) -> None:
    assert info_nce(batch[0], tau).item() == pytest.approx(slow_info_nce(batch[0], tau), abs=1e-12)
    assert sup_con(*batch, tau).item() == pytest.approx(slow_sup_con(*batch, tau), abs=1e-12)


def tolerances(case: str, tau: float) -> dict[str, float]:
    """One array is stored as float32."""
    return {"grad_tol64": 1e-7 if case == "b16_d256" else 1e-9, "grad_tol32": 1e-4 if tau == 0.07 else 1e-5}


@pytest.mark.parametrize("case", INFONCE)
def test_info_nce_golden(case, golden, agrees) -> None:
    g = golden("infonce")
    x = g[f"{case}.features"].reshape(2, -1, g[f"{case}.features"].shape[-1])
    for tau in [1.0] if case == "b16_d256" else [1.0, 0.07]:
        loss, grad = (g[f"{case}.tau{tau}.{name}_f64"] for name in ("loss", "grad"))
        agrees(lambda z, t=tau: info_nce(z, t), [x], loss, [grad.reshape(x.shape)], **tolerances(case, tau))


@pytest.mark.parametrize("case", SUPCON)
def test_sup_con_golden(case, golden, agrees) -> None:
    g = golden("supcon")
    label = torch.from_numpy(g[f"{case}.labels"])
    everyone = torch.ones_like(label, dtype=torch.bool)
    x = g[f"{case}.features"].reshape(2, len(label), -1)
    for tau in {"b16_d32": [0.07, 0.1, 1.0], "b16_d256": [0.07]}.get(case, [0.07, 0.1]):
        key, scale = f"{case}.tau{tau}", tau / 0.07  # the reference multiplies by it, unit scale does not
        loss, grad = g[f"{key}.loss_unit_scale_f64"], g[f"{key}.grad_f64"].reshape(x.shape) / scale
        agrees(lambda z, t=tau: sup_con(z, label, everyone, t), [x], loss, [grad], **tolerances(case, tau))


@pytest.mark.parametrize("name", ["cross_a", "cross_one_labelled"])
def test_against_a_teacher_golden(name, case) -> None:
    g = {key: torch.as_tensor(value) for key, value in case("promptcal", name).items()}
    student, teacher, labelled, label = (g[key] for key in ("student", "teacher", "labelled", "labels"))
    teacher.requires_grad_()
    losses = {
        "infonce": lambda z, **teacher: info_nce(z, 1.0, **teacher),
        "supcon": lambda z, **teacher: sup_con(z, label.clamp_min(0), labelled, **teacher),
    }
    for term, loss in losses.items():
        z = student.clone().requires_grad_()
        pair, other = z.unflatten(0, (2, -1)), teacher.unflatten(0, (2, -1))
        mine = loss(pair, teacher=other)
        torch.testing.assert_close(mine, g[f"{term}_cross"], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(loss(pair.detach()), g[f"{term}_self"], rtol=1e-7, atol=1e-9)
        mine.backward()
        assert teacher.grad is None
        # of rows that are taken as unit vectors: ours cannot leave the sphere
        theirs = g[f"grad_{term}"]
        theirs = theirs - (theirs * student).sum(-1, keepdim=True) * student
        torch.testing.assert_close(z.grad, theirs, rtol=1e-6, atol=1e-9)


CONCEPT_CASES = ["random", "same_concept_5_times", "one_concept", "untouched_concepts"]
CONCEPT_CASES += ["momentum_0p2", "closed_form"]


def one_row_at_a_time(memory, concept, x, momentum):
    for c, row in zip(concept, x, strict=True):
        memory = update_concept_memory(memory, c[None], row[None, None], momentum)
    return memory


@pytest.mark.parametrize("name", CONCEPT_CASES)
@pytest.mark.parametrize("spare", [0, 3])
def test_loss_gradient_and_memory_equal_the_released_code(case, name, spare):
    g = {key: torch.tensor(value) for key, value in case("dccl", f"memory_{name}").items()}
    x, before = g["inputs"].float().requires_grad_(), g["memory_before"].float()
    n = len(before)
    memory = torch.cat(
        [before, torch.zeros(spare, before.shape[1])]
    ).requires_grad_()  # rows beyond n are not in use
    loss = concept_nce(x, g["targets"], memory, torch.tensor(n), float(g["tau"]))
    torch.testing.assert_close(loss, g["loss"].float(), rtol=1e-4, atol=2e-6)
    loss.backward()
    assert memory.grad is None  # the gradient reaches the images alone
    if "grad_inputs" in g:
        torch.testing.assert_close(x.grad, g["grad_inputs"], rtol=1e-4, atol=2e-6)
    after = one_row_at_a_time(memory.detach(), g["targets"], x.detach(), float(g["momentum"]))
    torch.testing.assert_close(after[:n], g["memory_after"], rtol=1e-4, atol=2e-6)
    assert not after[n:].any()


def test_the_instance_terms_equal_the_released_code(case):
    g = {key: torch.tensor(value) for key, value in case("dccl", "instance_a").items()}
    features = g["features"].view(2, 9, -1)
    nce, con = info_nce(features, 1.0), sup_con(features, g["labels"], g["labelled"], 0.07)
    for mine, name in ((nce, "infonce"), (con, "supcon"), (0.65 * nce + 0.35 * con, "loss")):
        assert float(mine) == pytest.approx(float(g[name]), rel=1e-7)


def test_slots_move_at_once_as_they_would_one_by_one():
    g = torch.Generator().manual_seed(0)
    memory = F.normalize(torch.randn(20, 6, generator=g, dtype=torch.float64), dim=1)
    concept = torch.randperm(20, generator=g)[:8]
    x = torch.randn(32, 8, 6, generator=g, dtype=torch.float64)
    at_once = update_concept_memory(memory, concept, x)
    one_by_one = one_row_at_a_time(memory, concept.repeat(32), x.flatten(0, 1), 0.1)
    torch.testing.assert_close(at_once, one_by_one, rtol=1e-12, atol=1e-12)
    untouched = [c for c in range(20) if c not in concept.tolist()]
    assert torch.equal(at_once[untouched], memory[untouched])
    torch.testing.assert_close(at_once.norm(dim=1), torch.ones(20, dtype=torch.float64))
    mean = F.normalize(0.1 * memory[concept] + 0.9 * x.mean(0), dim=1)
    assert (at_once[concept] - mean).abs().max() > 0.1  # a batched mean would be another method


def test_of_two_slots_of_one_concept_the_last_one_stays_and_no_concept_moves_nothing():
    g = torch.Generator().manual_seed(0)
    memory, x = torch.randn(4, 3, generator=g), torch.randn(5, 4, 3, generator=g)
    moved = update_concept_memory(memory, torch.tensor([0, 2, 0, -1]), x)
    torch.testing.assert_close(moved[0], update_concept_memory(memory, torch.tensor([0]), x[:, 2:3])[0])
    assert torch.equal(moved[[1, 3]], memory[[1, 3]])
    assert torch.equal(update_concept_memory(memory, torch.full((4,), -1), x), memory)
