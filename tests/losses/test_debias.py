"""DebGCD's debiased learning against a loop over rows and recomputed numbers."""

import math

import pytest
import torch
from torch import Tensor

from holotype.losses.classification import debiased_loss

CASES = ["n16_c8", "n1_c8_one_row", "n12_c5_saturated", "n6_c1_single_class", "n10_c100"]


@pytest.fixture
def batch() -> tuple[Tensor, ...]:
    torch.manual_seed(4)
    debiased, classifier = torch.rand(2, 2, 9, 5, dtype=torch.float64).unbind(0)
    labelled = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0]).bool()
    return (
        debiased,
        classifier * 1.5,
        torch.rand(2, 9, dtype=torch.float64),
        torch.randint(0, 5, (9,)),
        labelled,
    )


def test_it_is_the_slow_loop(batch) -> None:
    debiased, classifier, certainty, label, labelled = batch
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
    assert debiased_loss(*batch, 0.6, 0.3).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
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


def test_only_the_debiased_classifier_learns(batch) -> None:
    inputs = [x.clone().requires_grad_() for x in batch[:3]]
    value = debiased_loss(*inputs, *batch[3:], 0.5)
    grads = torch.autograd.grad(value, inputs, allow_unused=True)
    assert grads[0].abs().sum() > 0
    assert grads[1] is None
    assert grads[2] is None


def test_a_threshold_nobody_reaches_leaves_the_labels(batch) -> None:
    debiased, classifier, certainty, label, labelled = batch
    impossible = torch.tensor(1.1)  # a 0-d tensor is as good as a number
    value = debiased_loss(debiased, classifier, certainty, label, labelled, impossible)
    torch.testing.assert_close(value, 0.5 * debiased_loss(*batch, 0.0, 0.0))


def test_order_of_images_and_views_does_not_matter(batch) -> None:
    order = torch.randperm(9)
    permuted = debiased_loss(*(x[:, order] for x in batch[:3]), *(x[order] for x in batch[3:]), 0.5)
    flipped = debiased_loss(*(x.flip(0) for x in batch[:3]), *batch[3:], 0.5)
    for other in (permuted, flipped):
        torch.testing.assert_close(other, debiased_loss(*batch, 0.5))


def test_finite_at_the_edges(batch, finite) -> None:
    debiased, classifier, certainty, label, labelled = batch
    for mask in (labelled, torch.zeros_like(labelled), torch.ones_like(labelled)):
        for weight in (certainty, certainty * 0):
            for scale in (1, 0, 40):
                finite(
                    lambda d, c, w, m=mask: debiased_loss(d, c, w, label, m, 0.5),
                    debiased * scale,
                    classifier * scale,
                    weight,
                )
