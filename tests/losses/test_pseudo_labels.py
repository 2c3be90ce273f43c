"""ProtoGCD's pseudo-labels and separation against its golden numbers, loops and closed forms."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.classification import mean_entropy_deficit, self_distillation
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.pseudo_labels import adaptive_targets, cross_view_targets, prototype_separation

DAPL = ["b8_k5", "b11_k7_init02_fp32", "b6_k4_wait10_ramp20", "two_rows_extreme"]
SEPARATION = [f"random_{name}" for name in ("k10", "fp32", "tau0.05", "tau0.2")]
SEPARATION += ["orthonormal", "identical", "etf_k10", "two"]


def slow_targets(logits: Tensor, r: float, tau: float) -> Tensor:
    out = (logits / tau).softmax(-1)
    for view in out:
        ratio = []
        for row in view:
            first, second = sorted((float(x) for x in row), reverse=True)[:2]
            ratio.append(first / (second + 1e-6))
        sure = sorted(range(len(view)), key=lambda i: -ratio[i])[: int(r * len(view) + 1e-9)]
        for i in sure:
            best = int(view[i].argmax())
            view[i] = torch.eye(view.shape[1], dtype=view.dtype)[best]
    return out


def slow_separation(mu: Tensor, tau: float) -> float:
    k, total = len(mu), 0.0
    for i in range(k):
        total += math.log(sum(math.exp(float(mu[i] @ mu[j]) / tau) for j in range(k) if j != i) / (k - 1))
    return total / k


@pytest.mark.parametrize("name", DAPL)
def test_targets_and_loss_golden(name, golden) -> None:
    g = {k.removeprefix(f"dapl_{name}__"): v for k, v in golden("protogcd").items() if f"dapl_{name}__" in k}
    logits = torch.from_numpy(g["logits"])
    logits = logits.view(2, -1, logits.shape[-1])
    exact = logits.dtype == torch.float64
    tight, loose = (1e-9, 1e-6) if exact else (1e-6, 1e-5)
    for e, ratio in enumerate(g["ratio"]):
        student = logits.clone().requires_grad_()
        targets, hard = adaptive_targets(student, float(ratio), float(g["teacher_tau"]))
        assert hard.sum(-1).tolist() == [int(g["n_hard_per_view"][e])] * 2
        # the golden targets of a view's rows are those that its own logits give
        np.testing.assert_allclose(targets.flatten(0, 1), g["targets"][e], atol=tight)
        loss = cross_view_targets(student, targets, float(g["student_tau"]))
        assert loss.item() == pytest.approx(float(g["loss"][e]), rel=1e-7 if exact else 1e-5)
        (grad,) = torch.autograd.grad(loss, student)
        np.testing.assert_allclose(grad.flatten(0, 1), g["grad_student_logits"][e], rtol=loose, atol=tight)


def test_targets_are_the_slow_loop() -> None:
    torch.manual_seed(0)
    logits = torch.rand(2, 13, 6, dtype=torch.float64)
    for r in (0.0, 0.3, 0.5, 10 / 13, 1.0):
        ours, hard = adaptive_targets(logits, r, 0.05)
        torch.testing.assert_close(ours, slow_targets(logits, r, 0.05))
        assert torch.equal(hard.sum(-1), torch.full((2,), int(r * 13 + 1e-9)))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_count_is_the_published_one(number, golden) -> None:
    g = {k.removeprefix(f"ratio_schedule_{number}__"): v for k, v in golden("protogcd").items()}
    for batch in (128, 99):
        logits = torch.rand(1, batch, 4)
        for ratio, n in zip(g["ratio"], g[f"n_hard_B{batch}"], strict=True):
            ours = int(adaptive_targets(logits, torch.tensor(ratio, dtype=torch.float32))[1].sum())
            whole = abs(batch * ratio - round(batch * ratio)) < 1e-6
            assert ours == round(batch * ratio) if whole else ours == n


def test_all_soft_is_self_distillation_and_all_hard_the_other_views_choice() -> None:
    torch.manual_seed(1)
    logits = torch.rand(2, 8, 5, dtype=torch.float64)
    soft, hard = (cross_view_targets(logits, adaptive_targets(logits, r)[0]) for r in (0.0, 1.0))
    torch.testing.assert_close(soft, self_distillation(logits, 0.05))
    choice = logits.argmax(-1).flip(0)
    torch.testing.assert_close(hard, F.cross_entropy(logits.flatten(0, 1) / 0.1, choice.flatten()))


@pytest.mark.parametrize("name", SEPARATION)
def test_separation_golden(name, golden, agrees) -> None:
    g, key = golden("protogcd"), f"separation_{name}"
    tau = float(g.get(f"{key}__tau", 0.1))
    scale = tau / 0.1  # the released loss multiplies by it, unit scale does not
    single = {"tol64": 1e-6, "grad_tol64": 1e-5} if name.endswith("fp32") else {}  # computed in float32
    loss, grad = g[f"{key}__loss"] / scale, g[f"{key}__grad"] / scale
    agrees(lambda mu: prototype_separation(mu, tau), [g[f"{key}__prototypes"]], loss, [grad], **single)
    mu = torch.from_numpy(g[f"{key}__prototypes"]).double()
    assert prototype_separation(mu, tau).item() == pytest.approx(slow_separation(mu, tau), abs=1e-9)


def test_separation_closed_forms() -> None:
    assert prototype_separation(torch.eye(7)).item() == pytest.approx(0, abs=1e-6)
    assert prototype_separation(torch.eye(3)[:1].expand(4, 3)).item() == pytest.approx(10, rel=1e-6)
    simplex = F.normalize(torch.eye(10, dtype=torch.float64) - 0.1, dim=-1)
    assert prototype_separation(simplex).item() == pytest.approx(-10 / 9, rel=1e-9)
    assert prototype_separation(torch.ones(1, 3)) == 0


@pytest.mark.parametrize("name", ["random", "uniform", "constant_prediction", "constant_prediction_fp32"])
def test_the_entropy_term_is_simgcds(name, golden, agrees) -> None:
    logits, loss, grad, tau = (
        golden("protogcd")[f"entropy_{name}__{of}"] for of in ("logits", "loss", "grad", "tau")
    )
    single = {"tol64": 1e-6, "grad_tol64": 1e-5} if name.endswith("fp32") else {}
    agrees(lambda x: mean_entropy_deficit(x, float(tau)), [logits[None]], loss, [grad[None]], **single)


def test_the_contrastive_terms_are_simgcds(golden) -> None:
    g = golden("protogcd")
    z = torch.from_numpy(g["supcon_taus__features_2n"]).view(2, 6, -1)
    label, everyone = torch.from_numpy(g["supcon_taus__labels"]), torch.ones(6, dtype=torch.bool)
    columns = (g[f"supcon_taus__{name}"] for name in ("taus", "loss", "infonce"))
    for tau, with_factor, plain in zip(*columns, strict=True):
        ours = sup_con(z, label, everyone, float(tau))
        assert ours.item() * tau / 0.07 == pytest.approx(float(with_factor), rel=1e-7)
        assert info_nce(z, float(tau)).item() == pytest.approx(float(plain), rel=1e-7)
