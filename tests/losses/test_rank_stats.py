"""Rank statistics, pairs and consistency against loops, AutoNovel's golden numbers and closed forms."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.rank_stats import pair_cross_entropy, prediction_mse, same_top_features, true_pairs


def slow_pairs(h: Tensor, k: int) -> list[list[bool]]:
    strongest = [set(sorted(range(len(row)), key=lambda d: -float(row[d]))[:k]) for row in h]
    return [[a == b for b in strongest] for a in strongest]


def slow_pair_cross_entropy(logits: Tensor, positive: Tensor) -> float:
    a, b = logits.softmax(-1)
    total = 0.0
    for i in range(len(a)):
        for j in range(len(b)):
            p = sum(float(x) * float(y) for x, y in zip(a[i], b[j], strict=True))
            total -= math.log((p if positive[i, j] else 1 - p) + 1e-7)
    return total / len(a) ** 2


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(2, 7, 4, dtype=torch.float64), torch.rand(7, 7) < 0.4


def test_they_are_the_slow_loops(batch) -> None:
    logits, positive = batch
    ours = pair_cross_entropy(logits, positive)
    assert ours.item() == pytest.approx(slow_pair_cross_entropy(logits, positive), abs=1e-12)
    h = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    assert same_top_features(h, 3).tolist() == slow_pairs(h, 3)
    assert same_top_features(h, 3).sum() > 40  # some pairs do agree


@pytest.mark.parametrize("name", ["ncd_a", "ncd_relu_fp32", "ncd_incremental"])
def test_golden_training_loop(name, case) -> None:
    """The published loop: pairs and their loss on unlabelled rows, consistency on both heads, ramped."""
    g = case("autonovel", name)
    dtype = torch.float32 if "fp32" in name else torch.float64
    tol = 1e-6 if "fp32" in name else 1e-9
    labelled = torch.from_numpy(g["labels"]) < int(g["n_labelled_classes"])
    head1, head2 = (
        torch.tensor(np.stack([g[f"head{n}_view{v}"] for v in (1, 2)]), dtype=dtype) for n in (1, 2)
    )
    positive = same_top_features(torch.from_numpy(g["feat"])[~labelled], int(g["topk"]))
    assert (2 * positive.int() - 1).tolist() == g["pair_target"].tolist()
    bce = pair_cross_entropy(head2[:, ~labelled], positive)
    label = torch.from_numpy(g["labels"]) * labelled
    ce = supervised_cross_entropy(head1[:1], label, labelled, tau=1.0)
    mse = [prediction_mse(head) for head in (head1, head2)]
    found = {"loss_bce": bce, "loss_ce": ce, "mse_head1": mse[0], "mse_head2": mse[1]}
    for key, value in found.items():
        assert value.item() == pytest.approx(float(g[key]), rel=max(tol, 1e-7), abs=tol), key


def test_golden_one_head_over_all_rows(case, agrees) -> None:
    g = case("autonovel", "gcd_a")
    positive = same_top_features(torch.from_numpy(g["feat"]), int(g["topk"]))
    assert (2 * positive.int() - 1).tolist() == g["pair_target"].tolist()
    logits = np.stack([g["logits_view1"], g["logits_view2"]])
    grads = np.stack([g["grad_logits_view1"], g["grad_logits_view2"]])
    agrees(lambda x: pair_cross_entropy(x, positive), [logits], g["loss_bce"], [grads])
    agrees(prediction_mse, [logits], g["mse"])


@pytest.mark.parametrize(("k", "key"), [(5, "pair_target"), (3, "pair_target_k3")])
def test_golden_what_ranks_do_not_see(k, key, case) -> None:
    """Scale, an offset and the order within the strongest change nothing; the sixth in the fifth's place does."""
    g = case("autonovel", "rank_invariance")
    ours = 2 * same_top_features(torch.from_numpy(g["feat"]), k).int() - 1
    assert ours.tolist() == g[key].tolist()


def test_golden_single_pairs(case) -> None:
    g = case("autonovel", "bce_rows")
    for a, b, similar, expected in zip(g["prob1"], g["prob2"], g["simi"], g["loss_each"], strict=True):
        if similar == 0:  # neither alike nor unlike: we have no such pairs
            continue
        logits = torch.tensor(np.stack([a, b]), dtype=torch.float64)[:, None].clamp_min(1e-300).log()
        ours = pair_cross_entropy(logits, torch.tensor([[similar == 1]]))
        assert ours.item() == pytest.approx(float(expected), rel=1e-6, abs=1e-6)


def test_labels_decide_where_both_are_labelled() -> None:
    torch.manual_seed(1)
    guess, label, labelled = torch.rand(8, 8) < 0.5, torch.randint(0, 2, (8,)), torch.rand(8) < 0.5
    ours = true_pairs(guess, label, labelled)
    for i, j in itertools.product(range(8), repeat=2):
        known = bool(labelled[i] and labelled[j])
        assert bool(ours[i, j]) == bool(label[i] == label[j] if known else guess[i, j])
    assert torch.equal(true_pairs(guess, label, labelled & False), guess)


def test_a_product_above_one_is_no_nan() -> None:
    """Probabilities in float32 may sum to a little more than 1, and so may their products."""
    torch.manual_seed(3)
    logits = torch.zeros(2, 400, 7)
    logits[..., 0] = 12 + 8 * torch.rand(2, 400)
    value = pair_cross_entropy(logits, torch.zeros(400, 400, dtype=torch.bool))
    assert value.isfinite()
    assert value <= -math.log(1e-7)
