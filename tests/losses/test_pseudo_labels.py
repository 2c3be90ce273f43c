"""ProtoGCD's pseudo-labels and separation against its golden numbers, loops and closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.classification import mean_entropy_deficit
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
def test_targets_and_loss_golden(name, case) -> None:
    g = case("protogcd", f"dapl_{name}")
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
def test_the_count_is_the_published_one(number, case) -> None:
    g = case("protogcd", f"ratio_schedule_{number}")
    for batch in (128, 99):
        logits = torch.rand(1, batch, 4)
        for ratio, n in zip(g["ratio"], g[f"n_hard_B{batch}"], strict=True):
            ours = int(adaptive_targets(logits, torch.tensor(ratio, dtype=torch.float32))[1].sum())
            whole = abs(batch * ratio - round(batch * ratio)) < 1e-6
            assert ours == round(batch * ratio) if whole else ours == n


@pytest.mark.parametrize("name", SEPARATION)
def test_separation_golden(name, case, agrees) -> None:
    g = case("protogcd", f"separation_{name}")
    tau = float(g.get("tau", 0.1))
    scale = tau / 0.1  # the released loss multiplies by it, unit scale does not
    single = {"tol64": 1e-6, "grad_tol64": 1e-5} if name.endswith("fp32") else {}  # computed in float32
    loss, grad = g["loss"] / scale, g["grad"] / scale
    agrees(lambda mu: prototype_separation(mu, tau), [g["prototypes"]], loss, [grad], **single)
    mu = torch.from_numpy(g["prototypes"]).double()
    assert prototype_separation(mu, tau).item() == pytest.approx(slow_separation(mu, tau), abs=1e-9)


@pytest.mark.parametrize("name", ["random", "uniform", "constant_prediction", "constant_prediction_fp32"])
def test_the_entropy_term_is_simgcds(name, case, agrees) -> None:
    g = case("protogcd", f"entropy_{name}")
    logits, loss, grad, tau = (g[key] for key in ("logits", "loss", "grad", "tau"))
    single = {"tol64": 1e-6, "grad_tol64": 1e-5} if name.endswith("fp32") else {}
    agrees(lambda x: mean_entropy_deficit(x, float(tau)), [logits[None]], loss, [grad[None]], **single)


def test_the_contrastive_terms_are_simgcds(case) -> None:
    g = case("protogcd", "supcon_taus")
    z = torch.from_numpy(g["features_2n"]).view(2, 6, -1)
    label, everyone = torch.from_numpy(g["labels"]), torch.ones(6, dtype=torch.bool)
    for tau, with_factor, plain in zip(g["taus"], g["loss"], g["infonce"], strict=True):
        ours = sup_con(z, label, everyone, float(tau))
        assert ours.item() * tau / 0.07 == pytest.approx(float(with_factor), rel=1e-7)
        assert info_nce(z, float(tau)).item() == pytest.approx(float(plain), rel=1e-7)
