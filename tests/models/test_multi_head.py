"""UNO's heads side by side against its golden step, and one head at a time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.models.heads import MultiHead, UnitPrototypes

GOLDEN = dict(np.load(Path(__file__).parent.parent / "parity" / "uno.npz", allow_pickle=False))


def stacked(case: str, name: str, part: str) -> Tensor:
    """The weights of all heads of a golden step. name: unlab or unlab_over."""
    found, head = [], 0
    while (key := f"{case}__w_head_{name}_{part.replace('*', str(head))}") in GOLDEN:
        found.append(torch.from_numpy(GOLDEN[key]))
        head += 1
    return torch.stack(found)


def golden_head(case: str, name: str) -> MultiHead:
    """The heads of a golden step as ours."""
    first = stacked(case, name, "projectors_*_mlp_0_weight")
    second = stacked(case, name, "projectors_*_mlp_3_weight")
    prototypes = stacked(case, name, "prototypes_*_prototypes_weight")
    heads, hidden, dim = first.shape
    head = MultiHead(heads, dim, prototypes.shape[1], hidden, second.shape[1]).double()
    with torch.no_grad():
        head.first.weight.copy_(first.flatten(0, 1))
        head.first.bias.copy_(stacked(case, name, "projectors_*_mlp_0_bias").flatten())
        head.norm.weight.copy_(stacked(case, name, "projectors_*_mlp_1_weight").flatten())
        head.norm.bias.copy_(stacked(case, name, "projectors_*_mlp_1_bias").flatten())
        head.second.copy_(second.mT)
        head.bias.copy_(stacked(case, name, "projectors_*_mlp_3_bias").flatten())
        head.prototypes.weight.copy_(prototypes)
    head.prototypes.normalise()
    return head


@pytest.mark.parametrize("case", ["step_a", "step_no_labelled"])
@pytest.mark.parametrize(("name", "key"), [("unlab", "logits"), ("unlab_over", "logits_over")])
def test_golden_logits(case, name, key) -> None:
    features = torch.from_numpy(GOLDEN[f"{case}__feats"])
    known = UnitPrototypes(int(GOLDEN[f"{case}__n_labelled_classes"]), features.shape[-1]).double()
    with torch.no_grad():
        known.weight.copy_(torch.from_numpy(GOLDEN[f"{case}__w_head_lab_prototypes_weight"]))
    known.normalise()
    novel = golden_head(case, name).train()(features)
    ours = torch.cat([known(features)[:, None].expand(-1, novel.shape[1], -1, -1), novel], dim=-1)
    np.testing.assert_allclose(ours.detach(), GOLDEN[f"{case}__{key}"], rtol=1e-7, atol=1e-9)


def test_it_is_one_head_after_the_other() -> None:
    torch.manual_seed(0)
    head, x = MultiHead(3, 6, 4, hidden=10, out=5).double(), torch.randn(2, 9, 6, dtype=torch.float64)
    ours = head.train()(x)
    assert ours.shape == (2, 3, 9, 4)
    for h in range(3):
        part = slice(10 * h, 10 * h + 10)
        for v in range(2):
            inside = F.linear(x[v], head.first.weight[part], head.first.bias[part])
            inside = F.batch_norm(inside, None, None, training=True).relu()
            out = inside @ head.second[h] + head.bias[5 * h : 5 * h + 5]
            expected = F.cosine_similarity(out[:, None], head.prototypes.weight[h][None], dim=-1)
            torch.testing.assert_close(ours[v, h], expected)


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


def test_only_matrices_have_more_than_one_dimension() -> None:
    """Biases and batch norm are one-dimensional, and so spared by weight decay."""
    flat = {name for name, p in MultiHead(2, 6, 4).named_parameters() if p.ndim == 1}
    assert flat == {"first.bias", "norm.weight", "norm.bias", "bias"}


@pytest.mark.parametrize("name", ["random", "zero_row"])
def test_golden_prototypes(name) -> None:
    g = {k.removeprefix(f"prototypes_{name}__"): torch.from_numpy(v) for k, v in GOLDEN.items() if name in k}
    layer = UnitPrototypes(*g["weight"].shape)
    with torch.no_grad():
        layer.weight.copy_(g["weight"])
    layer.normalise()
    torch.testing.assert_close(layer.weight.detach(), g["weight_normalised"], atol=1e-6, rtol=0)
    torch.testing.assert_close(layer(g["x"]).detach(), g["logits_of_normalised_x"], atol=1e-6, rtol=0)


def test_prototypes_begin_with_unit_length() -> None:
    layer: nn.Module = UnitPrototypes(2, 7, 5)
    torch.testing.assert_close(layer.weight.norm(dim=-1), torch.ones(2, 7))
