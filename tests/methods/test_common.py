"""Class means and their soft moving average, against loops over classes."""

import pytest
import torch
import torch.nn.functional as F

from holotype.losses.ops import l2_normalize
from holotype.methods import _common
from holotype.methods._common import class_means, soft_update


def example(n=40, d=8, c=4):
    g = torch.Generator().manual_seed(0)
    f = F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=-1)
    labelled = torch.rand(n, generator=g) < 0.5
    label = torch.randint(0, c - 1, (n,), generator=g) * labelled  # class c - 1 never has a labelled row
    membership = torch.rand(n, c, generator=g, dtype=torch.float64) * (~labelled)[:, None]
    return f, label, labelled, membership


def test_class_means_equal_the_loop():
    f, label, labelled, _ = example()
    means = class_means(f, label, labelled, 4)
    for c in range(3):
        torch.testing.assert_close(means[c], F.normalize(f[labelled & (label == c)].mean(0), dim=0))


@pytest.mark.parametrize("classes_at_once", [1, 2, 3, 4])
def test_class_means_of_more_than_is_written_out_at_once(monkeypatch, classes_at_once):
    f, label, labelled, _ = example()
    whole = class_means(f, label, labelled, 4)
    one_hot = F.one_hot(label.clamp_min(0), 4).to(f.dtype) * labelled.to(f.dtype)[:, None]
    assert torch.equal(whole, l2_normalize(one_hot.T @ f))  # as recorded runs have it, to the bit
    parts = []
    monkeypatch.setattr(_common, "AT_ONCE", classes_at_once * len(f))
    monkeypatch.setattr(torch, "cat", lambda sums: parts.extend(sums) or torch.vstack(sums))
    torch.testing.assert_close(class_means(f, label, labelled, 4), whole)
    assert max(map(len, parts)) == classes_at_once


def test_soft_update_equals_the_loop_and_leaves_absent_classes_alone():
    f, label, labelled, membership = example()
    before = F.normalize(torch.randn(4, 8, dtype=torch.float64), dim=-1)
    after = soft_update(before, f, label, labelled, membership, 0.9)
    for c in range(3):
        mine = labelled & (label == c)
        weight = membership[:, c] * min(1.0, float(mine.sum() / membership[:, c].sum()))
        total = f[mine].sum(0) + (weight[:, None] * f).sum(0)
        mean = total / (mine.sum() + weight.sum())
        torch.testing.assert_close(after[c], F.normalize(0.9 * before[c] + 0.1 * mean, dim=0))
    assert torch.equal(after[3], before[3])


def test_without_soft_members_it_is_the_mean_of_the_labelled_rows():
    f, label, labelled, membership = example()
    before = F.normalize(torch.randn(4, 8, dtype=torch.float64), dim=-1)
    after = soft_update(before, f, label, labelled, membership * 0, 0.0)
    torch.testing.assert_close(after[:3], class_means(f, label, labelled, 4)[:3])
