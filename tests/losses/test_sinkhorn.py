"""Sinkhorn and swapped prediction against UNO's golden numbers, loops and their own definitions."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.sinkhorn import sinkhorn, swapped_prediction

SINKHORN = ["random", "fewer_rows_than_classes", "clustered", "identical_rows", "balanced_separable_4x2"]
SINKHORN += ["imbalanced_3to1_4x2", "one_row", "large_logits_fp64_only"]


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
def test_sinkhorn_golden(name, case) -> None:
    g = case("uno", f"sinkhorn_{name}")
    x, eps = torch.from_numpy(g["logits"]), float(g["eps"])
    for rounds in g["iters"]:
        theirs = g[f"Q_it{rounds}_fp64"]
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


def slow_swapped(logits: Tensor, targets: Tensor, tau: float) -> list[float]:
    found = []
    for h in range(logits.shape[1]):
        terms = []
        for v, w in itertools.product(range(len(targets)), range(len(logits))):
            if w != v:
                log_p = (logits[w, h] / tau).log_softmax(-1)
                terms.append(-float((targets[v, h] * log_p).sum(-1).mean()))
        found.append(sum(terms) / len(terms))
    return found


@pytest.mark.parametrize("name", ["two_views", "multicrop_2large_2small", "labelled_only"])
def test_swapped_prediction_golden(name, case, agrees) -> None:
    """Targets take no gradient."""
    g = case("uno", f"swapped_{name}")
    tau, logits = float(g["tau"]), g["logits"]
    targets = torch.from_numpy(g["targets"])[: int(g["num_large"])]
    ours = swapped_prediction(torch.from_numpy(logits), targets.clone().requires_grad_(), tau)
    assert not ours.requires_grad
    np.testing.assert_allclose(ours, g["loss_per_head"], rtol=1e-7)
    np.testing.assert_allclose(ours, slow_swapped(torch.from_numpy(logits), targets, tau), rtol=1e-9)
    mean = lambda x: swapped_prediction(x, targets.to(x.dtype), tau).mean()  # noqa: E731
    agrees(mean, [logits], g["loss"], [g["grad_logits"]])
