"""The trunk for a GPU: patches without a convolution, and a compiler that fails. Compilation itself needs a GPU."""

import logging

import pytest
import timm
import torch
from torch import nn

from holotype.data.augment import normalise
from holotype.models import compile
from holotype.models.compile import CompiledTrunk, PatchProduct, is_patch_convolution
from holotype.models.tail import split_backbone

MEAN = STD = torch.full((3,), 0.5)


def tiny_trunk() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": 48, "embed_dim": 32, "depth": 3, "num_heads": 2, "num_classes": 0}
    return split_backbone(timm.create_model("vit_tiny_patch16_224", **sizes), 1)[0]


def pictures(n: int = 5) -> torch.Tensor:
    return torch.randint(256, (n, 3, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_a_product_of_patches_is_the_convolution():
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 10, kernel_size=(4, 6), stride=(4, 6)).double()
    product = PatchProduct(convolution)
    images = torch.randn(2, 3, 12, 18, dtype=torch.float64)
    for layout in (torch.contiguous_format, torch.channels_last):
        found = product(images.contiguous(memory_format=layout))
        torch.testing.assert_close(found, convolution(images), atol=1e-12, rtol=1e-12)
    assert product.state_dict().keys() == convolution.state_dict().keys()


@pytest.mark.parametrize("change", [{}, {"stride": 2}, {"padding": 1}, {"groups": 3}, {"dilation": 2}])
def test_only_windows_that_tile_the_image_are_products(change):
    convolution = nn.Conv2d(3, 12, **{"kernel_size": 4, "stride": 4, **change})
    assert is_patch_convolution(convolution) is not bool(change)
    assert not is_patch_convolution(nn.Linear(3, 3))


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(compile.torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: None)


@pytest.mark.usefixtures("no_compiler")
def test_the_trunk_is_the_same_from_pixels_to_tokens():
    images = pictures()
    with torch.no_grad():
        expected = tiny_trunk()(normalise(images, MEAN, STD, torch.float32))
    trunk = CompiledTrunk(tiny_trunk(), MEAN, STD, torch.float32)
    torch.testing.assert_close(trunk(images), expected)
    again = CompiledTrunk(trunk.trunk, MEAN, STD, torch.float32)  # a second run of a sweep
    torch.testing.assert_close(again(images), expected)


def test_a_trunk_that_cannot_be_compiled_runs_as_it_is_and_says_so(monkeypatch, caplog):
    def fails(*_, **__):
        raise RuntimeError("no compiler here\nand a long story")

    monkeypatch.setattr(compile.torch, "compile", lambda function, **_: fails)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: setattr(self, "_compiled_call_impl", fails))
    images = pictures()
    with torch.no_grad():
        expected = tiny_trunk()(normalise(images, MEAN, STD, torch.float32))
    trunk = CompiledTrunk(tiny_trunk(), MEAN, STD, torch.float32)
    with caplog.at_level(logging.WARNING, logger="holotype"):
        for _ in range(2):
            torch.testing.assert_close(trunk(images), expected)
    (record,) = caplog.records
    assert "could not be compiled (RuntimeError: no compiler here)" in record.getMessage()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_compiled_on_a_gpu_it_gives_the_same_tokens():
    images = pictures(8).cuda()
    trunk = tiny_trunk().cuda()
    with torch.no_grad():
        expected = trunk(normalise(images, MEAN, STD, torch.float32))
    found = CompiledTrunk(trunk, MEAN.cuda(), STD.cuda(), torch.float32)(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
