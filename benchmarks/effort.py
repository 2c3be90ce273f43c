"""How much is measured: steps of each kind, and sizes of what is clustered, by device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from measure import Plan


@dataclass(frozen=True)
class Clusters:
    """What is clustered: made features, in classes of equal size."""

    images: int
    dim: int
    classes: int
    starts: int = 1
    """Of k-means; communities have none."""


CUB = Clusters(6000, 384, 200)
"""About CUB's images, as ViT-S sees them."""
IMAGENET_100 = Clusters(127_000, 768, 100, starts=100)
"""About ImageNet-100's images, as ViT-B sees them."""

SHORT = Plan(10, 5, 20)
"""Where many are measured."""


@dataclass(frozen=True)
class Effort:
    """How long each kind of step is measured, and how far growth is followed."""

    reference: Plan
    exact: Plan
    cached: Plan
    together: Plan
    repeats: int
    """Of the trunk and the matrix product."""
    runs: tuple[int, ...] = (1, 8)
    """Runs that train at once."""
    ks: tuple[int, ...] = (100, 200, 1000)
    exact_growth: bool = True
    """Whether growth with the batch is followed in exact mode too: every shape is compiled anew."""
    methods: Plan = SHORT
    """Of every method on tokens."""
    image_stages: Plan = SHORT
    """Of stages on images; where two kinds of step take turns, a turn is a block, and each kind has so many."""
    communities: Clusters = CUB
    kmeans: Clusters = IMAGENET_100


EFFORTS = {
    "cuda": Effort(Plan(16, 4, 8), Plan(12, 20, 10), Plan(20, 20, 50), Plan(10, 10, 25), 20),
    "cuda quick": Effort(
        Plan(8, 2, 8), Plan(5, 5, 10), Plan(10, 5, 50), Plan(5, 5, 10), 10, exact_growth=False
    ),
    "cpu": Effort(
        Plan(2, 4, 2),
        Plan(2, 4, 2),
        Plan(4, 10, 5),
        Plan(2, 4, 2),
        5,
        methods=Plan(4, 5, 4),
        image_stages=Plan(2, 3, 2),
        kmeans=replace(IMAGENET_100, starts=1),  # one takes most of a minute
    ),
    "cpu quick": Effort(
        Plan(1, 2, 1),
        Plan(1, 2, 1),
        Plan(2, 3, 2),
        Plan(1, 2, 1),
        2,
        exact_growth=False,
        methods=Plan(1, 2, 2),
        image_stages=Plan(1, 2, 1),
        communities=Clusters(600, 96, 20),
        kmeans=Clusters(1200, 96, 20, starts=4),
    ),
}
"""By device; any other device than these is measured like a CPU."""
