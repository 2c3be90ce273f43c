"""Sinkhorn and swapped prediction against UNO's golden numbers, loops and their own definitions."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.sinkhorn import sinkhorn, swapped_prediction

SINKHORN = [
    "random",
    "fewer_rows_than_classes",
    "clustered",
    "identical_rows",
    "balanced_separable_4x2",
    "imbalanced_3to1_4x2",
    "one_row",
    "large_logits_fp64_only",
]


def slow_sinkhorn(logits: Tensor, prior: list[float], eps: float, iterations: int) -> np.ndarray:
    q = np.exp(logits.numpy() / eps)
    for _ in range(iterations):
        for k in range(q.shape[1]):
            q[:, k] *= prior[k] / q[:, k].sum()
        for i in range(q.shape[0]):
            q[i] /= q[i].sum()
    return q


@pytest.fixture
def logits() -> Tensor:
    torch.manual_seed(0)
    return 2 * torch.rand(40, 6, dtype=torch.float64) - 1


@pytest.mark.parametrize("name", SINKHORN)
def test_sinkhorn_golden(name, golden) -> None:
    g = golden("uno")
    x, eps = torch.from_numpy(g[f"sinkhorn_{name}__logits"]), float(g[f"sinkhorn_{name}__eps"])
    for rounds in g[f"sinkhorn_{name}__iters"]:
        theirs = g[f"sinkhorn_{name}__Q_it{rounds}_fp64"]
        ours = sinkhorn(x, eps=eps, iterations=int(rounds))
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
        if rounds <= 50:
            single = sinkhorn(x.float(), eps=eps, iterations=int(rounds))
            np.testing.assert_allclose(single, theirs, atol=5e-5)


def test_sinkhorn_is_the_slow_loop(logits) -> None:
    prior = [0.3, 0.1, 0.1, 0.2, 0.25, 0.05]
    for pi in (None, torch.tensor(prior, dtype=torch.float64)):
        expected = slow_sinkhorn(logits, [1 / 6] * 6 if pi is None else prior, 0.05, 3)
        np.testing.assert_allclose(sinkhorn(logits, prior=pi), expected, atol=1e-12)


def test_masked_rows_have_no_part_in_it(logits) -> None:
    valid = torch.rand(40) < 0.5
    prior = torch.rand(6, dtype=torch.float64) + 0.2
    ours = sinkhorn(logits, valid, prior / prior.sum())
    alone = sinkhorn(logits[valid], prior=prior / prior.sum())
    torch.testing.assert_close(ours[valid], alone, atol=1e-12, rtol=0)
    other = torch.where(valid[:, None], logits, 50 * torch.randn_like(logits))
    torch.testing.assert_close(sinkhorn(other, valid, prior)[valid], ours[valid], atol=1e-12, rtol=0)


def test_heads_and_views_are_independent(logits) -> None:
    many = torch.stack([logits, logits.flip(0), 2 * logits]).view(3, 1, 40, 6)
    for one, x in zip(sinkhorn(many)[:, 0], many[:, 0], strict=True):
        torch.testing.assert_close(one, sinkhorn(x))


def test_rows_sum_to_one_and_columns_come_to_their_prior(logits) -> None:
    prior = torch.tensor([1.0, 1, 1, 2, 2, 2], dtype=torch.float64) / 9
    off = []
    for rounds in (1, 3, 30, 200):
        q = sinkhorn(logits, prior=prior, iterations=rounds)
        torch.testing.assert_close(q.sum(-1), torch.ones(40, dtype=torch.float64), atol=1e-6, rtol=0)
        off.append(float((q.mean(0) / prior - 1).abs().max()))
    assert off == sorted(off, reverse=True)
    assert off[-1] < 1e-4


def test_no_valid_row_and_overflowing_logits_stay_finite() -> None:
    nobody = torch.zeros(5, dtype=torch.bool)
    for x in (torch.randn(5, 4), 400 * torch.randn(5, 4), 30 * torch.randn(5, 4).bfloat16()):
        for valid in (nobody, ~nobody):
            q = sinkhorn(x, valid)
            assert q.dtype == torch.float32
            assert q.isfinite().all()


def test_a_queue_gives_the_true_class_its_mass_back() -> None:
    """64 rows for 200 classes: Sinkhorn puts a quarter on the true class; with 2 000 rows beside them most of it."""
    torch.manual_seed(0)
    truth = torch.randint(0, 200, (2064,))
    x = 0.1 * torch.randn(2064, 200) + 0.5 * torch.eye(200)[truth]
    few = sinkhorn(x[:64]).gather(1, truth[:64, None]).mean()
    many = sinkhorn(x).gather(1, truth[:, None])[:64].mean()
    assert few < 0.35
    assert many > 0.7


def slow_swapped(logits: Tensor, targets: Tensor, tau: float) -> list[float]:
    found = []
    for h in range(logits.shape[1]):
        total, terms = 0.0, 0
        for v in range(len(targets)):
            for w in range(len(logits)):
                if w == v:
                    continue
                log_p = (logits[w, h] / tau).log_softmax(-1)
                total -= float((targets[v, h] * log_p).sum(-1).mean())
                terms += 1
        found.append(total / terms)
    return found


@pytest.mark.parametrize("name", ["two_views", "multicrop_2large_2small", "labelled_only"])
def test_swapped_prediction_golden(name, golden, agrees) -> None:
    g = golden("uno")
    large, tau = int(g[f"swapped_{name}__num_large"]), float(g[f"swapped_{name}__tau"])
    targets = torch.from_numpy(g[f"swapped_{name}__targets"])[:large]
    logits = g[f"swapped_{name}__logits"]
    ours = swapped_prediction(torch.from_numpy(logits), targets, tau)
    np.testing.assert_allclose(ours, g[f"swapped_{name}__loss_per_head"], rtol=1e-7)
    np.testing.assert_allclose(ours, slow_swapped(torch.from_numpy(logits), targets, tau), rtol=1e-9)
    agrees(
        lambda x: swapped_prediction(x, targets.to(x.dtype), tau).mean(),
        [logits],
        g[f"swapped_{name}__loss"],
        [g[f"swapped_{name}__grad_logits"]],
    )


def test_a_labelled_batch_costs_plain_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, label = torch.randn(2, 3, 9, 5, dtype=torch.float64), torch.randint(0, 5, (9,))
    targets = torch.eye(5, dtype=torch.float64)[label].expand(2, 3, 9, 5)
    everyone = torch.ones(9, dtype=torch.bool)
    for head, ours in enumerate(swapped_prediction(logits, targets)):
        torch.testing.assert_close(ours, supervised_cross_entropy(logits[:, head], label, everyone, 0.1))


def test_targets_take_no_gradient_and_edges_stay_finite(finite) -> None:
    logits = torch.randn(2, 2, 4, 3, requires_grad=True)
    targets = torch.rand(2, 2, 4, 3, requires_grad=True)
    swapped_prediction(logits, targets).sum().backward()
    assert targets.grad is None
    q = torch.eye(3)[torch.zeros(4, dtype=torch.long)].expand(2, 2, 4, 3)
    for x in (logits, 1e4 * logits, torch.zeros_like(logits)):
        finite(lambda x: swapped_prediction(x, q).mean(), x)
    uniform = swapped_prediction(torch.zeros(2, 1, 4, 3), q[:, :1])
    assert uniform.item() == pytest.approx(math.log(3))
