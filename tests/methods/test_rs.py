"""RS+: the weight of its terms, its two presets, and what it logs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.losses.rank_stats import same_top_features, true_pairs
from holotype.methods import Batch, Progress, Task
from holotype.methods.rs import RS, RSConfig

GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/autonovel.npz", allow_pickle=False))
TASK = Task(n_known=3, k=6, dim=16, n_images=40, n_labelled=12)


def build(preset: str = "default", **settings) -> RS:
    torch.manual_seed(0)
    return RS(RSConfig(**{**RS.presets[preset], **settings}), TASK).double()


def golden_batch(labelled: float = 0.5) -> tuple[torch.Tensor, torch.Tensor, Batch]:
    h, *logits = (
        torch.from_numpy(GOLDEN[f"gcd_a__{name}"]) for name in ("feat", "logits_view1", "logits_view2")
    )
    mask = torch.arange(10) < 10 * labelled
    batch = Batch(torch.stack([h, h.flip(0)]), torch.arange(10) % 3 * mask, mask, torch.arange(10))
    return h, torch.stack(logits), batch


def now(ramp: float = 1.0) -> dict[str, torch.Tensor]:
    return {"ramp": torch.tensor(ramp, dtype=torch.float64)}


def test_as_run_is_the_released_loss_over_all_rows_with_the_consistency_twice():
    h, logits, batch = golden_batch()
    terms = build("as_run").terms(h, logits, batch, now(0.5))
    assert terms["bce"].item() == pytest.approx(float(GOLDEN["gcd_a__loss_bce"]), rel=1e-9)
    assert terms["mse"].item() == pytest.approx(2 * 0.5 * 50 * float(GOLDEN["gcd_a__mse"]), rel=1e-9)
    ce = torch.nn.functional.cross_entropy(logits[0, :5], batch.label[:5])
    torch.testing.assert_close(terms["ce"], ce)


def test_the_default_puts_labels_in_where_both_are_labelled_and_counts_once():
    h, logits, batch = golden_batch()
    default, as_run = (build(p).terms(h, logits, batch, now()) for p in ("default", "as_run"))
    torch.testing.assert_close(default["mse"], as_run["mse"] / 2)
    guessed = same_top_features(h)
    assert not torch.equal(guessed, true_pairs(guessed, batch.label, batch.labelled))
    assert default["bce"] != as_run["bce"]
    torch.testing.assert_close(default["ce"], as_run["ce"])
    default, as_run = (build(p).terms(*golden_batch(labelled=0), now()) for p in ("default", "as_run"))
    torch.testing.assert_close(default["bce"], as_run["bce"])  # without labels there is nothing to put in
    assert default["ce"] == 0


def test_gradients_reach_both_views():
    method, (_, _, batch) = build(), golden_batch()
    batch.features.requires_grad_()
    terms = method.loss(batch, now())
    for name, views in (("ce", [True, False]), ("bce", [True, True]), ("mse", [True, True])):
        (grad,) = torch.autograd.grad(terms[name], batch.features, retain_graph=True)
        assert [bool((view != 0).any()) for view in grad] == views, name


def test_the_ramp_is_the_published_one():
    method = build()
    weight = [50 * method.schedule(None, Progress(e, 200))["ramp"] for e in GOLDEN["ncd_a__epochs"]]
    np.testing.assert_allclose(weight, GOLDEN["ncd_a__weight_at_epochs"], rtol=1e-9)
    assert [method.schedule(None, Progress(e, 20))["ramp"] for e in (0, 15)] == pytest.approx(
        [np.exp(-5), 1.0]
    )


def test_the_log_says_how_many_pairs_there_are_and_how_right_they_are():
    """Three prototypes with strengths of their own: every pair is right, and each row has nine others."""
    torch.manual_seed(0)
    truth = torch.arange(30) % 3
    h = 3.0 * torch.eye(3, 4).repeat_interleave(5, 1)[truth, :16] + 0.2 * torch.randn(30, 16)
    batch = Batch(torch.stack([h, h]).double(), truth, torch.arange(30) < 15, torch.arange(30))
    method = build()
    method.loss(batch, now())
    assert method.diagnostics() == {"positives": 9, "pair_precision": 1, "pair_recall": 1}
