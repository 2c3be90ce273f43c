"""One-vs-all losses against loops and golden numbers (two-logit form), and the scores made of them."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.ova import (
    certainty,
    detector_loss,
    known_score,
    ova_consistency,
    ova_entropy,
    ova_hard_negative,
)

CASES = ["n16_c8", "n1_c8_one_row", "n12_c5_saturated", "n6_c1_single_class", "n10_c100"]


def p_in(logits_open: Tensor) -> Tensor:
    """(N, 2C), first the C "not this class" logits, then the C "this class" ones, to (N, C); of -x: p_out."""
    out, this = logits_open.chunk(2, -1)
    return (this - out).sigmoid()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    p = torch.rand(2, 8, 4, dtype=torch.float64)
    return p, torch.randint(0, 4, (8,)), torch.tensor([1, 1, 0, 0, 1, 0, 0, 1]).bool()


def test_hard_negative_is_the_slow_loop(batch) -> None:
    p, label, labelled = batch
    positive, negative = [], []
    for view in p:
        for i in range(8):
            if labelled[i]:
                y = int(label[i])
                positive.append(-math.log(view[i, y] + 1e-8))
                negative.append(max(-math.log(1 - view[i, c] + 1e-8) for c in range(4) if c != y))
    expected = sum(positive) / len(positive) + sum(negative) / len(negative)
    assert ova_hard_negative(*batch).item() == pytest.approx(expected, abs=1e-12)


def test_entropy_and_consistency_are_the_slow_loops(batch) -> None:
    p, _, labelled = batch
    rows = [i for i in range(8) if not labelled[i]]
    entropy = [-sum(q * math.log(q) for q in (x, 1 - x)) for v in p for i in rows for x in v[i].tolist()]
    assert ova_entropy(p, ~labelled).item() == pytest.approx(sum(entropy) / len(entropy), abs=1e-7)
    moved = []
    for i in rows:
        pairs = [(float(p[0, i, c]), float(p[1, i, c])) for c in range(4)]
        moved.append(sum((a - b) ** 2 + ((1 - a) - (1 - b)) ** 2 for a, b in pairs))
    assert ova_consistency(p, ~labelled).item() == pytest.approx(sum(moved) / len(moved), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_golden(case, golden, agrees) -> None:
    g, key = golden("ova"), f"openmatch.{case}"
    label = torch.from_numpy(g[f"{key}.labels"])
    everyone, unlabelled = torch.ones(len(label)).bool(), torch.ones(len(g[f"{key}.u_a"])).bool()

    def hard(x: Tensor) -> Tensor:
        return ova_hard_negative(p_in(x)[None], label, everyone, p_in(-x)[None])

    def entropy(*views: Tensor) -> Tensor:
        x = torch.stack(views)
        return ova_entropy(p_in(x), unlabelled, p_in(-x))

    def consistency(*views: Tensor) -> Tensor:
        return ova_consistency(p_in(torch.stack(views)), unlabelled)

    agrees(hard, [g[f"{key}.logits_open"]], g[f"{key}.ova_loss_f64"], [g[f"{key}.ova_grad_f64"]])
    for loss, name in ((entropy, "ent"), (consistency, "socr")):
        grads = [g[f"{key}.{name}_grad_{view}_f64"] for view in "ab"]
        agrees(loss, [g[f"{key}.u_a"], g[f"{key}.u_b"]], g[f"{key}.{name}_f64"], grads)


@pytest.mark.parametrize("case", CASES)
def test_detector_loss_and_scores_golden(case, golden) -> None:
    g = golden("ova")
    x, a, b = (
        p_in(torch.from_numpy(g[f"openmatch.{case}.{n}"]).double()) for n in ("logits_open", "u_a", "u_b")
    )
    label = torch.from_numpy(g[f"openmatch.{case}.labels"])
    p = torch.stack([torch.cat([x, a]), torch.cat([x, b])])
    labelled = torch.arange(p.shape[1]) < len(x)
    legal = torch.cat([label, torch.zeros(len(a), dtype=torch.long)])
    for other in (None, 1 - p):
        ours = detector_loss(p, legal, labelled, other).item()
        assert ours == pytest.approx(float(g[f"debgcd_recomputed.{case}.l_sdl_f64"]), abs=1e-9)
    score = known_score(a)
    np.testing.assert_allclose(score, g[f"debgcd_recomputed.{case}.s_id"], atol=1e-12)
    np.testing.assert_allclose(1 - score, g[f"debgcd_recomputed.{case}.u_score"], atol=1e-12)
    np.testing.assert_allclose(certainty(score), g[f"debgcd_recomputed.{case}.certainty"], atol=1e-12)
