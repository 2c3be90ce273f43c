"""What holds for every loss of two views: the order of images and views, rows that are absent, overflow."""

import pytest
import torch

from holotype.losses.classification import (
    debiased_loss,
    mean_entropy_deficit,
    prior_mismatch,
    self_distillation,
    supervised_cross_entropy,
)
from holotype.losses.contrastive import concept_nce, info_nce, sup_con
from holotype.losses.ova import detector_loss, ova_consistency, ova_entropy, ova_hard_negative
from holotype.losses.pseudo_labels import prototype_separation
from holotype.losses.rank_stats import pair_cross_entropy, prediction_mse
from holotype.losses.sinkhorn import swapped_prediction

# name -> loss of x (2, B, 5), label (B,) and labelled (B,)
LOSSES = {
    "distillation": lambda x, y, m: self_distillation(x, 0.05),
    "entropy deficit": lambda x, y, m: mean_entropy_deficit(x),
    "prior mismatch": lambda x, y, m: prior_mismatch(x, torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]).to(x.dtype)),
    "cross entropy": supervised_cross_entropy,
    "info_nce": lambda x, y, m: info_nce(x, 0.07),
    "sup_con": sup_con,
    "debiased": lambda x, y, m: debiased_loss(x, 1.5 * x.flip(-1), x.float().sigmoid().mean(-1), y, m, 0.5),
    "detector": lambda x, y, m: detector_loss(x.sigmoid(), y, m),
    "detector, p_out": lambda x, y, m: detector_loss(x.sigmoid(), y, m, (-x).sigmoid()),
    "mse": lambda x, y, m: prediction_mse(x),
    "unlike pairs": lambda x, y, m: pair_cross_entropy(x, torch.zeros(len(y), len(y)) > 0),
    "like pairs": lambda x, y, m: pair_cross_entropy(x, torch.ones(len(y), len(y)) > 0),
    "swapped": lambda x, y, m: swapped_prediction(
        x[:, None], torch.eye(5)[y].to(x.dtype).expand(2, 1, -1, -1)
    ).mean(),
    "concepts": lambda x, y, m: concept_nce(
        x.flatten(0, 1), torch.where(m, y, -1).repeat(2), torch.eye(5, dtype=x.dtype), 5
    ),
    "separation": lambda x, y, m: prototype_separation(torch.nn.functional.normalize(x[0].float(), dim=-1)),
}
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)
LABEL, LABELLED = torch.tensor([0, 0, 1, 4, 2, 0, 3]), torch.tensor([1, 0, 1, 1, 0, 0, 1]).bool()


@EVERY_LOSS
def test_order_of_images_and_views_does_not_matter(name) -> None:
    loss, x = (
        LOSSES[name],
        torch.rand(2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
    )
    value, order = loss(x, LABEL, LABELLED), torch.randperm(7)
    torch.testing.assert_close(loss(x[:, order], LABEL[order], LABELLED[order]), value)
    if name != "separation":  # of the first view
        torch.testing.assert_close(loss(x.flip(0), LABEL, LABELLED), value)


@EVERY_LOSS
@pytest.mark.parametrize(
    "labelled", [LABELLED, ~LABELLED & LABELLED, ~LABELLED | LABELLED, torch.arange(7) == 3]
)
def test_finite_at_the_edges(name, labelled, finite) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 7, 5) * 2 - 1
    sure, one_zero = torch.eye(7)[:, :5].expand(2, 7, 5), x * (torch.arange(7) > 0)[:, None]
    for rows in (x, x[:, :1].expand(2, 7, 5), x * 0, 50 * sure, 1e4 * x, one_zero, x[:, :1]):
        n = rows.shape[1]
        finite(lambda q, n=n: LOSSES[name](q, LABEL[:n], labelled[:n]), rows)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, m: sup_con(x, LABEL, m),
        lambda x, m: supervised_cross_entropy(x, LABEL, m),
        lambda x, m: ova_hard_negative(x.sigmoid(), LABEL, m),
        lambda x, m: ova_entropy(x.sigmoid(), m),
        lambda x, m: ova_consistency(x.sigmoid(), m),
    ],
)
def test_rows_outside_the_mask_cost_and_teach_nothing(loss) -> None:
    x = torch.randn(2, 7, 5, dtype=torch.float64).requires_grad_()
    nothing = loss(x, LABELLED & False)
    assert nothing == 0
    assert (torch.autograd.grad(nothing, x)[0] == 0).all()
    other = torch.where(LABELLED[:, None], x, 9 * torch.randn_like(x))
    torch.testing.assert_close(loss(other, LABELLED), loss(x, LABELLED))
    (grad,) = torch.autograd.grad(loss(x, LABELLED), x)
    assert (grad[:, ~LABELLED] == 0).all()
    assert (grad[:, LABELLED] != 0).any()
