"""GCD: loss and gradients against the released code, and the centres it ends with."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.methods import Batch, Images, Task
from holotype.methods.gcd import GCD, GCDConfig
from holotype.models.heads import GCDHead

GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/gcd_head.npz", allow_pickle=False))
ATOL = 1e-9
NAMES = {f"projector.mlp.{n}.{part}": f"mlp.{n}.{part}" for n in (0, 2, 4) for part in ("weight", "bias")}
NAMES["classifier.v"] = "last_layer.weight_v"


def golden(key: str) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[f"gcd.{key}"]).double()


def released() -> GCD:
    """Ours with the weights of the released head, whose last layer is under weight norm with the gain frozen at 1."""
    assert (golden("param.last_layer.weight_g") == 1).all()
    method = GCD(GCDConfig(proj_out=48), Task(5, 8, 24, 16, 8)).double()
    method.head = GCDHead(24, 40, 16, 48).double()
    method.head.load_state_dict({ours: golden(f"param.{theirs}") for ours, theirs in NAMES.items()})
    return method


def a_batch(features: torch.Tensor) -> Batch:
    labelled = torch.from_numpy(GOLDEN["gcd.mask_lab"])
    return Batch(features, torch.from_numpy(GOLDEN["gcd.labels"]) * labelled, labelled, torch.arange(8))


def test_the_total_and_its_gradients_equal_the_released_code():
    method, x = released(), golden("x").view(2, 8, -1).requires_grad_()
    torch.testing.assert_close(method.head(x).flatten(0, 1), golden("output_f64"), atol=ATOL, rtol=ATOL)
    assert float(GOLDEN["gcd.sup_weight"]) == method.config.lam
    total = torch.stack(list(method.loss(a_batch(x), {}).values())).sum()
    torch.testing.assert_close(total, golden("total_loss_f64"), atol=ATOL, rtol=ATOL)
    total.backward()
    torch.testing.assert_close(x.grad.flatten(0, 1), golden("total_grad.x_f64"), atol=ATOL, rtol=ATOL)
    for ours, parameter in method.head.named_parameters():
        expected = golden(f"total_grad.{NAMES[ours]}_f64")
        torch.testing.assert_close(parameter.grad, expected, atol=ATOL, rtol=ATOL, msg=ours)


def blobs(k: int, n_known: int, each: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(k * each) % k
    x = 5 * torch.eye(k, 8)[truth] + 0.4 * torch.randn(k * each, 8, generator=g)
    labelled = (truth < n_known) & (torch.arange(k * each) % (2 * k) < k)
    return x, truth, torch.where(labelled, truth, -1)


def finished(x, label, k, n_known) -> GCD:
    task = Task(n_known, k, 8, len(x), int((label >= 0).sum()))
    method = GCD(GCDConfig(proj_out=16, n_init=3), task)
    method.finish(Images(torch.arange(len(x)), label, len(x), torch.Generator().manual_seed(1), lambda: x))
    return method


@pytest.mark.parametrize(("k", "gone"), [(5, None), (5, 0), (5, 2), (3, None)])
def test_known_classes_keep_their_number_and_novel_ones_are_found(k, gone):
    """Also where the labelled images of a known class cannot be read, and so are not there."""
    x, truth, label = blobs(k, 3)
    there = label != (k if gone is None else gone)
    x, truth, label = x[there], truth[there], label[there]
    placed = finished(x, label, k, 3).predict(x)
    for c in {0, 1, 2} - {gone}:
        assert (placed.category[truth == c] == c).all()
    assert len(placed.category.unique()) == k
    if gone is None:
        assert placed.known_score[truth < 3].min() > 0.5
        assert (placed.known_score[truth >= 3] < 0.5).all()
