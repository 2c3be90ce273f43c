"""Counts against torch's own counter and a known network; rates against the work behind them."""

from __future__ import annotations

import pytest
import torch
from ceilings import count_macs, matmul_tflops, measure_trunk
from torch.utils.flop_counter import FlopCounterMode

from holotype.machine import torchvision_cure as _torchvision

_torchvision.cure()
import timm  # noqa: E402


def test_the_count_equals_that_of_torch() -> None:
    """Without fused attention, whose CPU form torch does not count."""
    model = timm.create_model("test_vit", img_size=32, num_classes=0).eval()
    for block in model.blocks:
        block.attn.fused_attn = False
    images = torch.randn(3, 3, 32, 32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    assert 2 * count_macs(model, images) == counter.get_total_flops()


def test_the_count_of_vit_b_is_the_known_one() -> None:
    """17.56 GMAC for the whole network, 16.11 without its last block; no storage is needed to count."""
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch16_224", num_classes=0).eval()
        images = torch.empty(1, 3, 224, 224)
    assert count_macs(model, images) / 1e9 == pytest.approx(17.56, abs=0.01)
    model.blocks = model.blocks[:-1]
    assert count_macs(model, images) / 1e9 == pytest.approx(16.11, abs=0.01)
    assert all(not module._forward_hooks for module in model.modules())


def test_a_trunk_is_held_against_the_matrix_product() -> None:
    """The "trunk" here is a matrix product itself, so that its share must be near 1."""
    side = 512
    weight = torch.randn(side, side)
    images = torch.randn(side, side)
    found = measure_trunk(lambda x: x @ weight, side**2, images, repeats=9, side=side)
    assert found["views"] == side
    assert found["arithmetic"] == "float32"
    assert found["share"] == pytest.approx(found["trunk_tflops"] / found["matmul_tflops"], rel=0.02)
    assert 0.4 < found["share"] < 2.5


def test_the_rate_is_a_rate() -> None:
    small, large = (matmul_tflops(torch.device("cpu"), torch.float32, side, 3) for side in (16, 512))
    assert 0 < small < large < 100
