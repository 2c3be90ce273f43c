"""UNO+: its step against the golden one, the queue and the prior as properties, the head that places."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.errors import InputError
from holotype.losses.sinkhorn import sinkhorn
from holotype.methods import Batch, Images, Task
from holotype.methods.uno import UNO, UNOConfig, unlabelled_shares

GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/uno.npz", allow_pickle=False))
TASK = Task(n_known=3, k=7, dim=16, n_images=70, n_labelled=15, epochs=20)


def build(preset: str = "default", task: Task = TASK, **settings) -> UNO:
    torch.manual_seed(0)
    return UNO(UNOConfig(**{"heads": 2, **UNO.presets[preset], **settings}), task).double()


def a_batch(n: int = 12, seed: int = 0, labelled: float = 0.5) -> Batch:
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(2, n, 16, generator=g, dtype=torch.float64)
    mask = torch.arange(n) < labelled * n
    return Batch(features, torch.arange(n) % 3 * mask, mask, torch.arange(n))


@pytest.mark.parametrize("case", ["step_a", "step_no_labelled"])
def test_as_run_is_the_golden_step(case):
    """The released pieces put together as the adaptation does: Sinkhorn over all columns for unlabelled rows."""
    g = {key.removeprefix(f"{case}_gcd__"): value for key, value in GOLDEN.items() if f"{case}_gcd__" in key}
    logits, over = (torch.from_numpy(GOLDEN[f"{case}__{key}"]) for key in ("logits", "logits_over"))
    n_known, b = int(GOLDEN[f"{case}__n_labelled_classes"]), logits.shape[2]
    label = torch.from_numpy(GOLDEN[f"{case}__labels"])
    method = build("as_run", Task(n_known, logits.shape[-1], 16, 40, 10))
    batch = Batch(torch.zeros(2, b, 16), label * (label < n_known), label < n_known, torch.arange(b))
    for ours, name in zip(method.targets(logits, over, batch), ("targets", "targets_over"), strict=True):
        np.testing.assert_allclose(ours, g[name], rtol=1e-7, atol=1e-9)
    terms = method.terms(logits, over, batch)
    assert sum(terms.values()).item() == pytest.approx(float(g["loss"]), rel=1e-7)
    np.testing.assert_allclose(method.head_loss, g["loss_per_head"], rtol=1e-7)
    assert 2 * terms["over"].item() == pytest.approx(g["loss_over_per_head"].mean(), rel=1e-7)


def test_targets_are_those_of_batch_and_queue_together():
    method, seen = build(prior="uniform", queue=3), []
    for step in range(5):
        logits, over = (torch.randn(2, 2, 12, n, dtype=torch.float64) for n in (7, 15))
        both = torch.cat([logits, over], -1)
        queued = torch.cat(seen)[-21:] if seen else torch.zeros(0, 2, 22, dtype=torch.float64)
        found = method.targets(logits, over, a_batch(seed=step))
        for v, h, kind in itertools.product(range(2), repeat=3):
            part = (slice(0, 7), slice(7, 22))[kind]
            slow = sinkhorn(torch.cat([both[v, h, 6:, part], queued[:, h, part]]))[:6]
            # the queue holds float32 until the method is cast; here all is double
            torch.testing.assert_close(found[kind][v, h, 6:], slow, atol=1e-9, rtol=0)
        seen += [*both.transpose(1, 2)[:, 6:]]


def test_the_queue_is_long_enough_and_holds_no_labelled_row():
    method = build(queue=10, task=dataclasses.replace(TASK, n_images=100))
    assert len(method.queue.rows) == 70
    for step in range(40):
        method.loss(a_batch(seed=step), {})
    assert method.queue.valid.all()
    assert (method.queue.rows != 0).any(-1).all()
    before = method.queue.rows.clone()
    method.loss(a_batch(labelled=1.0), {})
    assert torch.equal(method.queue.rows, before)
    assert build("as_run").queue is None
    with pytest.raises(InputError, match="k = 3 has none beside the 3 known"):
        build(task=Task(3, 3, 16, 40, 10))


def test_the_prior_follows_from_counts():
    few, many = (unlabelled_shares(Task(4, 8, 8, 800, n)) for n in (4, 399))
    torch.testing.assert_close(few, torch.full((8,), 1 / 8), atol=2e-3, rtol=0)
    assert many[0] < few[0]
    torch.testing.assert_close(many[0] / many[-1], torch.tensor(0.25))  # never nothing
    over = unlabelled_shares(Task(4, 8, 8, 800, 200), over=3)
    plain = unlabelled_shares(Task(4, 8, 8, 800, 200))
    assert len(over) == 4 + 12
    torch.testing.assert_close(over[:4], plain[:4])
    torch.testing.assert_close(over[4:].view(4, 3).sum(1), plain[4:])
    assert unlabelled_shares(Task(0, 3, 8, 10, 0)).tolist() == pytest.approx([1 / 3] * 3)


def images(x: torch.Tensor, label: torch.Tensor) -> Images:
    return Images(torch.arange(len(x)), label, len(x), torch.Generator(), lambda: x)


def test_known_prototypes_begin_at_class_means():
    torch.manual_seed(1)
    x, label = torch.randn(30, 16, dtype=torch.float64), torch.arange(30) % 4 - 1
    method, other = build(), build("as_run")
    method.before_epoch(None, 0, images(x, label))
    for c in range(3):
        mean = torch.nn.functional.normalize(x[label == c], dim=-1).mean(0)
        torch.testing.assert_close(method.known.weight[c], mean / mean.norm())
    for kept, epoch in ((method, 1), (other, 0)):  # neither later nor in the other preset
        before = kept.known.weight.detach().clone()
        kept.before_epoch(None, epoch, images(x.flip(1), label))
        assert torch.equal(kept.known.weight, before)


def test_prototypes_have_unit_length_after_every_step():
    method = build()
    optimiser = torch.optim.SGD(method.parameters(), lr=0.5)
    for step in range(3):
        optimiser.zero_grad()
        sum(method.loss(a_batch(seed=step), {}).values()).backward()
        optimiser.step()
        method.after_step()
    said = method.diagnostics()
    assert 1 / 7 <= said["target_peak"] <= 1
    assert all(0 <= said[name] <= 1 for name in ("target_known", "labelled_right"))
    for prototypes in (method.known, method.novel.prototypes, method.over.prototypes):
        length = prototypes.weight.norm(dim=-1)
        torch.testing.assert_close(length, torch.ones_like(length))


def test_the_best_head_of_the_epoch_places_images():
    x = torch.randn(9, 16, dtype=torch.float64)
    best, first = build().eval(), build(head="first").eval()
    for method in (best, first):
        method.head_loss.copy_(torch.tensor([2.0, 1.0]))
    every = best.joined(x[None], best.novel)[0]
    torch.testing.assert_close(best.logits(x), every[1] / 0.1)
    torch.testing.assert_close(first.logits(x), every[0] / 0.1)
    best.before_epoch(None, 1, images(x, torch.full((9,), -1)))
    assert (best.head_loss == 0).all()
