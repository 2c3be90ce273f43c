"""The conditions: a quarter labelled whatever the numbers, one network in two forms."""

from __future__ import annotations

import pytest
import torch
from world import World

from holotype.errors import InputError


@pytest.mark.parametrize(("n", "k"), [(24, 4), (24, 1000), (12, 2)])
def test_a_quarter_of_the_images_is_labelled(world, n: int, k: int) -> None:
    """As in CUB, also where there are more categories than images."""
    table = world.table(n, k)
    assert len(table) == n
    assert len(table.known) == k // 2
    assert table.labelled.mean() == 0.25
    method = world.method("rpc", 64, n, k)
    assert (method.task.k, method.task.n_known, method.task.n_images) == (k, k // 2, n)
    assert method.task.n_labelled == n // 4


def test_trunk_and_tail_are_the_network_of_the_reference_style(world) -> None:
    """Both sides of every comparison run the same network."""
    model, backbone = world.model().eval(), world.backbone()
    images = torch.randn(2, 3, world.image_size, world.image_size)
    with torch.no_grad():
        whole, parts = model(images), backbone.tail(backbone.trunk(images))
    assert torch.allclose(whole, parts, atol=1e-5)
    assert backbone.dim == whole.shape[1]


def test_the_embedded_network_has_the_same_shape_as_its_stand_in(photographs) -> None:
    world = World(photographs, "embedded", 128, 8, 4, torch.device("cpu"))
    model, backbone = world.model(), world.backbone()
    assert backbone.name == "embedded"
    assert len(model.blocks) == len(backbone.trunk.blocks) + 1
    assert int(model.num_features) == backbone.dim


def test_the_network_of_the_published_runs_has_a_name_here(photographs) -> None:
    """timm knows its shape under another name."""
    model = World(photographs, "vit_small_patch14_224", 224, 8, 4, torch.device("cpu")).model()
    assert model.patch_embed.patch_size == (14, 14)
    assert model.patch_embed.grid_size == (16, 16)
    assert (model.num_features, len(model.blocks)) == (384, 12)
    assert bool((model.blocks[0].ls1.gamma == 1).all())  # else every image would have the same features


def test_an_unknown_network_is_told_in_a_sentence(photographs) -> None:
    with pytest.raises(InputError, match="--arch"):
        World(photographs, "vit_of_nobody", 32, 8, 4, torch.device("cpu")).model()
