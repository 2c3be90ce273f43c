"""Crops are uniform over every position, centre crops round half to even, normalisation is the formula."""

from __future__ import annotations

import pytest
import torch

from holotype.data.augment import CropParams, centre_crops, draw_crops, normalise
from holotype.errors import InputError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sides(*pairs: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor(pairs)
    return both[:, 0], both[:, 1]


def test_draws_cover_every_position_evenly() -> None:
    n = 30_000
    height, width = torch.full((n,), 15), torch.full((n,), 20)
    crops = draw_crops(height, width, 12, torch.Generator().manual_seed(0))
    for values, count in ((crops.top, 4), (crops.left, 9), (crops.flip.long(), 2)):
        seen = torch.bincount(values, minlength=count).double()
        assert len(seen) == count, "outside the range"
        expected = n / count
        chi2 = ((seen - expected) ** 2 / expected).sum()
        assert chi2 < 30, seen  # 8 degrees of freedom at most: p below 0.001
    joint = torch.stack([crops.top.double(), crops.left.double(), crops.flip.double()])
    assert (torch.corrcoef(joint) - torch.eye(3)).abs().max() < 0.03, "the three draws are independent"


def test_ragged_sides_each_reach_both_ends() -> None:
    height, width = sides((8, 8), (8, 11), (30, 8), (9, 9))
    generator = torch.Generator().manual_seed(1)
    draws = [draw_crops(height, width, 8, generator) for _ in range(600)]
    top, left = torch.stack([d.top for d in draws]), torch.stack([d.left for d in draws])
    assert (top.amin(0) == 0).all()
    assert (left.amin(0) == 0).all()
    assert torch.equal(top.amax(0), height - 8)
    assert torch.equal(left.amax(0), width - 8)


def test_same_generator_state_draws_the_same_crops() -> None:
    height, width = sides((40, 31), (33, 64))
    a, b = (draw_crops(height, width, 28, torch.Generator().manual_seed(7)) for _ in range(2))
    for name in ("top", "left", "flip"):
        assert torch.equal(getattr(a, name), getattr(b, name))


def test_centre_rounds_half_to_even() -> None:
    height, width = sides((256, 353), (363, 256), (256, 256), (227, 229))
    crops = centre_crops(height, width, 224)
    assert crops.top.tolist() == [16, 70, 16, 2]
    assert crops.left.tolist() == [64, 16, 16, 2]
    assert crops.top.tolist() == [round((h - 224) / 2) for h in height.tolist()]
    assert not crops.flip.any()


def test_too_small_an_image_is_named() -> None:
    height, width = sides((40, 40), (0, 0))
    with pytest.raises(InputError, match="image 1 of the batch"):
        draw_crops(height, width, 32, torch.Generator())
    with pytest.raises(InputError, match="0 x 0"):
        centre_crops(height, width, 32)


def test_take_and_to_keep_the_rows_together() -> None:
    crops = CropParams(torch.arange(5), torch.arange(5) * 10, torch.arange(5) % 2 == 0)
    some = crops.take(torch.tensor([4, 1])).to("cpu")
    assert len(some) == 2
    assert some.top.tolist() == [4, 1]
    assert some.left.tolist() == [40, 10]
    assert some.flip.tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normalise_is_the_formula(dtype: torch.dtype) -> None:
    images = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in (MEAN, STD))
    expected = (images.double() / 255 - mean) / std
    for arguments in ((MEAN, STD), (mean.flatten(), std.flatten())):
        result = normalise(images, *arguments, dtype)
        assert result.dtype == dtype
        tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]
        assert (result.double() - expected).abs().max() < tolerance
    # The arithmetic is float32 even for a half-precision result: rounding happens once, at the end.
    if dtype == torch.bfloat16:
        assert torch.equal(
            normalise(images, MEAN, STD, dtype), normalise(images, MEAN, STD, torch.float32).to(dtype)
        )


def test_normalise_takes_any_leading_shape() -> None:
    images = torch.randint(256, (2, 4, 3, 6, 6), dtype=torch.uint8)
    result = normalise(images, MEAN, STD, torch.float32)
    assert torch.equal(result[1], normalise(images[1], MEAN, STD, torch.float32))
