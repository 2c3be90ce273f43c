"""Heads against the reference's golden numbers, the counts of the papers, and their own definitions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.models.heads import (
    CompactOVA,
    CosineClassifier,
    DetectorOVA,
    GCDHead,
    MultiHead,
    Projector,
    UnitPrototypes,
)

PUBLISHED_HEADS = True

GOLDEN = dict(np.load(Path(__file__).parent.parent / "parity" / "heads.npz", allow_pickle=False))
ATOL = 1e-9


def golden(key: str) -> Tensor:
    return torch.from_numpy(GOLDEN[key]).double()


def reference_head() -> tuple[Projector, CosineClassifier]:
    """The head of a SimGCD checkpoint as ours; its classifier is under weight norm with the gain frozen at 1."""
    prefix = "simgcd.param."
    state = {key.removeprefix(prefix): golden(key) for key in GOLDEN if key.startswith(prefix)}
    v, gain = state.pop("last_layer.weight_v"), state.pop("last_layer.weight_g")
    assert (gain == 1).all()
    hidden, dim = state["mlp.0.weight"].shape
    projector, classifier = Projector(dim, hidden, len(state["mlp.4.weight"])), CosineClassifier(dim, len(v))
    projector.load_state_dict(state)
    classifier.load_state_dict({"v": v})
    return projector.double(), classifier.double()


def test_simgcd_head_golden_values_and_gradients() -> None:
    projector, classifier = reference_head()
    x = golden("simgcd.x").requires_grad_()
    z, logits = projector(x), classifier(x)
    torch.testing.assert_close(z, golden("simgcd.proj_f64"), atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(logits, golden("simgcd.logits_f64"), atol=ATOL, rtol=ATOL)
    cotangents = [golden("simgcd.cotangent_proj"), golden("simgcd.cotangent_logits")]
    torch.autograd.backward([z, logits], cotangents)
    ours = {**dict(projector.named_parameters()), "last_layer.weight_v": classifier.v}
    assert {f"simgcd.grad.{name}_f64" for name in ours} == {k for k in GOLDEN if k.startswith("simgcd.grad.")}
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter.grad, golden(f"simgcd.grad.{name}_f64"), atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(x.grad, golden("simgcd.grad_x_f64"), atol=ATOL, rtol=ATOL)
    single = x.detach().float()
    for module, name in ((projector, "proj"), (classifier, "logits")):
        expected = golden(f"simgcd.{name}_f64").float()
        torch.testing.assert_close(module.float()(single), expected, atol=1e-5, rtol=1e-5)


def test_initial_values_and_parameter_counts() -> None:
    torch.manual_seed(0)
    projector, classifier = Projector(768, 256, 64), CosineClassifier(768, 200)
    for layer in projector.mlp[::2]:
        assert float(layer.bias.detach().abs().max()) == 0
        assert abs(float(layer.weight.detach().std()) - 0.02) < 5e-4
    v = classifier.v.detach()
    assert float(v.abs().max()) <= 768**-0.5
    assert abs(float(v.norm(dim=1).mean()) - 0.577) < 0.005
    assert float(CompactOVA(8, 3).bias.detach().abs().max()) == 0
    with torch.device("meta"):
        assert count(Projector(768)) == 6_295_808
        assert count(CosineClassifier(768, 200)) == 200 * 768
        assert count(CompactOVA(768, 100)) == 1_292_516
        # DebGCD's 107 141 976 on CUB, less SimGCD's 92 248 264, the second classifier and all gains
        assert count(DetectorOVA(768, 100)) == 107_141_976 - 92_248_264 - 200 * 769 - 200
        # GCD's head: SimGCD's projector and 65 536 directions of the bottleneck
        assert count(GCDHead(768)) == 6_295_808 + 65_536 * 256
        assert count(GCDHead(768, out=None)) == 6_295_808


def test_the_two_open_heads_are_what_they_are_called() -> None:
    head, x = CompactOVA(12, 5).double(), torch.randn(2, 3, 12, dtype=torch.float64)
    nn.init.constant_(head.bias, 0.25)
    z = head.mlp(x)
    for c in range(5):
        cosine = F.cosine_similarity(z, head.classifier.v[c].expand_as(z), dim=-1)
        torch.testing.assert_close(head(x)[..., c], cosine * 10 + 0.25)
    assert [m.out_features for m in head.mlp if isinstance(m, nn.Linear)] == [12, 12, 128]
    head, x = DetectorOVA(12, 5, hidden=16, bottleneck=8).double(), torch.randn(7, 12, dtype=torch.float64)
    two = (head.classifier(head.mlp(x)) / 0.1).reshape(7, 2, 5).softmax(dim=1)
    torch.testing.assert_close(head(x).sigmoid(), two[:, 1])
    torch.testing.assert_close((-head(x)).sigmoid(), two[:, 0])


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


UNO_GOLDEN = dict(np.load(Path(__file__).parent.parent / "parity" / "uno.npz", allow_pickle=False))


def stacked(case: str, name: str, part: str) -> Tensor:
    """The weights of all heads of a golden step. name: unlab or unlab_over."""
    found, head = [], 0
    while (key := f"{case}__w_head_{name}_{part.replace('*', str(head))}") in UNO_GOLDEN:
        found.append(torch.from_numpy(UNO_GOLDEN[key]))
        head += 1
    return torch.stack(found)


def golden_head(case: str, name: str) -> MultiHead:
    """The heads of a golden step as ours."""
    first, norm = (stacked(case, name, f"projectors_*_mlp_{n}_weight") for n in (0, 1))
    second = stacked(case, name, "projectors_*_mlp_3_weight")
    prototypes = stacked(case, name, "prototypes_*_prototypes_weight")
    heads, hidden, dim = first.shape
    head = MultiHead(heads, dim, prototypes.shape[1], hidden, second.shape[1]).double()
    ours = (head.first.weight, head.norm.weight, head.second, head.prototypes.weight)
    biases = (head.first.bias, head.norm.bias, head.bias)
    with torch.no_grad():
        for mine, theirs in zip(ours, (first, norm, second.mT, prototypes), strict=True):
            mine.copy_(theirs.reshape(mine.shape))
        for mine, n in zip(biases, (0, 1, 3), strict=True):
            mine.copy_(stacked(case, name, f"projectors_*_mlp_{n}_bias").flatten())
    head.prototypes.normalise()
    return head


@pytest.mark.parametrize("case", ["step_a", "step_no_labelled"])
@pytest.mark.parametrize(("name", "key"), [("unlab", "logits"), ("unlab_over", "logits_over")])
def test_golden_logits(case, name, key) -> None:
    features = torch.from_numpy(UNO_GOLDEN[f"{case}__feats"])
    known = UnitPrototypes(int(UNO_GOLDEN[f"{case}__n_labelled_classes"]), features.shape[-1]).double()
    with torch.no_grad():
        known.weight.copy_(torch.from_numpy(UNO_GOLDEN[f"{case}__w_head_lab_prototypes_weight"]))
    known.normalise()
    novel = golden_head(case, name).train()(features)
    ours = torch.cat([known(features)[:, None].expand(-1, novel.shape[1], -1, -1), novel], dim=-1)
    np.testing.assert_allclose(ours.detach(), UNO_GOLDEN[f"{case}__{key}"], rtol=1e-7, atol=1e-9)


def test_views_are_normalised_apart_and_evaluation_sees_no_neighbours() -> None:
    torch.manual_seed(0)
    head, x = MultiHead(2, 6, 4, hidden=8, out=5), torch.randn(2, 9, 6)
    together = head.train()(torch.stack([x[0], 5 * x[1] + 3]))
    alone = head(torch.stack([x[0], x[0]]))
    torch.testing.assert_close(together[0], alone[0])
    assert int(head.norm.num_batches_tracked) == 4  # one for each view
    with torch.no_grad():
        whole = head.eval()(x)
        torch.testing.assert_close(head(x[:, 3:4]), whole[:, :, 3:4])


@pytest.mark.parametrize("name", ["random", "zero_row"])
def test_golden_prototypes(name) -> None:
    start = f"prototypes_{name}__"
    g = {k.removeprefix(start): torch.from_numpy(v) for k, v in UNO_GOLDEN.items() if k.startswith(start)}
    layer = UnitPrototypes(*g["weight"].shape)
    torch.testing.assert_close(layer.weight.norm(dim=-1), torch.ones(len(layer.weight)))
    with torch.no_grad():
        layer.weight.copy_(g["weight"])
    layer.normalise()
    torch.testing.assert_close(layer.weight.detach(), g["weight_normalised"], atol=1e-6, rtol=0)
    torch.testing.assert_close(layer(g["x"]).detach(), g["logits_of_normalised_x"], atol=1e-6, rtol=0)
