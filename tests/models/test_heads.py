"""Heads against the reference's golden numbers, the counts of the papers, and their own definitions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.errors import InputError
from holotype.models.heads import (
    CompactOVA,
    CosineClassifier,
    DetectorOVA,
    GCDHead,
    Projector,
    load_reference_head,
)

GOLDEN = dict(np.load(Path(__file__).parent.parent / "parity" / "heads.npz", allow_pickle=False))
ATOL = 1e-9


def golden(key: str) -> Tensor:
    return torch.from_numpy(GOLDEN[key]).double()


def reference_state(case: str) -> dict[str, Tensor]:
    prefix = f"{case}.param."
    return {key.removeprefix(prefix): golden(key) for key in GOLDEN if key.startswith(prefix)}


def check_gradients(case: str, prefix: str, projector: Projector, classifier: CosineClassifier) -> None:
    ours = {**dict(projector.named_parameters()), "last_layer.weight_v": classifier.v}
    expected = {
        k for k in GOLDEN if k.startswith(f"{case}.{prefix}") and not k.startswith(f"{case}.{prefix}x")
    }
    assert {f"{case}.{prefix}{name}_f64" for name in ours} == expected
    for name, parameter in ours.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, golden(f"{case}.{prefix}{name}_f64"), atol=ATOL, rtol=ATOL)


def test_simgcd_head_golden_values_and_gradients() -> None:
    projector, classifier = load_reference_head(reference_state("simgcd"))
    x = golden("simgcd.x").requires_grad_()
    z, logits = projector(x), classifier(x)
    torch.testing.assert_close(z, golden("simgcd.proj_f64"), atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(logits, golden("simgcd.logits_f64"), atol=ATOL, rtol=ATOL)
    (
        (z * golden("simgcd.cotangent_proj")).sum() + (logits * golden("simgcd.cotangent_logits")).sum()
    ).backward()
    torch.testing.assert_close(x.grad, golden("simgcd.grad_x_f64"), atol=ATOL, rtol=ATOL)
    check_gradients("simgcd", "grad.", projector, classifier)


def test_simgcd_head_golden_float32() -> None:
    projector, classifier = (m.float() for m in load_reference_head(reference_state("simgcd")))
    x = golden("simgcd.x").float()
    torch.testing.assert_close(projector(x), golden("simgcd.proj_f64").float(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(classifier(x), golden("simgcd.logits_f64").float(), atol=1e-5, rtol=1e-5)


def slow_gcd_loss(output: Tensor, label: Tensor, labelled: Tensor, sup_weight: float) -> Tensor:
    """InfoNCE at temperature 1 and SupCon at 0.07 over two views, pair by pair."""
    rows = F.normalize(output, dim=-1)
    n = len(rows) // 2

    def pull(anchor: int, positives: list[int], others: list[int], tau: float) -> Tensor:
        similarity = {j: rows[anchor] @ rows[j] / tau for j in others}
        total = torch.logsumexp(torch.stack(list(similarity.values())), 0)
        return torch.stack([total - similarity[j] for j in positives]).mean()

    everyone = range(2 * n)
    unsupervised = [pull(i, [(i + n) % (2 * n)], [j for j in everyone if j != i], 1.0) for i in everyone]
    chosen = [i for i in everyone if labelled[i % n]]
    supervised = []
    for i in chosen:
        others = [j for j in chosen if j != i]
        supervised.append(pull(i, [j for j in others if label[j % n] == label[i % n]], others, 0.07))
    return (1 - sup_weight) * torch.stack(unsupervised).mean() + sup_weight * torch.stack(supervised).mean()


def test_gcd_head_golden_output_loss_and_gradients() -> None:
    head = GCDHead(24, 40, 16, 48).double()
    head.projector, head.classifier = load_reference_head(reference_state("gcd"))
    x = golden("gcd.x").requires_grad_()
    output = head(x)
    torch.testing.assert_close(output, golden("gcd.output_f64"), atol=ATOL, rtol=ATOL)
    label, labelled = torch.from_numpy(GOLDEN["gcd.labels"]), torch.from_numpy(GOLDEN["gcd.mask_lab"])
    loss = slow_gcd_loss(output, label, labelled, float(GOLDEN["gcd.sup_weight"]))
    torch.testing.assert_close(loss, golden("gcd.total_loss_f64"), atol=ATOL, rtol=ATOL)
    loss.backward()
    torch.testing.assert_close(x.grad, golden("gcd.total_grad.x_f64"), atol=ATOL, rtol=ATOL)
    check_gradients("gcd", "total_grad.", head.projector, head.classifier)


def test_gcd_head_without_directions_stops_at_the_bottleneck() -> None:
    head = GCDHead(6, 8, 4, out=None)
    x = torch.randn(3, 6)
    torch.testing.assert_close(head(x), head.projector(x))


@pytest.mark.parametrize("prefix", ["", "1.", "module.1."])
def test_both_spellings_of_weight_norm_load_alike(prefix: str) -> None:
    """torch's own weight norms are the oracle: old hooks and new parametrisation, with the gain at 1."""
    reference = nn.Module()
    reference.mlp = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    reference.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5, bias=False))
    with torch.no_grad():
        reference.last_layer.parametrizations.weight.original0.fill_(1)
    state = reference.state_dict()
    old = {k.replace("parametrizations.weight.original0", "weight_g"): v for k, v in state.items()}
    old = {k.replace("parametrizations.weight.original1", "weight_v"): v for k, v in old.items()}
    x = torch.randn(7, 6)
    for spelling in (state, old):
        given = {prefix + k: v for k, v in spelling.items()} | {"0.blocks.3.mlp.fc1.weight": torch.zeros(2)}
        projector, classifier = load_reference_head(given)
        torch.testing.assert_close(projector(x), reference.mlp(x))
        torch.testing.assert_close(classifier(x), reference.last_layer(F.normalize(x, dim=-1)))


def test_reference_heads_that_cannot_be_held_are_refused() -> None:
    state = reference_state("simgcd")
    with pytest.raises(InputError, match="gains other than 1"):
        load_reference_head(state | {"last_layer.weight_g": 2 * state["last_layer.weight_g"]})
    del state["mlp.4.bias"]
    with pytest.raises(InputError, match=r"lacks mlp\.4\.bias"):
        load_reference_head(state)


def test_initial_values() -> None:
    torch.manual_seed(0)
    projector, classifier = Projector(768, 256, 64), CosineClassifier(768, 200)
    for layer in projector.mlp[::2]:
        assert float(layer.bias.detach().abs().max()) == 0
        assert abs(float(layer.weight.detach().std()) - 0.02) < 5e-4
    v = classifier.v.detach()
    assert float(v.abs().max()) <= 768**-0.5
    assert abs(float(v.norm(dim=1).mean()) - 0.577) < 0.005
    assert float(CompactOVA(8, 3, bias_init=-0.4).bias[1].detach()) == pytest.approx(-0.4)


def test_classifier_ignores_lengths() -> None:
    classifier, x = CosineClassifier(5, 4).double(), torch.randn(2, 3, 5, dtype=torch.float64)
    before = classifier(x)
    assert before.shape == (2, 3, 4)
    assert float(before.detach().abs().max()) <= 1
    with torch.no_grad():
        classifier.v.mul_(torch.rand(4, 1, dtype=torch.float64) + 0.5)
    torch.testing.assert_close(classifier(3 * x), before)


def test_compact_head_is_a_cosine_over_a_tenth_plus_a_bias() -> None:
    head, x = CompactOVA(12, 5, bias_init=0.25).double(), torch.randn(2, 3, 12, dtype=torch.float64)
    z = head.mlp(x)
    for c in range(5):
        cosine = F.cosine_similarity(z, head.classifier.v[c].expand_as(z), dim=-1)
        torch.testing.assert_close(head(x)[..., c], cosine * 10 + 0.25)
    assert [m.out_features for m in head.mlp if isinstance(m, nn.Linear)] == [12, 12, 128]


def test_detector_equals_the_softmax_over_its_two_channels() -> None:
    head, x = DetectorOVA(12, 5, hidden=16, bottleneck=8).double(), torch.randn(7, 12, dtype=torch.float64)
    two = (head.classifier(head.mlp(x)) / 0.1).reshape(7, 2, 5).softmax(dim=1)
    torch.testing.assert_close(head(x).sigmoid(), two[:, 1])
    torch.testing.assert_close((-head(x)).sigmoid(), two[:, 0])


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts() -> None:
    with torch.device("meta"):
        assert count(Projector(768)) == 6_295_808
        assert count(CosineClassifier(768, 200)) == 200 * 768
        assert count(CompactOVA(768, 100)) == 1_292_516
        # DebGCD's 107 141 976 on CUB, less SimGCD's 92 248 264, the second classifier and all gains
        assert count(DetectorOVA(768, 100)) == 107_141_976 - 92_248_264 - 200 * 769 - 200
        assert count(GCDHead(768)) == 6_295_808 + 256 * 65_536
