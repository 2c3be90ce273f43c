"""Class means and their soft moving average, against loops over classes."""

import torch
import torch.nn.functional as F

from holotype.methods.prototypes import class_means, soft_update


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
