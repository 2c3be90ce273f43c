"""Batches of concepts: every concept once a pass, its own members only, and never an outlier."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holotype.data.samplers import keyed_generator
from holotype.methods.dccl import concept_order, concept_rows, rows_with_concepts


@given(n=st.integers(1, 40), steps=st.integers(1, 30), seed=st.integers(0, 99))
def test_every_pass_has_every_concept_once_and_no_step_one_twice(n, steps, seed):
    order = concept_order(n, steps, 8, keyed_generator(seed))
    assert order.shape == (steps, 8)
    flat = order.flatten()
    for start in range(0, len(flat), n):
        one_pass = flat[start : start + n]
        assert len(one_pass.unique()) == len(one_pass)
    assert flat.min() >= 0
    assert flat.max() < n
    if n >= 8:
        assert all(len(step.unique()) == 8 for step in order)
    else:
        assert all(len(step.unique()) == min(n, 8) for step in order)


def test_the_order_is_random_and_a_key_is_an_order():
    first, again, other = (concept_order(50, 6, 8, keyed_generator(key)) for key in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first.flatten()[:48], torch.arange(48))


def concepts() -> torch.Tensor:
    """12 concepts of 5 to 27 members in mixed order, and 20 outliers."""
    sizes = torch.arange(5, 29, 2)
    concept = torch.cat([torch.arange(12).repeat_interleave(sizes), torch.full((20,), -1)])
    return concept[torch.randperm(len(concept), generator=torch.Generator().manual_seed(0))]


def test_a_step_holds_eight_concepts_of_sixteen_members_and_no_outlier():
    concept = concepts()
    rows = concept_rows(concept, 12, 30, 8, 16, keyed_generator("rows"))
    assert rows.shape == (30, 128)
    found = concept[rows].view(30, 8, 16)
    assert (found >= 0).all()
    assert (found == found[..., :1]).all()  # members of one concept stand side by side
    assert all(len(step[:, 0].unique()) == 8 for step in found)
    for members in rows.view(-1, 16):
        size = int((concept == concept[members[0]]).sum())
        assert len(members.unique()) == 16 if size >= 16 else len(members.unique()) <= size
    drawn = rows.unique()
    assert len(drawn) == int((concept >= 0).sum())  # over thirty steps every member has its turn


@pytest.mark.parametrize("n", [1, 3, 7])
def test_fewer_than_eight_concepts_repeat(n):
    concept = torch.arange(60) % n
    rows = concept_rows(concept, n, 5, 8, 16, keyed_generator("few"))
    found = concept[rows].view(5, 8, 16)
    assert (found == found[..., :1]).all()
    assert all(step[:, 0].unique().tolist() == list(range(n)) for step in found)


def test_ordinary_rows_stand_before_those_of_concepts():
    concept = concepts()
    standing = (torch.arange(len(concept)) % 3) - 1  # a third each: cannot be read, unlabelled, labelled
    concept = torch.where(standing < 0, -1, concept)
    n = int(concept.max()) + 1
    shape = {"steps": 6, "batch_size": 40, "slots": 8, "members": 16}
    rows = rows_with_concepts(standing, concept, n, **shape, generator=keyed_generator("all"))
    assert rows.shape == (6, 40 + 128)
    assert (standing[rows] >= 0).all()
    assert 0.3 < (standing[rows[:, :40]] == 1).float().mean() < 0.7
    assert (concept[rows[:, 40:]] >= 0).all()
    none = rows_with_concepts(
        standing, torch.full_like(concept, -1), 0, **shape, generator=keyed_generator("all")
    )
    assert none.shape == rows.shape
    assert torch.equal(none[:, :40], rows[:, :40])
    assert (standing[none] >= 0).all()
