"""The classifier's losses against loops and golden numbers, and the whole SimGCD objective made of them."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.classification import (
    debiased_loss,
    mean_entropy_deficit,
    self_distillation,
    supervised_cross_entropy,
)


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


def test_cross_entropy_and_distillation_are_the_slow_loops(batch) -> None:
    logits, label, labelled = batch
    terms = [-math.log(softmax(v[i], 0.1)[label[i]]) for v in logits for i in range(7) if labelled[i]]
    assert supervised_cross_entropy(*batch).item() == pytest.approx(sum(terms) / len(terms), abs=1e-12)
    a, b = logits
    total = 0.0
    for i in range(7):
        for teacher, student in ((a[i], b[i]), (b[i], a[i])):
            p, q = softmax(teacher, 0.05), softmax(student, 0.1)
            total -= sum(x * math.log(y) for x, y in zip(p, q, strict=True))
    assert self_distillation(batch[0], 0.05).item() == pytest.approx(total / 14, abs=1e-12)


def test_entropy_deficit_is_the_slow_loop_also_with_weights(batch) -> None:
    q = batch[0]
    even = [1 / q.shape[1]] * q.shape[1]
    weights = [float(i + 1) for i in range(q.shape[1])]
    for weight in (None, [w / sum(weights) for w in weights]):
        mean = [0.0] * 4
        for view in q:
            for row, w in zip(view, weight or even, strict=True):
                mean = [m + w * p / len(q) for m, p in zip(mean, softmax(row, 0.1), strict=True)]
        expected = math.log(4) + sum(p * math.log(p) for p in mean)
        given = None if weight is None else torch.tensor(weight, dtype=torch.float64)
        assert mean_entropy_deficit(q, weight=given).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", ["b16_k20", "b1_k20", "confident_b8_k20", "dup_images_b4"])
@pytest.mark.parametrize("epoch", [0, 15, 29, 30, 199])
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


@pytest.fixture
def debias_batch() -> tuple[Tensor, ...]:
    torch.manual_seed(4)
    debiased, classifier = torch.rand(2, 2, 9, 5, dtype=torch.float64).unbind(0)
    labelled, label = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0]).bool(), torch.randint(0, 5, (9,))
    return debiased, classifier * 1.5, torch.rand(2, 9, dtype=torch.float64), label, labelled


def test_it_is_the_slow_loop(debias_batch) -> None:
    debiased, classifier, certainty, label, labelled = debias_batch
    supervised, pseudo, kept = [], [], 0
    for v in range(2):
        for i in range(9):
            log_p = (debiased[v, i] / 0.1).log_softmax(-1)
            if labelled[i]:
                supervised.append(-float(log_p[label[i]]))
                continue
            p = [math.exp(float(q) / 0.1) for q in classifier[v, i]]
            best = max(range(5), key=lambda c: p[c])
            keep = p[best] / sum(p) >= 0.6
            kept += keep
            pseudo.append(-float(log_p[best]) * float(certainty[v, i]) if keep else 0.0)
    assert 0 < kept < len(pseudo)
    expected = 0.7 * sum(supervised) / len(supervised) + 0.3 * sum(pseudo) / len(pseudo)
    assert debiased_loss(*debias_batch, 0.6, 0.3).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "case", ["n16_c8", "n1_c8_one_row", "n12_c5_saturated", "n6_c1_single_class", "n10_c100"]
)
def test_recomputed_numbers(case, golden) -> None:
    g = golden("ova")

    def number(name: str) -> Tensor:
        return torch.from_numpy(g[f"debgcd_recomputed.{case}.{name}"])

    known, unknown = number("debiased_labelled").double(), number("debiased_unlabelled").double()
    debiased = torch.cat([known, unknown])[None]
    classifier = torch.cat([torch.zeros_like(known), number("classifier_unlabelled").double()])[None]
    certainty = torch.cat([torch.ones(len(known)), number("certainty")])[None]
    label = torch.cat([number("labels"), torch.zeros(len(unknown), dtype=torch.long)])
    labelled = torch.arange(debiased.shape[1]) < len(known)
    threshold = float(number("thr"))
    for share, name in ((0.5, "l_adl_f64"), (0.0, "l_adl_sup_f64"), (1.0, "l_adl_unl_f64")):
        ours = debiased_loss(debiased, classifier, certainty, label, labelled, threshold, share)
        assert ours.item() == pytest.approx(number(name).item(), abs=1e-9)


def test_only_the_debiased_classifier_learns(debias_batch) -> None:
    """The threshold may be a 0-d tensor."""
    inputs = [x.clone().requires_grad_() for x in debias_batch[:3]]
    grads = torch.autograd.grad(
        debiased_loss(*inputs, *debias_batch[3:], torch.tensor(0.5)), inputs, allow_unused=True
    )
    assert grads[0].abs().sum() > 0
    assert grads[1:] == (None, None)
