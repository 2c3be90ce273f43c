"""Strong operations equal Pillow's bit for bit; recipes are shared, replayed and cut into rows as said."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from holotype.data import augment
from holotype.errors import InputError

SIZE = 36
FIELDS = ("op", "magnitude", "sign", "apply", "cutout")
LEVELS = [level / 10 for level in range(1, 11)]


def pictures(n: int, size: int = SIZE, seed: int = 0) -> Tensor:
    """(n, 3, size, size) uint8: noise, smooth ramps, narrow ranges, flat channels, in turn."""
    rng = np.random.default_rng(seed)
    result = np.empty((n, size, size, 3), dtype=np.uint8)
    ramp = np.add.outer(np.arange(size), np.arange(size))[..., None]
    for i in range(n):
        if i % 4 == 0:
            result[i] = rng.integers(0, 256, (size, size, 3))
        elif i % 4 == 1:
            result[i] = np.clip(ramp * rng.uniform(0.5, 3, 3) + rng.uniform(0, 60, 3), 0, 255)
        elif i % 4 == 2:
            low = rng.integers(0, 200, 3)
            result[i] = low + rng.integers(0, 56, (size, size, 3))
        else:
            result[i] = rng.integers(0, 256, 3)
            result[i, ..., 1] = rng.choice([3, 250], (size, size), p=[0.999, 0.001])
    return torch.from_numpy(result).permute(0, 3, 1, 2)


def recipe_of(name: str, magnitude: Tensor, sign: Tensor) -> augment.Recipe:
    """One operation for every row, with the Cutout square entirely outside the image."""
    n = len(magnitude)
    return augment.Recipe(
        op=torch.full((n, 1), augment.OPERATIONS.index(name)),
        magnitude=magnitude[:, None],
        sign=sign[:, None],
        apply=torch.ones(n, 1, dtype=torch.bool),
        cutout=torch.full((n, 2), 9.0, dtype=torch.float64),
    )


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=(127, 127, 127))


def factor(magnitude: float) -> float:
    return 0.05 + 0.9 * magnitude


PIL_OPERATIONS: dict[str, Callable[[Image.Image, float, int], Image.Image]] = {
    "auto_contrast": lambda image, m, s: ImageOps.autocontrast(image),
    "brightness": lambda image, m, s: ImageEnhance.Brightness(image).enhance(factor(m)),
    "colour": lambda image, m, s: ImageEnhance.Color(image).enhance(factor(m)),
    "contrast": lambda image, m, s: ImageEnhance.Contrast(image).enhance(factor(m)),
    "equalise": lambda image, m, s: ImageOps.equalize(image),
    "identity": lambda image, m, s: image,
    "posterise": lambda image, m, s: ImageOps.posterize(image, 4 + int(4 * m)),
    "rotate": lambda image, m, s: image.rotate(30 * m * s, fillcolor=(127, 127, 127)),
    "sharpness": lambda image, m, s: ImageEnhance.Sharpness(image).enhance(factor(m)),
    "shear_x": lambda image, m, s: affine(image, 1, 0.3 * m * s, 0, 0, 1, 0),
    "shear_y": lambda image, m, s: affine(image, 1, 0, 0, 0.3 * m * s, 1, 0),
    "solarise": lambda image, m, s: ImageOps.solarize(image, 256 - int(256 * m)),
    "translate_x": lambda image, m, s: affine(image, 1, 0, int(0.3 * m * image.width) * s, 0, 1, 0),
    "translate_y": lambda image, m, s: affine(image, 1, 0, 0, 0, 1, int(0.3 * m * image.height) * s),
}


@pytest.mark.parametrize("size", [SIZE, 35, 128, 3, 1])
@pytest.mark.parametrize("name", PIL_OPERATIONS)
def test_operation_equals_pillow_exactly(name: str, size: int) -> None:
    """Tolerance 0 for all of them, at every level and sign, fill included."""
    assert set(augment.OPERATIONS) == set(PIL_OPERATIONS)
    assert augment.OPERATIONS[augment.IDENTITY] == "identity"
    cases = [(m, s) for m in LEVELS for s in (-1, 1)]
    magnitude = torch.tensor([m for m, _ in cases], dtype=torch.float64)
    sign = torch.tensor([s for _, s in cases])
    images = pictures(len(cases), size)
    before = images.clone()
    result = augment.apply_recipe(images, recipe_of(name, magnitude, sign))
    assert torch.equal(images, before), "the input is left alone"
    for i, (m, s) in enumerate(cases):
        image = Image.fromarray(images[i].permute(1, 2, 0).contiguous().numpy())
        expected = np.asarray(PIL_OPERATIONS[name](image, m, s))
        assert np.array_equal(expected, result[i].permute(1, 2, 0).numpy()), (m, s)


def slow_cutout(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """image: (H, W, 3)."""
    height, width = image.shape[:2]
    side = min(height, width) // 2
    top, left = int(y * height) - side // 2, int(x * width) - side // 2
    result = image.copy()
    result[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 127
    return result


def test_mixed_recipe_equals_the_slow_loop() -> None:
    n = 150
    images = pictures(n)
    recipe = augment.draw_recipe(n, torch.Generator().manual_seed(2), share="none")
    result = augment.apply_recipe(images, recipe)
    for i in range(n):
        image = Image.fromarray(images[i].permute(1, 2, 0).contiguous().numpy())
        for slot in range(2):
            if recipe.apply[i, slot]:
                operation = PIL_OPERATIONS[augment.OPERATIONS[int(recipe.op[i, slot])]]
                image = operation(image, float(recipe.magnitude[i, slot]), int(recipe.sign[i, slot]))
        expected = slow_cutout(np.asarray(image), *recipe.cutout[i].tolist())
        assert np.array_equal(result[i].permute(1, 2, 0).numpy(), expected), i


def test_recipes_are_shared_replayed_and_cut_into_rows() -> None:
    images, same = pictures(30), pictures(1).expand(30, -1, -1, -1)
    group = torch.arange(30) % 7
    for share, ids, kinds in (("none", None, 30), ("batch", None, 1), ("group", group, 7)):
        recipe = augment.draw_recipe(30, torch.Generator().manual_seed(3), share=share, group=ids)
        whole = augment.apply_recipe(images, recipe)
        assert torch.equal(augment.apply_recipe(images, recipe), whole)
        for rows in (torch.tensor([29, 3, 3, 17, 0]), torch.arange(30) % 3 == 1):
            assert torch.equal(augment.apply_recipe(images[rows], recipe.take(rows)), whole[rows])
        assert len(recipe.cutout.unique(dim=0)) == kinds
        if kinds < 30:
            assert len(augment.apply_recipe(same, recipe).unique(dim=0)) == kinds
        for name in FIELDS if ids is not None else ():
            for one in group.unique():
                inside = getattr(recipe, name)[group == one]
                assert (inside == inside[:1]).all(), "alike inside a group"


def test_draws_have_fixmatch_ranges() -> None:
    n = 20_000
    recipe = augment.draw_recipe(n, torch.Generator().manual_seed(0), share="none")
    assert recipe.op.shape == recipe.magnitude.shape == recipe.sign.shape == recipe.apply.shape == (n, 2)
    assert (torch.bincount(recipe.op.flatten(), minlength=14) / (2 * n) - 1 / 14).abs().max() < 0.006
    assert recipe.magnitude.unique().tolist() == LEVELS
    for values, mean in ((recipe.apply, 0.5), (recipe.sign, 0.0), (recipe.cutout, 0.5)):
        assert abs(values.double().mean() - mean) < 0.02
    assert 0 <= recipe.cutout.min() <= recipe.cutout.max() < 1


MPS, CPU = torch.device("mps"), torch.device("cpu")


class PretendedMps(TorchFunctionMode):
    """Tensors sent to MPS stay where they are, say that they are there, and may not be float64, as on that device.

    What is computed from such a tensor is there, too; a copy to the CPU is not.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs or {}))
        there = any(isinstance(x, Tensor) and getattr(x, "on_mps", False) for x in leaves)
        named = [x for x in leaves if isinstance(x, torch.device)]
        if func == Tensor.device.__get__:
            return MPS if there else func(*args)
        args, kwargs = tree_map(lambda x: CPU if isinstance(x, torch.device) else x, (args, kwargs or {}))
        result = func(*args, **kwargs)
        if func is Tensor.to and named:
            result = result.clone()
        if MPS in named or (there and CPU not in named):
            for made in tree_leaves(result):
                if isinstance(made, Tensor):
                    assert made.dtype != torch.float64, f"{func.__name__} on a device without float64"
                    made.on_mps = True
        return result


@pytest.mark.parametrize("name", augment.OPERATIONS)
def test_a_device_without_float64_gives_the_same_pixels(name: str) -> None:
    images = pictures(20)
    magnitude, sign = torch.tensor(LEVELS * 2, dtype=torch.float64), torch.tensor([-1] * 10 + [1] * 10)
    recipe = recipe_of(name, magnitude, sign)
    expected = augment.apply_recipe(images, recipe)
    with PretendedMps():
        found = augment.apply_recipe(images.to(MPS), recipe)
        assert found.device == MPS
        found = found.to(CPU)
    assert torch.equal(found, expected)


def test_no_images_and_wrong_arguments() -> None:
    empty = augment.draw_recipe(0, torch.Generator(), share="none")
    assert augment.apply_recipe(pictures(4)[:0], empty).shape == (0, 3, SIZE, SIZE)
    for share, group in (("group", None), ("batch", torch.arange(4)), ("group", torch.arange(3))):
        with pytest.raises(InputError, match="group"):
            augment.draw_recipe(4, torch.Generator(), share=share, group=group)
    with pytest.raises(InputError, match="recipe is for 2"):
        augment.apply_recipe(pictures(4), augment.draw_recipe(2, torch.Generator()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_same_pixels_without_waiting() -> None:
    images = pictures(64)
    recipe = augment.draw_recipe(64, torch.Generator().manual_seed(0), share="none")
    on_gpu = images.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = augment.apply_recipe(on_gpu, recipe)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(result.cpu(), augment.apply_recipe(images, recipe))


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_draws_cover_every_position_evenly() -> None:
    n = 30_000
    height, width = torch.full((n,), 15), torch.full((n,), 20)
    crops = augment.draw_crops(height, width, 12, torch.Generator().manual_seed(0))
    for values, count in ((crops.top, 4), (crops.left, 9), (crops.flip.long(), 2)):
        seen = torch.bincount(values, minlength=count).double()
        assert len(seen) == count, "outside the range"
        expected = n / count
        chi2 = ((seen - expected) ** 2 / expected).sum()
        assert chi2 < 30, seen  # 8 degrees of freedom at most: p below 0.001
    joint = torch.stack([crops.top.double(), crops.left.double(), crops.flip.double()])
    assert (torch.corrcoef(joint) - torch.eye(3)).abs().max() < 0.03, "the three draws are independent"


def test_too_small_an_image_is_named_and_crops_keep_their_rows_together() -> None:
    height = width = torch.tensor([40, 0])
    for draw in (augment.centre_crops, partial(augment.draw_crops, generator=torch.Generator())):
        with pytest.raises(InputError, match="image 1 of the batch"):
            draw(height, width, 32)
    crops = augment.CropParams(torch.arange(5), torch.arange(5) * 10, torch.arange(5) % 2 == 0)
    some = crops.take(torch.tensor([4, 1])).to("cpu")
    assert len(some) == 2
    assert [some.top.tolist(), some.left.tolist(), some.flip.tolist()] == [[4, 1], [40, 10], [True, False]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normalise_is_the_formula(dtype: torch.dtype) -> None:
    images = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in (MEAN, STD))
    expected = (images.double() / 255 - mean) / std
    for arguments in ((MEAN, STD), (mean.flatten(), std.flatten())):
        result = augment.normalise(images, *arguments, dtype)
        assert result.dtype == dtype
        tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]
        assert (result.double() - expected).abs().max() < tolerance
    batches = torch.stack([images, images.flip(0)])  # any leading shape
    assert torch.equal(augment.normalise(batches, MEAN, STD, dtype)[0], result)
