"""The classifier's losses against loops and golden numbers, and the whole SimGCD objective made of them."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.classification import (
    mean_entropy_deficit,
    prior_mismatch,
    self_distillation,
    supervised_cross_entropy,
    tempered,
)
from holotype.losses.contrastive import info_nce, sup_con

EPOCHS = [0, 15, 29, 30, 199]


def two_views(x: np.ndarray) -> np.ndarray:
    return x.reshape(2, -1, x.shape[-1])


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    logits = torch.rand(2, 7, 4, dtype=torch.float64) * 2 - 1
    return logits, torch.randint(0, 4, (7,)), torch.tensor([1, 0, 1, 1, 0, 0, 1]).bool()


def softmax(q: Tensor, tau: float) -> list[float]:
    weight = [math.exp(float(v) / tau) for v in q]
    return [w / sum(weight) for w in weight]


def test_cross_entropy_is_the_slow_loop(batch) -> None:
    logits, label, labelled = batch
    terms = [-math.log(softmax(v[i], 0.1)[label[i]]) for v in logits for i in range(7) if labelled[i]]
    assert supervised_cross_entropy(*batch).item() == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_distillation_is_the_slow_loop(batch) -> None:
    a, b = batch[0]
    total = 0.0
    for i in range(7):
        for teacher, student in ((a[i], b[i]), (b[i], a[i])):
            p, q = softmax(teacher, 0.05), softmax(student, 0.1)
            total -= sum(x * math.log(y) for x, y in zip(p, q, strict=True))
    assert self_distillation(batch[0], 0.05).item() == pytest.approx(total / 14, abs=1e-12)


def test_entropy_deficit_is_the_slow_loop(batch) -> None:
    rows = [softmax(row, 0.1) for view in batch[0] for row in view]
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    expected = math.log(4) + sum(p * math.log(p) for p in mean)
    assert mean_entropy_deficit(batch[0]).item() == pytest.approx(expected, abs=1e-12)


def test_mismatch_is_the_slow_loop(batch) -> None:
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    rows = [softmax(row, 0.1) for view in batch[0] for row in view]
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    expected = sum(p * math.log(p / t) for p, t in zip(mean, prior.tolist(), strict=True))
    assert prior_mismatch(batch[0], prior).item() == pytest.approx(expected, abs=1e-12)


def test_mismatch_with_equal_parts_is_the_entropy_deficit(batch) -> None:
    """In value and in gradient, and it is 0 where the prediction is the prior."""
    equal = torch.full((4,), 0.25, dtype=torch.float64)
    a, b = (batch[0].clone().requires_grad_() for _ in range(2))
    prior_mismatch(a, equal).backward()
    mean_entropy_deficit(b).backward()
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(prior_mismatch(batch[0], equal), mean_entropy_deficit(batch[0]))
    own = (batch[0] / 0.1).softmax(-1).flatten(0, 1).mean(0)
    assert prior_mismatch(batch[0], own).item() == pytest.approx(0, abs=1e-12)


def test_mismatch_of_a_class_that_nobody_predicts_is_finite() -> None:
    logits = torch.tensor([1.0, -40.0, -40.0]).expand(2, 3, 3).clone().requires_grad_()
    loss = prior_mismatch(logits, tempered(torch.tensor([1.0, 0.0, 0.0]), 0.5))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_tempering_lies_between_equal_parts_and_the_shares() -> None:
    share = torch.tensor([0.64, 0.32, 0.04], dtype=torch.float64)
    torch.testing.assert_close(tempered(share, 0), torch.full_like(share, 1 / 3))
    torch.testing.assert_close(tempered(share, 1), share)
    torch.testing.assert_close(tempered(share, 0.5), share.sqrt() / share.sqrt().sum())
    empty = tempered(torch.tensor([1.0, 0.0]), 0.5)
    assert 0 < empty[1] < 0.05
    assert empty.sum() == pytest.approx(1)


@pytest.mark.parametrize("case", ["b16_k20", "b1_k20", "confident_b8_k20", "dup_images_b4"])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_distillation_golden(case, epoch, golden, agrees) -> None:
    g, key = golden("distill"), f"{case}.epoch{epoch}"
    temp, x = float(g[f"{key}.teacher_temp"]), two_views(g[f"{case}.student_out"])
    grad = two_views(g[f"{key}.grad_f64"])
    for teacher_temp in (temp, torch.tensor(temp, dtype=torch.float64)):
        agrees(lambda q, t=teacher_temp: self_distillation(q, t), [x], g[f"{key}.loss_f64"], [grad])


@pytest.mark.parametrize("case", ["b16_k20", "b1_k20", "uniform_k20", "one_class_k20", "zero_prob_k12"])
def test_entropy_deficit_golden(case, golden, agrees) -> None:
    g = golden("memax")
    x, grad = two_views(g[f"{case}.student_out"]), two_views(g[f"{case}.grad_f64"])
    # The reference's own float32 gradient of the collapsed case is 1.05e-5 off its float64 one.
    tol = 1.1e-5 if case == "one_class_k20" else 1e-5
    agrees(mean_entropy_deficit, [x], g[f"{case}.loss_f64"], [grad], grad_tol32=tol)


def simgcd(z: Tensor, logits: Tensor, label: Tensor, labelled: Tensor, teacher_temp: float) -> Tensor:
    unsupervised = self_distillation(logits, teacher_temp) + 2 * mean_entropy_deficit(logits) + info_nce(z)
    supervised = supervised_cross_entropy(logits, label, labelled) + sup_con(z, label, labelled)
    return 0.65 * unsupervised + 0.35 * supervised


@pytest.mark.parametrize("case", ["mixed", "one_labelled", "all_labelled", "dup_labels"])
def test_the_whole_simgcd_objective_golden(case, golden, agrees) -> None:
    g = golden("simgcd_total")
    z, logits = two_views(g[f"{case}.student_proj"]), two_views(g[f"{case}.student_out"])
    label, labelled = torch.from_numpy(g[f"{case}.labels"]), torch.from_numpy(g[f"{case}.mask_lab"])
    agrees(lambda q: supervised_cross_entropy(q, label, labelled), [logits], g[f"{case}.part.cls_sup_f64"])
    agrees(lambda x: sup_con(x, label, labelled), [z], g[f"{case}.part.con_sup_f64"])
    for epoch in EPOCHS:
        temp = float(golden("schedules")["lr0.1_ep200_w30.teacher_temp"][epoch])
        key = f"{case}.epoch{epoch}"
        names = [f"{key}.grad_proj_f64", f"{key}.grad_out_f64"]
        grads = [two_views(g[name]) for name in names if name in g]
        agrees(
            lambda x, q, t=temp: simgcd(x, q, label, labelled, t),
            [z, logits],
            g[f"{key}.loss_f64"],
            grads,
        )


def test_the_objective_without_labelled_rows_drops_the_labelled_terms(golden, finite) -> None:
    g, case = golden("simgcd_total"), "none_labelled"
    z, logits = (torch.from_numpy(two_views(g[f"{case}.student_{n}"])) for n in ("proj", "out"))
    label, labelled = torch.from_numpy(g[f"{case}.labels"]), torch.from_numpy(g[f"{case}.mask_lab"])
    expected = 0.65 * (self_distillation(logits, 0.07) + 2 * mean_entropy_deficit(logits) + info_nce(z))
    torch.testing.assert_close(simgcd(z, logits, label, labelled, 0.07), expected)
    finite(lambda x, q: simgcd(x, q, label, labelled, 0.07), z, logits)


def test_entropy_deficit_lies_between_balance_and_collapse() -> None:
    balanced = torch.eye(5).repeat(2, 1, 1) * 100
    collapsed = torch.eye(5)[:1].expand(2, 5, 5) * 100
    assert mean_entropy_deficit(balanced).item() == pytest.approx(0, abs=1e-6)
    assert mean_entropy_deficit(collapsed).item() == pytest.approx(math.log(5), rel=1e-6)


def test_the_teacher_gets_no_gradient() -> None:
    logits = torch.randn(2, 3, 4, requires_grad=True)
    view_b_alone = (
        -((logits[0].detach() / 0.05).softmax(-1) * (logits[1] / 0.1).log_softmax(-1)).sum(-1).mean()
    )
    (grad,) = torch.autograd.grad(self_distillation(logits, 0.05), logits)
    (expected,) = torch.autograd.grad(view_b_alone / 2, logits)
    torch.testing.assert_close(grad[1], expected[1])


def test_order_of_images_and_views_does_not_matter(batch) -> None:
    logits, label, labelled = batch
    order = torch.randperm(7)
    for other in (logits[:, order], logits.flip(0)):
        torch.testing.assert_close(self_distillation(other, 0.05), self_distillation(logits, 0.05))
        torch.testing.assert_close(mean_entropy_deficit(other), mean_entropy_deficit(logits))
    permuted = supervised_cross_entropy(logits[:, order], label[order], labelled[order])
    torch.testing.assert_close(permuted, supervised_cross_entropy(*batch))


def test_finite_at_the_edges(finite) -> None:
    torch.manual_seed(0)
    logits, label = torch.rand(2, 6, 5) * 2 - 1, torch.zeros(6, dtype=torch.long)
    for q in (logits, logits[:, :1].expand(2, 6, 5), logits * 0, torch.eye(6)[:, :5].expand(2, 6, 5) * 50):
        finite(lambda x: self_distillation(x, 0.04), q)
        finite(mean_entropy_deficit, q)
        for labelled in (torch.zeros(6) > 0, torch.ones(6) > 0, torch.eye(6)[0] > 0):
            finite(lambda x, m=labelled: supervised_cross_entropy(x, label, m), q)
