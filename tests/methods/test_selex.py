"""SelEx: the hierarchy, what its clusters may know, and what ends it."""

import math

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


def test_the_loss_is_the_slow_loop_over_pairs_levels_and_widths():
    blobs, method = Blobs(), made(lam=0.2, smoothing=0.4).double()
    method.before_epoch(method.stages()[0], 0, images_of(blobs, blobs.x.double()))
    c = method.centres
    nearest = [min(float((c[i] - c[j]).norm()) for j in range(6) if j != i) for i in range(6)]
    torch.testing.assert_close(method.radius[0], torch.tensor(nearest).double() / 2)
    batch = blobs.batch(method, torch.nn.Identity(), 0, n=12)
    batch.features = batch.features.double()
    found = method.loss(batch, {})

    rows = torch.cat([*batch.features])
    z, n = torch.nn.functional.normalize(method.head(rows), dim=-1).detach(), len(rows)
    fine = method.cluster[batch.image].repeat(2)
    label, labelled = batch.label.repeat(2), batch.labelled.repeat(2)

    def d(width, i, j):
        return float(((z[i, :width] - z[j, :width]).square().sum() + 1e-6).sqrt())

    def contrast(width, group, valid):
        """Temperature 0.07."""
        terms = []
        for i in valid:
            rivals = [j for j in valid if j != i]
            kin = [j for j in rivals if group[j] == group[i]]
            if kin:
                total = sum(math.exp(-d(width, i, j) / 0.07) for j in rivals)
                terms.append(sum(d(width, i, j) / 0.07 + math.log(total) for j in kin) / len(kin))
        return sum(terms) / max(len(terms), 1)

    every, with_label = range(n), [i for i in range(n) if labelled[i]]
    numbers = range(len(method.levels))
    levels = [contrast(64 >> (n + 1), method.parent[n][fine], every) / 2 ** (n + 1) for n in numbers]
    assert found["con_s"].item() == pytest.approx(0.1 * contrast(64, label, with_label), rel=1e-5)
    assert found["clusters"].item() == pytest.approx(0.1 * sum(levels), rel=1e-5)
    f = torch.nn.functional.normalize(rows, dim=-1)
    smooth = 0.0
    for i in every:
        total = sum(math.exp(-d(64, i, k)) for k in every if k != i)
        far = [
            sum(
                0.5**at
                for at in range(len(levels))
                if (f[i] - f[j]).norm() > 2 * method.radius[at, method.parent[at, fine[j]]]
            )
            * (j != i)
            for j in every
        ]
        for j in every:
            if j != i:
                target = 0.6 * (j == (i + n // 2) % n) + 0.4 * far[j] / max(sum(far), 1e-12)
                smooth += target * (d(64, i, j) + math.log(total)) / n
    assert found["con_u"].item() == pytest.approx(0.8 * smooth, rel=1e-5)
