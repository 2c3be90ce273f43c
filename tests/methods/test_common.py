"""Class means and their soft moving average, against loops over classes."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from holotype.errors import InputError
from holotype.losses.ops import l2_normalize
from holotype.methods import METHODS, Task, base
from holotype.methods.base import EpochMeans, NearestCentreMethod, class_means
from holotype.methods.rpc import draw_pairs, select_rows, soft_update


def example(n=40, d=8, c=4):
    g = torch.Generator().manual_seed(0)
    f = F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=-1)
    labelled = torch.rand(n, generator=g) < 0.5
    label = torch.randint(0, c - 1, (n,), generator=g) * labelled  # class c - 1 never has a labelled row
    membership = torch.rand(n, c, generator=g, dtype=torch.float64) * (~labelled)[:, None]
    return f, label, labelled, membership


@pytest.mark.parametrize("classes_at_once", [1, 2, 3, 4])
def test_class_means_equal_the_loop(monkeypatch, classes_at_once):
    """Also of more than is written out at once."""
    f, label, labelled, _ = example()
    whole = class_means(f, label, labelled, 4)
    for c in range(3):
        torch.testing.assert_close(whole[c], F.normalize(f[labelled & (label == c)].mean(0), dim=0))
    one_hot = F.one_hot(label.clamp_min(0), 4).to(f.dtype) * labelled.to(f.dtype)[:, None]
    assert torch.equal(whole, l2_normalize(one_hot.T @ f))  # as recorded runs have it, to the bit
    parts = []
    monkeypatch.setattr(base, "AT_ONCE", classes_at_once * len(f))
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
        mean = (f[mine].sum(0) + (weight[:, None] * f).sum(0)) / (mine.sum() + weight.sum())
        torch.testing.assert_close(after[c], F.normalize(0.9 * before[c] + 0.1 * mean, dim=0))
    assert torch.equal(after[3], before[3])
    alone = soft_update(before, f, label, labelled, membership * 0, 0.0)
    torch.testing.assert_close(alone[:3], class_means(f, label, labelled, 4)[:3])


def test_probabilities_are_those_of_squared_distances():
    torch.manual_seed(0)
    method = NearestCentreMethod(None, Task(2, 4, 6, 20, 5))
    method.centres.copy_(torch.randn(4, 6))
    x = torch.randn(9, 6)
    placed = method.predict(x)
    for row, x_i in enumerate(x):
        distance = torch.stack([((x_i / x_i.norm() - c) ** 2).sum() for c in method.centres])
        p = (-distance / 0.1).softmax(0)
        assert int(placed.category[row]) == int(distance.argmin())
        torch.testing.assert_close(placed.probability[row], p.max(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(placed.known_score[row], p[:2].sum(), atol=1e-5, rtol=1e-4)
    assert not method.scores_early


TASK = Task(n_known=2, k=4, dim=16, n_images=30, n_labelled=10)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("uno", {"queue": 10, "heads": 2}, ["queue asks for 40 and there are only 20 unlabelled images"]),
        ("uno", {"queue": 5, "heads": 2}, []),
        ("dccl", {"neighbours": 31, "proj_out": 0}, ["neighbours asks for 31"]),
        ("promptcal", {"memory": 31, "neighbours": 40, "proj_out": 0}, ["memory asks for 31", "asks for 40"]),
        ("promptcal", {"memory": 30, "neighbours": 30, "proj_out": 0}, []),
        ("simgcd", {}, []),
    ],
)
def test_memory_queue_and_neighbours(name, settings, words):
    method = METHODS[name](METHODS[name].Config(**settings), TASK)
    said = method.check()
    assert [one in line for one, line in zip(words, said, strict=True)] == [True] * len(words)
    if name == "uno":
        assert len(method.queue.rows) == 20
    if name == "promptcal":
        assert len(method.memory.rows) == method.k_nn == 30


@pytest.mark.parametrize("name", ["gcd", "dccl", "promptcal"])
def test_new_categories_that_nobody_could_be_in_are_refused_before_training(name):
    """Each of them ends with a centre that begins at an image without a label."""
    config = METHODS[name].Config(proj_out=0, **({"memory": 1} if name == "promptcal" else {}))
    METHODS[name](config, dataclasses.replace(TASK, k=22)).check()
    with pytest.raises(InputError, match="k = 23 asks for 21 new categories, and only 20 images"):
        METHODS[name](config, dataclasses.replace(TASK, k=23)).check()


def slow_pairs(key, w_old, candidate, mu, mu_id):
    groups = []
    for i in range(len(key)):
        allowed = [j for j in range(len(key)) if candidate[i, j]]
        drawn = sorted(allowed, key=lambda j: -float(key[i, j]))[:mu]
        kept = sorted(drawn, key=lambda j: -float(w_old[j]))[:mu_id]
        groups.append(kept)
    return groups


def test_pairs_equal_the_slow_loop():
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        key, w_old = torch.rand(24, 24, generator=g), torch.rand(24, generator=g)
        candidate = torch.rand(24, 24, generator=g) < 0.3
        candidate[0] = False  # keeps nobody
        for mu, mu_id in ((7, 2), (3, 3), (1, 1), (40, 5)):
            partner, weight = draw_pairs(key, w_old, candidate, mu, torch.tensor(float(mu_id)))
            assert partner.shape == (24, min(mu, 24))
            for i, kept in enumerate(slow_pairs(key, w_old, candidate, mu, mu_id)):
                assert partner[i, : len(kept)].tolist() == kept
                assert torch.equal(weight[i, : len(kept)], w_old[kept])
                assert weight[i, len(kept) :].eq(0).all()


def test_rows_gathered_by_a_product_are_those_of_an_index() -> None:
    torch.manual_seed(0)
    x, row = torch.randn(2, 6, 5, requires_grad=True), torch.randint(6, (6, 3))
    found, expected = select_rows(x, row), x[:, row]
    assert torch.equal(found, expected)
    cotangent = torch.randn_like(expected)
    mine, reference = (torch.autograd.grad(out, x, cotangent)[0] for out in (found, expected))
    torch.testing.assert_close(mine, reference)


def test_means_are_of_all_counted_values_of_all_steps_and_of_a_resumed_epoch():
    tally, other = EpochMeans("a", "b"), EpochMeans("a", "b")
    assert tally.means() == {}
    tally.add("a", torch.tensor([1.0, 2, 6]))
    other.load_state_dict(tally.state_dict())
    other.add("a", torch.tensor([[1.0, 100], [2, float("nan")]]), torch.tensor([True, False]))
    other.add("b", torch.tensor([3.0]), torch.tensor([False]))
    assert other.means() == {"a": pytest.approx(12 / 5)}  # of b nothing was counted
    other.reset()
    assert other.means() == {}
    with FakeTensorMode():  # adding needs no values
        EpochMeans("a").add("a", torch.rand(2, 5, requires_grad=True), torch.rand(5) < 0.5)
