"""Keyed generators and samplers."""

import torch

from holotype.data.samplers import balanced_rows, keyed_generator, uniform_rows

LABELLED, UNLABELLED = torch.arange(0, 30), torch.arange(30, 120)


def test_a_key_decides_the_numbers_and_nothing_else_does():
    first = torch.rand(4, generator=keyed_generator(0, 1, "rows"))
    torch.manual_seed(99)
    assert torch.equal(first, torch.rand(4, generator=keyed_generator(0, 1, "rows")))
    others = [(0, 1, "crop"), (0, 2, "rows"), (1, 1, "rows"), (0, "1", "rows"), (0, 1, "rows", 0)]
    for key in others:
        assert not torch.equal(first, torch.rand(4, generator=keyed_generator(*key)))


def test_balanced_rows_are_labelled_half_of_the_time_and_uniform_within_each_kind():
    rows = balanced_rows(LABELLED, UNLABELLED, 60_000, keyed_generator("test"))
    share = (rows < 30).double().mean()
    assert abs(share - 0.5) < 0.01  # 5 standard deviations of a fair coin
    counts = torch.bincount(rows, minlength=120).double()
    assert (counts[:30] / 1000 - 1).abs().max() < 0.2
    assert (counts[30:] / (30_000 / 90) - 1).abs().max() < 0.3
    assert set(rows.tolist()) == set(range(120))


def test_balanced_rows_with_one_kind_only():
    none = torch.empty(0, dtype=torch.long)
    assert balanced_rows(LABELLED, none, 50, keyed_generator("test")).max() < 30
    assert balanced_rows(none, UNLABELLED, 50, keyed_generator("test")).min() >= 30


def test_uniform_rows_take_every_image_at_most_once():
    rows = uniform_rows(LABELLED, UNLABELLED, 120, keyed_generator("test"))
    assert sorted(rows.tolist()) == list(range(120))
    assert len(set(uniform_rows(LABELLED, UNLABELLED, 50, keyed_generator("test")).tolist())) == 50
