"""ProtoGCD: the assembled total against the released code's parts, its schedule, and its prototypes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.losses.ops import l2_normalize
from holotype.losses.pseudo_labels import prototype_separation
from holotype.methods import Batch, Progress, Stage, Task
from holotype.methods.protogcd import ProtoGCD, ProtoGCDConfig
from holotype.models.heads import CosineClassifier, Projector

GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/protogcd.npz", allow_pickle=False))


def golden(key: str) -> torch.Tensor:
    return torch.from_numpy(np.asarray(GOLDEN[key]))


def hard_share(method: ProtoGCD, epoch: int, epochs: int = 200) -> float:
    return method.schedule(Stage(), Progress(epoch, epochs))["hard_share"]


@pytest.mark.parametrize("case", ["total_a", "total_b"])
def test_the_total_and_its_gradients_equal_the_released_code(case):
    g = {key.removeprefix(f"{case}__"): golden(key) for key in GOLDEN if key.startswith(case)}
    q, z = (g[name].unflatten(0, (2, -1)).requires_grad_() for name in ("logits", "projections"))
    mu, labelled = g["prototypes"].requires_grad_(), g["labelled"]
    b, k = len(labelled), q.shape[-1]
    config = ProtoGCDConfig(separation=float(g["lambda_sep"]))
    assert config.memax_weight == float(g["lambda_ent"])
    method = ProtoGCD(config, Task(4, k, 16, b, int(labelled.sum()))).double()
    batch = Batch(torch.zeros(2, b, 16), g["labels"].clamp_min(0), labelled, torch.arange(b))
    now = {"hard_share": torch.tensor(hard_share(method, int(g["epoch"])), dtype=torch.float64)}
    terms = method.terms(z, q, mu, batch, now)
    weights = {"dapl": ("dapl", 0.65), "ent": ("entropy", 1.3)}
    weights["sep"] = ("separation", 0.65 * config.separation)
    weights |= {"cls_s": ("cls", 0.35), "con_u": ("infonce", 0.65), "con_s": ("supcon", 0.35)}
    assert terms.keys() == weights.keys()
    for ours, (name, weight) in weights.items():
        assert terms[ours].item() == pytest.approx(weight * float(g[name]), rel=1e-7, abs=1e-9), ours
    total = torch.stack(list(terms.values())).sum()
    assert total.item() == pytest.approx(float(g["total"]), rel=1e-7)
    total.backward()
    grads = {"logits": q.grad.flatten(0, 1), "projections": z.grad.flatten(0, 1), "prototypes": mu.grad}
    for name, ours in grads.items():
        torch.testing.assert_close(ours, g[f"grad_{name}"], rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.parametrize(("case", "start"), [("ratio_schedule_0", 0.0), ("ratio_schedule_1", 0.2)])
def test_the_share_of_hard_labels_is_the_published_one(case, start):
    method = ProtoGCD(ProtoGCDConfig(hard_start=start), Task(2, 4, 8, 10, 4))
    ours = [hard_share(method, epoch) for epoch in range(200)]
    np.testing.assert_allclose(ours, GOLDEN[f"{case}__ratio"], rtol=1e-9, atol=1e-12)


def test_the_head_and_its_step_equal_the_released_code():
    """Prototypes keep unit length whatever the optimiser does: one step on squared logits plus separation."""
    state = {key.removeprefix("head_a__sd_"): golden(key) for key in GOLDEN if key.startswith("head_a__sd_")}
    projector, classifier = Projector(8, 10, 7).double(), CosineClassifier(8, 6).double()
    projector.load_state_dict(
        {f"mlp.{n}.{p}": state[f"mlp_{n}_{p}"] for n in (0, 2, 4) for p in ("weight", "bias")}
    )
    classifier.load_state_dict({"v": state["prototype_layer_weight_v"]})
    x = golden("head_a__x")
    torch.testing.assert_close(l2_normalize(classifier.v), golden("head_a__prototypes_unit"))
    torch.testing.assert_close(classifier(x), golden("head_a__logits"))
    torch.testing.assert_close(projector(x), golden("head_a__projection"))
    optimiser = torch.optim.SGD([classifier.v], lr=float(GOLDEN["head_a__lr"]))
    (classifier(x).square().sum() + prototype_separation(l2_normalize(classifier.v))).backward()
    optimiser.step()
    expected = golden("head_a__prototypes_unit_after_one_sgd_step")
    torch.testing.assert_close(l2_normalize(classifier.v), expected)
    torch.testing.assert_close(classifier(x), golden("head_a__logits_after_one_sgd_step"))


def test_the_log_says_what_was_hard_and_how_often_it_was_right():
    method = ProtoGCD(ProtoGCDConfig(), Task(2, 4, 8, 10, 4))
    assert method.diagnostics() == {}
    labelled = torch.arange(8) < 4
    batch = Batch(torch.randn(2, 8, 8), torch.arange(8) % 2 * labelled, labelled, torch.arange(8))
    method.loss(batch, {"hard_share": torch.tensor(0.5)})
    said = method.diagnostics()
    assert said["hard_share"] == 0.5
    assert 0 <= said["hard_precision"] <= 1
    method.before_epoch(Stage(), 1, None)
    assert method.diagnostics() == {}
