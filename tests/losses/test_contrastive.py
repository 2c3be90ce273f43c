"""InfoNCE and SupCon against loops over pairs, golden numbers and their own symmetries."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.contrastive import info_nce, sup_con

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


@pytest.mark.parametrize("tau", [1.0, 0.07])
def test_info_nce_is_the_slow_loop(batch, tau) -> None:
    assert info_nce(batch[0], tau).item() == pytest.approx(slow_info_nce(batch[0], tau), abs=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.1, 0.07])
def test_sup_con_is_the_slow_loop(batch, tau) -> None:
    assert sup_con(*batch, tau).item() == pytest.approx(slow_sup_con(*batch, tau), abs=1e-12)


@pytest.mark.parametrize("case", INFONCE)
def test_info_nce_golden(case, golden, agrees) -> None:
    g = golden("infonce")
    x = g[f"{case}.features"].reshape(2, -1, g[f"{case}.features"].shape[-1])
    for tau in [1.0] if case == "b16_d256" else [1.0, 0.07]:
        key = f"{case}.tau{tau}"
        agrees(
            lambda z, t=tau: info_nce(z, t),
            [x],
            g[f"{key}.loss_f64"],
            [g[f"{key}.grad_f64"].reshape(x.shape)],
            grad_tol64=1e-7 if case == "b16_d256" else 1e-9,  # that array is stored as float32
            grad_tol32=1e-4 if tau == 0.07 else 1e-5,
        )


@pytest.mark.parametrize("case", SUPCON)
def test_sup_con_golden(case, golden, agrees) -> None:
    g = golden("supcon")
    label = torch.from_numpy(g[f"{case}.labels"])
    everyone = torch.ones_like(label, dtype=torch.bool)
    x = g[f"{case}.features"].reshape(2, len(label), -1)
    for tau in {"b16_d32": [0.07, 0.1, 1.0], "b16_d256": [0.07]}.get(case, [0.07, 0.1]):
        key, scale = f"{case}.tau{tau}", tau / 0.07  # the reference multiplies by it, unit scale does not
        agrees(
            lambda z, t=tau: sup_con(z, label, everyone, t),
            [x],
            g[f"{key}.loss_unit_scale_f64"],
            [g[f"{key}.grad_f64"].reshape(x.shape) / scale],
            grad_tol64=1e-7 if case == "b16_d256" else 1e-9,
            grad_tol32=1e-4 if tau == 0.07 else 1e-5,
        )


def test_identical_rows_cost_log_of_the_rest() -> None:
    assert info_nce(torch.ones(2, 4, 3)).item() == pytest.approx(math.log(7), rel=1e-6)


def test_sup_con_of_distinct_labels_is_info_nce(batch) -> None:
    z, everyone = batch[0], torch.ones(9, dtype=torch.bool)
    torch.testing.assert_close(sup_con(z, torch.arange(9), everyone, 0.1), info_nce(z, 0.1))


def test_order_of_images_and_views_does_not_matter(batch) -> None:
    z, label, labelled = batch
    order = torch.randperm(9)
    for other in (z[:, order], z.flip(0)):
        torch.testing.assert_close(info_nce(other), info_nce(z))
    torch.testing.assert_close(sup_con(z[:, order], label[order], labelled[order]), sup_con(*batch))


def test_unlabelled_rows_do_not_enter_sup_con(batch) -> None:
    z, label, labelled = batch
    other = torch.where(labelled[None, :, None], z, torch.randn_like(z) * 9)
    z.requires_grad_()
    torch.testing.assert_close(sup_con(other, torch.where(labelled, label, 0), labelled), sup_con(*batch))
    (grad,) = torch.autograd.grad(sup_con(*batch), z)
    assert (grad[:, ~labelled] == 0).all()
    assert (grad[:, labelled] != 0).any()


def test_finite_at_the_edges(finite) -> None:
    torch.manual_seed(0)
    z, label = torch.randn(2, 6, 8), torch.tensor([0, 0, 1, 1, 2, 0])
    duplicates = z[:, :1].expand(2, 6, 8)
    for x in (z, duplicates, z[:, :1], 1e4 * z, z * torch.tensor([0.0, 1, 1, 1, 1, 1])[:, None]):
        finite(lambda x: info_nce(x, 0.07), x)
        n = x.shape[1]
        for labelled in (torch.zeros(n) > 0, torch.ones(n) > 0, torch.eye(n)[0] > 0):
            finite(lambda x, m=labelled: sup_con(x, label[: len(m)], m), x)


def test_no_labelled_row_costs_nothing(batch) -> None:
    z = batch[0].requires_grad_()
    value = sup_con(z, batch[1], torch.zeros(9, dtype=torch.bool))
    assert value == 0
    assert (torch.autograd.grad(value, z)[0] == 0).all()


# -- against a teacher (PromptCAL) --------------------------------------------------------------------


@pytest.mark.parametrize("case", ["cross_a", "cross_one_labelled"])
def test_against_a_teacher_golden(case, golden) -> None:
    g = {key: torch.as_tensor(value) for key, value in golden("promptcal").items() if key.startswith(case)}
    student, teacher = (g[f"{case}__{who}"] for who in ("student", "teacher"))
    labelled, label = g[f"{case}__labelled"], g[f"{case}__labels"].clamp_min(0)
    for name in ("infonce", "supcon"):
        z = student.clone().requires_grad_()
        pair, other = z.unflatten(0, (2, -1)), teacher.unflatten(0, (2, -1))
        if name == "infonce":
            mine, own = info_nce(pair, 1.0, teacher=other), info_nce(pair.detach(), 1.0)
        else:
            mine = sup_con(pair, label, labelled, teacher=other)
            own = sup_con(pair.detach(), label, labelled)
        torch.testing.assert_close(mine, g[f"{case}__{name}_cross"], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(own, g[f"{case}__{name}_self"], rtol=1e-7, atol=1e-9)
        mine.backward()
        theirs = g[
            f"{case}__grad_{name}"
        ]  # of rows that are taken as unit vectors: ours cannot leave the sphere
        theirs = theirs - (theirs * student).sum(-1, keepdim=True) * student
        torch.testing.assert_close(z.grad, theirs, rtol=1e-6, atol=1e-9)


def test_a_teacher_takes_no_gradient(batch) -> None:
    teacher = batch[0].flip(1).requires_grad_()
    z = batch[0].clone().requires_grad_()
    (info_nce(z, teacher=teacher) + sup_con(z, *batch[1:], teacher=teacher)).backward()
    assert teacher.grad is None
    torch.testing.assert_close(info_nce(z, teacher=z), info_nce(z))
