"""The store holds what PIL would give: golden numbers, bit-equal crops, odd files."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.data.augment import CropParams, centre_crops, draw_crops, normalise
from holotype.data.image_store import ImageStore, SpillConfig
from holotype.errors import InputError

from .noise import odd_files, write_noise

GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "transform_subset.npz", allow_pickle=False)
CASES = ("grad_50x69", "check_71x50", "noise_32x32", "check_290x270_down")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sha256(hwc: torch.Tensor) -> str:
    return hashlib.sha256(hwc.contiguous().numpy().tobytes()).hexdigest()


def pil_crop(stored: torch.Tensor, top: int, left: int, flip: bool, size: int) -> np.ndarray:
    image = Image.fromarray(stored.numpy()).crop((left, top, left + size, top + size))
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


@pytest.fixture(scope="module")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    folder = tmp_path_factory.mktemp("golden")
    paths = [str(folder / f"{case}.png") for case in CASES]
    for case, path in zip(CASES, paths, strict=True):
        Image.fromarray(GOLDEN[f"{case}.image"]).save(path)
    return ImageStore.decode(paths, 224, progress=False)


@pytest.mark.parametrize("row", range(len(CASES)), ids=CASES)
def test_resized_pixels_are_golden(golden_store: ImageStore, row: int) -> None:
    case, stored = CASES[row], golden_store.image(row)
    assert list(stored.shape[:2]) == GOLDEN[f"{case}.resized_hw"].tolist()
    assert sha256(stored) == str(GOLDEN[f"{case}.resized_sha256"])
    assert stored.long().sum((0, 1)).tolist() == GOLDEN[f"{case}.resized_channel_sum"].tolist()


@pytest.mark.parametrize("view", ["view0", "view1", "view2", "view3", "eval"])
@pytest.mark.parametrize("row", range(len(CASES)), ids=CASES)
def test_views_are_golden(golden_store: ImageStore, row: int, view: str) -> None:
    key = f"{CASES[row]}.{view}"
    rows = torch.tensor([row])
    if view == "eval":
        crops = centre_crops(golden_store.height[rows], golden_store.width[rows], 224)
        assert [int(crops.top), int(crops.left)] == GOLDEN[f"{key}.top_left"].tolist()
    else:
        top, left, flip = torch.tensor(GOLDEN[f"{key}.top_left_flip"])[:, None]
        crops = CropParams(top, left, flip.bool())
    images = golden_store.crop(rows, crops)
    assert sha256(images[0].permute(1, 2, 0)) == str(GOLDEN[f"{key}.uint8_sha256"])

    x = normalise(images, MEAN, STD, torch.float32)[0].numpy()
    assert np.abs(x[:, ::16, ::16] - GOLDEN[f"{key}.normalised_grid16"]).max() < 1e-6
    np.testing.assert_allclose(
        x.astype(np.float64).sum((1, 2)), GOLDEN[f"{key}.normalised_sum_f64"], rtol=5e-5
    )
    if view != "eval":
        assert np.abs(x[:, :8, -8:] - GOLDEN[f"{key}.normalised_corner8"]).max() < 1e-6
        square = (x.astype(np.float64) ** 2).sum((1, 2))
        np.testing.assert_allclose(square, GOLDEN[f"{key}.normalised_sqsum_f64"], rtol=5e-5)


def test_crops_equal_pil_on_ragged_images(tmp_path: Path) -> None:
    shapes = [(40, 40), (33, 90), (100, 35), (20, 21), (64, 32), (32, 128)]
    store = ImageStore.decode(write_noise(tmp_path, shapes), 28, progress=False)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(len(store), (60,), generator=generator)
    crops = draw_crops(store.height[rows], store.width[rows], 28, generator)
    images = store.crop(rows, crops)
    assert (images.shape, images.dtype) == ((60, 3, 28, 28), torch.uint8)
    for i, row in enumerate(rows.tolist()):
        place = int(crops.top[i]), int(crops.left[i]), bool(crops.flip[i])
        expected = pil_crop(store.image(row), *place, 28)
        assert np.array_equal(images[i].permute(1, 2, 0).numpy(), expected), (row, place)


def test_extreme_corners_stay_inside_their_image(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(33, 60), (60, 33), (32, 32)]), 28, progress=False)
    rows = torch.arange(3)
    crops = CropParams(store.height - 28, store.width - 28, torch.tensor([True, False, True]))
    images = store.crop(rows, crops)
    for i in range(3):
        place = int(crops.top[i]), int(crops.left[i]), bool(crops.flip[i])
        assert np.array_equal(images[i].permute(1, 2, 0).numpy(), pil_crop(store.image(i), *place, 28))


def test_broken_files_become_problems(tmp_path: Path) -> None:
    paths = odd_files(tmp_path)
    store = ImageStore.decode(paths, 28, progress=False)
    assert len(store) == len(paths) == 7
    assert [bool(p) for p in store.problem] == [False, *[True] * 5, False]
    assert not torch.stack([store.height, store.width])[:, 1:-1].any()
    alone = ImageStore.decode([paths[-1]], 28, progress=False).image(0)
    assert torch.equal(store.image(6), alone), "images after a broken one keep their place"
    with pytest.raises(InputError, match="image 2"):
        store.crop(
            torch.tensor([0, 2]), CropParams(*torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2).bool())
        )


def test_all_broken_and_none_at_all() -> None:
    for paths in (["/nowhere/a.png", "/nowhere/b.png"], []):
        store = ImageStore.decode(paths, 28, progress=False)
        assert len(store) == len(paths)
        assert store.nbytes == 0
        assert all(store.problem)


def test_nonsense_settings_are_refused() -> None:
    with pytest.raises(InputError, match="crop size"):
        ImageStore.decode([], 0)
    with pytest.raises(InputError, match="workers"):
        ImageStore.decode([], 28, workers=0)


def test_the_buffer_holds_the_images_and_nothing_else(tmp_path: Path) -> None:
    # Small images first, then large ones: the guess of the final size is too small and must grow.
    paths = write_noise(tmp_path, [(32, 32)] * 10 + [(32, 128)] * 10)
    store = ImageStore.decode(paths, 28, progress=False)
    assert store.nbytes == store.pixels.numel() == int((store.height * store.width * 3).sum())
    assert torch.equal(store.image(19), torch.from_numpy(np.array(Image.open(paths[19]))))
    assert torch.equal(store.image(0), torch.from_numpy(np.array(Image.open(paths[0]))))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_same_crops(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(40, 60), (60, 40)]), 28, progress=False)
    rows = torch.tensor([0, 1, 1, 0])
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(0))
    expected, on_gpu = store.crop(rows, crops), store.to("cuda")
    assert torch.equal(on_gpu.crop(rows, crops).cpu(), expected)
    assert torch.equal(on_gpu.crop(rows.cuda(), crops.to("cuda")).cpu(), expected)
    assert on_gpu.height.device.type == "cpu"


def gather(store: ImageStore, rows: torch.Tensor, crops: CropParams) -> torch.Tensor:
    """What `crop` does on a GPU, here: one gather for the batch."""
    pixels = store.pixels.view(-1, 3)
    step = torch.arange(store.size)
    cut = []
    for row, top, left, flip in zip(rows, crops.top, crops.left, crops.flip, strict=True):
        column = left + (step.flip(0) if flip else step)
        line = store.offset[row] // 3 + (top + step) * store.width[row]
        cut.append(pixels[line[:, None] + column[None, :]])
    return torch.stack(cut).permute(0, 3, 1, 2)


@pytest.mark.parametrize("size", [1, 7, 28, 37])
@pytest.mark.parametrize("level", ["host", "disk"])
def test_cut_is_the_gather(tmp_path: Path, size: int, level: str) -> None:
    shapes = [(40, 40), (33, 90), (100, 35), (20, 21)]
    spill = SpillConfig(0 if level == "disk" else 10**9, tmp_path)
    store = ImageStore.decode(write_noise(tmp_path, shapes), size, progress=False, spill=spill)
    assert store.level == level
    for n in (1, 2, 33):
        rows = torch.randint(len(store), (n,), generator=torch.Generator().manual_seed(n))
        crops = draw_crops(store.height[rows], store.width[rows], size, torch.Generator().manual_seed(n))
        expected = gather(store, rows, crops)
        for found in (store.cut(rows, crops), store.crop(rows, crops)):
            assert torch.equal(found, expected)
            assert found.permute(0, 2, 3, 1).is_contiguous()
    nothing = torch.zeros(0, dtype=torch.int64)
    assert store.cut(nothing, CropParams(nothing, nothing, nothing.bool())).shape == (0, 3, size, size)


def test_cut_refuses_what_crop_refuses(tmp_path: Path) -> None:
    store = ImageStore.decode(odd_files(tmp_path), 28, progress=False)
    outside = CropParams(torch.tensor([0, 9]), torch.tensor([0, 0]), torch.zeros(2).bool())
    for cut in (store.cut, store.crop):
        with pytest.raises(InputError, match="does not fit image 0"):
            cut(torch.tensor([0, 0]), outside)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cut_into_page_locked_memory(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(40, 60), (60, 40)]), 28, progress=False)
    rows = torch.tensor([0, 1, 1, 0])
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(0))
    pinned = store.cut(rows, crops, pin=True)
    assert pinned.is_pinned()
    assert torch.equal(pinned, store.crop(rows, crops))
    assert torch.equal(store.to("cuda").cut(rows, crops), pinned)


def test_the_digest_tells_stores_apart(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 64), (64, 32), (32, 32)])

    def digest(paths: list[str], size: int = 28) -> str:
        return ImageStore.decode(paths, size, progress=False).digest()

    assert digest(paths) == digest(paths)
    others = [
        digest(paths[::-1]),
        digest(paths[:2]),
        digest(paths, 14),
        digest([]),
        digest([*paths, "missing"]),
    ]
    assert len({digest(paths), *others}) == 6
    store = ImageStore.decode(paths, 28, progress=False)
    turned = dataclasses.replace(store, height=store.width, width=store.height)
    assert turned.digest() != store.digest(), "the same bytes in other sides"
    changed = dataclasses.replace(store, pixels=store.pixels.clone())
    changed.pixels[-1] ^= 1
    assert changed.digest() != store.digest()


def test_the_digest_covers_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holotype.data.image_store.HASHED_AT_ONCE", 1000)
    store = ImageStore.decode(write_noise(tmp_path, [(32, 40)]), 28, progress=False)
    digests = set()
    for at in range(0, store.nbytes, 500):
        changed = dataclasses.replace(store, pixels=store.pixels.clone())
        changed.pixels[at] ^= 1
        digests.add(changed.digest())
    assert len(digests | {store.digest()}) == len(range(0, store.nbytes, 500)) + 1


def test_levels(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 40)])
    store = ImageStore.decode(paths, 28, progress=False)
    mapped = ImageStore.decode(paths, 28, progress=False, spill=SpillConfig(0, tmp_path))
    assert (store.level, mapped.level, store.to("meta").level) == ("host", "disk", "device")
    assert (mapped.to("cpu").level, mapped.to("meta").mapped) == ("disk", False)
