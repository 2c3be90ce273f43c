"""SelEx: the hierarchy, what its clusters may know, and what ends it."""

import pytest
import torch

from holotype.methods import METHODS, Images, Task
from holotype.methods.selex import SelEx, hierarchy

from .test_contract import Blobs

TASK = Task(n_known=3, k=6, dim=16, n_images=120, n_labelled=30, epochs=10)


def made(task=TASK, **settings) -> SelEx:
    torch.manual_seed(0)
    return SelEx(METHODS["selex"].Config(proj_out=64, n_init=2, **settings), task)


def images_of(blobs, x=None, target=None) -> Images:
    x = blobs.x if x is None else x
    target = blobs.target if target is None else target
    return Images(torch.arange(len(x)), target, len(x), torch.Generator().manual_seed(0), lambda: x)


@pytest.mark.parametrize(
    ("counts", "levels"),
    [
        ((100, 200), [(100, 100), (50, 50), (25, 25), (12, 12), (6, 6), (3, 3), (1, 1)]),
        ((5, 6), [(5, 1), (2, 1), (1, 1)]),
        ((4, 4), [(4, 0), (2, 0), (1, 0)]),
        ((1, 9), [(1, 8)]),
    ],
)
def test_levels_halve_until_one_known_cluster_is_left(counts, levels):
    assert hierarchy(*counts) == levels


def test_clusters_nest_known_with_known_and_labelled_images_stay_with_their_class():
    blobs, task = Blobs(), Task(n_known=3, k=10, dim=16, n_images=120, n_labelled=30)
    method = made(task)
    for epoch in range(3):
        method.before_epoch(method.stages()[0], epoch, images_of(blobs))
        assert torch.equal(method.cluster[blobs.labelled], blobs.target[blobs.labelled])
        assert torch.equal(method.parent[0], torch.arange(10))
        for level, (known, novel) in enumerate(method.levels):
            of_known, of_novel = method.parent[level][:3], method.parent[level][3:]
            assert of_known.max() < known <= of_novel.min()
            assert of_novel.max() < known + novel
        assert (method.radius[0] > 0).all()


def test_clusters_are_of_equal_size_where_that_is_asked_for():
    blobs = Blobs()
    uneven = torch.cat([blobs.x[blobs.truth == 5]] * 4 + [blobs.x])
    target = torch.cat([torch.full((80,), -1), blobs.target])
    largest = []
    for balanced in (True, False):
        method = made(Task(n_known=3, k=6, dim=16, n_images=200, n_labelled=30), balanced=balanced)
        method.before_epoch(method.stages()[0], 0, images_of(blobs, uneven, target))
        largest.append(int(torch.bincount(method.cluster).max()))
    assert largest[0] <= 40 < 80 <= largest[1]


def test_hidden_classes_have_no_part_and_an_epoch_goes_on_from_the_last():
    blobs, method = Blobs(), made()
    for epoch in range(2):
        method.before_epoch(method.stages()[0], epoch, images_of(blobs))
    first, again = method.cluster.clone(), made()
    again.load_state_dict(method.state_dict())
    for one in (method, again):
        one.before_epoch(one.stages()[0], 2, images_of(blobs))
    assert torch.equal(method.cluster, again.cluster)
    assert (method.cluster == first).float().mean() > 0.9


def test_images_are_placed_as_evenly_as_they_were_clustered():
    blobs, method = Blobs(), made()
    method.finish(images_of(blobs))
    placed = method.predict(blobs.x).category
    assert torch.bincount(placed, minlength=6).max() <= 30
    method.bonus.zero_()
    method.bonus[2] = 100.0
    assert method.predict(blobs.x).category.eq(2).all()


def test_a_cluster_that_none_finer_has_chosen_has_a_parent_of_its_kind():
    """With memory that is not written filled with large numbers, as a device may hold."""
    blobs, task = Blobs(), Task(n_known=8, k=16, dim=16, n_images=120, n_labelled=30)
    method = made(task)
    method.before_epoch(method.stages()[0], 0, images_of(blobs))
    (fine, _), (known, novel) = method.levels[1:3]
    method.parent[1, :8] = 0  # so that clusters 1 to 3 of the second level have no member
    centres = torch.nn.functional.normalize(torch.randn(sum(method.levels[1]), 16), dim=-1)
    torch.use_deterministic_algorithms(True)
    try:
        method.merge(2, centres, False, torch.Generator())
    finally:
        torch.use_deterministic_algorithms(False)
    assert fine > 1
    assert 0 <= method.parent[2][:8].max() < known
    assert known <= method.parent[2][8:].min() <= method.parent[2][8:].max() < known + novel
