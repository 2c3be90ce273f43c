"""SimGCD: the assembled total against the released code's own training function."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.methods import Batch, Progress, Stage, Task
from holotype.methods.simgcd import SimGCD, SimGCDConfig

GOLDEN = np.load(Path(__file__).parents[1] / "parity/simgcd_total.npz")
CASES = ["mixed", "one_labelled", "all_labelled", "dup_labels"]


def golden(key):
    return torch.from_numpy(GOLDEN[key])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epoch", [0, 15, 29, 30, 199])
def test_the_total_and_its_gradients_equal_the_released_code(case, epoch):
    z = golden(f"{case}.student_proj").double().view(2, 16, -1).requires_grad_()
    q = golden(f"{case}.student_out").double().view(2, 16, -1).requires_grad_()
    method = SimGCD(SimGCDConfig(memax_weight=2.0), Task(5, 20, 8, 16, 8))
    labelled = golden(f"{case}.mask_lab")
    label = golden(f"{case}.labels") * labelled
    batch = Batch(torch.zeros(2, 16, 8), label, labelled, torch.arange(16))
    schedule = method.schedule(Stage(), Progress(epoch, 200))
    now = {"teacher_temp": torch.tensor(schedule["teacher_temp"], dtype=torch.float64)}
    terms = method.baseline(z, q, batch, now)
    for name, part in (("cls_s", "cls_sup"), ("con_s", "con_sup")):
        assert terms[name].item() == pytest.approx(0.35 * float(GOLDEN[f"{case}.part.{part}_f64"]), rel=1e-9)
    total = torch.stack(list(terms.values())).sum()
    torch.testing.assert_close(total, golden(f"{case}.epoch{epoch}.loss_f64"), rtol=1e-9, atol=1e-9)
    total.backward()
    for name, tensor in (("proj", z), ("out", q)):
        key = f"{case}.epoch{epoch}.grad_{name}_f64"
        if key in GOLDEN.files:
            torch.testing.assert_close(tensor.grad.flatten(0, 1), golden(key).double(), rtol=1e-9, atol=1e-9)


def a_batch(n=16):
    generator = torch.Generator().manual_seed(0)
    z, q = torch.randn(2, n, 8, generator=generator), torch.rand(2, n, 20, generator=generator)
    q[..., 3] += 1.0  # one large class
    batch = Batch(z, torch.zeros(n, dtype=torch.long), torch.arange(n) < n // 2, torch.arange(n))
    return z, q, batch, {"teacher_temp": torch.tensor(0.04)}


def test_the_collection_weighs_labelled_and_unlabelled_images_by_their_numbers():
    """An image that stands for more of the collection pulls more; with half of it labelled, nothing changes."""
    z, q, batch, now = a_batch()
    terms = {}
    for target, labelled in (("uniform", 8), ("collection", 8), ("collection", 2)):
        method = SimGCD(SimGCDConfig(memax_target=target), Task(5, 20, 8, 16, labelled))
        terms[target, labelled] = method.baseline(z, q, batch, now)
    torch.testing.assert_close(terms["uniform", 8], terms["collection", 8])
    few = SimGCD(SimGCDConfig(memax_target="collection"), Task(5, 20, 8, 16, 2)).row_weight(batch)
    assert few.sum() == pytest.approx(1)
    assert few[batch.labelled].sum() == pytest.approx(2 / 16)
    p = (q / 0.1).softmax(-1).mean(0)
    mean = (few[:, None] * p).sum(0)
    expected = 0.65 * 2.0 * (mean * (20 * mean).log()).sum()
    torch.testing.assert_close(terms["collection", 2]["me"], expected)
