"""The store holds what PIL would give: golden numbers, bit-equal crops, odd files."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.data import image_store
from holotype.data.augment import CropParams, centre_crops, draw_crops, normalise
from holotype.data.decode import MAX_BYTES, MAX_PIXELS, MemoryBudget, OpenImage, decoding_bytes
from holotype.data.image_store import (
    SPILL_MARGIN,
    ImageStore,
    PixelBuffer,
    Scratch,
    SpillConfig,
    decode_in_order,
    place_pixels,
)
from holotype.errors import InputError
from holotype.utils.memory import LEVELS, Budget, Level

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


@pytest.mark.parametrize(("size", "short"), [(224, 256), (128, 146), (28, 32)])
def test_shorter_side_and_floor_of_the_longer(tmp_path: Path, size: int, short: int) -> None:
    shapes = [(50, 69), (71, 50), (short, 2 * short), (40, 40)]
    store = ImageStore.decode(write_noise(tmp_path, shapes), size, progress=False)
    expected = [(short, short * 69 // 50), (short * 71 // 50, short), (short, 2 * short), (short, short)]
    assert list(zip(store.height.tolist(), store.width.tolist(), strict=True)) == expected


def test_an_image_of_the_right_size_is_not_touched(tmp_path: Path) -> None:
    (path,) = write_noise(tmp_path, [(32, 47)])
    store = ImageStore.decode([path], 28, progress=False)
    assert np.array_equal(store.image(0).numpy(), np.asarray(Image.open(path)))


def test_any_failure_of_one_image_is_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, *_ = write_noise(tmp_path, [(40, 40)])
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("red", "green")]
    frames[0].save(tmp_path / "c.gif", save_all=True, append_images=frames[1:])
    real = OpenImage.load

    def load(self: OpenImage) -> None:
        if self._path.endswith("b.png"):
            raise MemoryError("too large")
        real(self)

    monkeypatch.setattr(OpenImage, "load", load)
    b, c = tmp_path / "b.png", tmp_path / "c.gif"
    shutil.copy(good, b)
    store = ImageStore.decode([good, str(b), str(c)], 28, progress=False)
    assert store.problem.tolist() == ["", f"{b} takes more memory than there is; shrink it first.", ""]
    assert store.note.tolist() == ["", "", "first of 2 frames used"]


@pytest.mark.parametrize(("height", "width"), [(10, 60), (60, 10), (1, 3000), (1, 1), (33, 200)])
def test_extreme_sides_are_cut_to_the_middle(tmp_path: Path, height: int, width: int) -> None:
    (path,) = write_noise(tmp_path, [(height, width)])
    store = ImageStore.decode([path], 28, progress=False)
    stored = store.image(0)
    assert store.problem[0] == ""
    long = max(height, width) > 4 * min(height, width)
    assert bool(store.note[0]) == long
    if long:
        assert "4 times the shorter side" in store.note[0]
        assert sorted(stored.shape[:2]) == [32, 128]
    # Within one grey level of resizing the whole and cutting the middle out of it.
    scale = min(height, width)
    whole = Image.open(path).resize((32 * width // scale, 32 * height // scale), Image.Resampling.BICUBIC)
    top, left = (whole.height - stored.shape[0]) // 2, (whole.width - stored.shape[1]) // 2
    middle = np.asarray(whole)[top : top + stored.shape[0], left : left + stored.shape[1]]
    assert np.abs(middle.astype(int) - stored.numpy().astype(int)).max() <= int(long)


def test_exactly_four_times_is_not_cut(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(20, 80)]), 28, progress=False)
    assert (int(store.height[0]), int(store.width[0]), store.note[0]) == (32, 128, "")


def test_worker_count_changes_nothing(tmp_path: Path) -> None:
    sizes = np.random.default_rng(5).integers(20, 120, (25, 2)).tolist()
    paths = write_noise(tmp_path, [(h, w) for h, w in sizes])
    paths.insert(7, str(tmp_path / "missing.png"))
    one, *others = (ImageStore.decode(paths, 28, workers=w, progress=False) for w in (1, 2, 7, None))
    for other in others:
        assert torch.equal(one.pixels, other.pixels)
        assert torch.equal(one.offset, other.offset)
        assert one.problem.tolist() == other.problem.tolist()


CPU, META = torch.device("cpu"), torch.device("meta")
"""The meta device stands in for a GPU: it takes tensors and holds no pixels."""
PLENTY = 10**12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    sizes = np.random.default_rng(1).integers(20, 90, (30, 2)).tolist()
    paths = write_noise(tmp_path_factory.mktemp("noise"), [(h, w) for h, w in sizes])
    return ImageStore.decode([*paths, "missing.png"], 28, progress=False)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices named in the list have no memory left."""
    full: list[str] = []
    to = ImageStore.to

    def refuse(self: ImageStore, device: torch.device) -> ImageStore:
        if "device" in full:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if "other device" in full:
            raise RuntimeError("MPS backend out of memory (MPS allocated: 9.0 GB)")
        if "broken device" in full:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return to(self, device)

    def no_host(pixels: torch.Tensor) -> torch.Tensor:
        if "host" in full:
            raise MemoryError
        return pixels.clone()

    monkeypatch.setattr(ImageStore, "to", refuse)
    monkeypatch.setattr(image_store, "_to_host", no_host)
    return full


@pytest.mark.parametrize(
    ("device", "choice", "budget", "level", "says"),
    [
        (CPU, "auto", Budget(0, PLENTY, PLENTY), "host", "room for 1.0 TB"),
        (CPU, "device", Budget(0, PLENTY, PLENTY), "host", "room for 1.0 TB"),
        (CPU, "host", Budget(0, PLENTY, PLENTY), "host", "as asked for"),
        (CPU, "disk", Budget(0, PLENTY, PLENTY), "disk", "as asked for"),
        (CPU, "auto", Budget(0, 1000, PLENTY), "disk", "1.0 kB of host memory"),
        (META, "auto", Budget(PLENTY, PLENTY, PLENTY), "device", "room for 1.0 TB"),
        (META, "device", Budget(PLENTY, 0, 0), "device", "as asked for"),
        (META, "host", Budget(PLENTY, PLENTY, PLENTY), "host", "as asked for"),
        (META, "device", Budget(1000, PLENTY, PLENTY), "host", "1.0 kB of GPU memory"),
        (META, "auto", Budget(1000, 2000, PLENTY), "disk", "2.0 kB of host memory"),
    ],
)
def test_the_first_level_with_room(
    store: ImageStore, tmp_path: Path, device: torch.device, choice, budget: Budget, level: Level, says: str
) -> None:
    placed, line = place_pixels(store, device, choice, budget, tmp_path)
    assert placed.level == level
    assert placed.device.type == (device.type if level == "device" else "cpu")
    assert line.startswith(f"31 images, {store.nbytes / 1000:.1f} kB, in ")
    assert says in line
    assert (str(tmp_path) in line) == (level == "disk")
    assert list(tmp_path.iterdir()) == []
    if level != "device":
        assert torch.equal(placed.pixels, store.pixels)


def test_a_disk_too_small_is_an_error(store: ImageStore, tmp_path: Path) -> None:
    for choice in ("auto", "disk"):
        with pytest.raises(
            InputError, match=r"neither memory nor the 1\.0 kB for files in .*--memory\.disk_gb"
        ):
            place_pixels(store, META, choice, Budget(0, 0, 1000), tmp_path)  # type: ignore[arg-type]


def test_an_unknown_choice_is_refused(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--store gpu is unknown"):
        place_pixels(store, CPU, "gpu", Budget(0, PLENTY, PLENTY), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("lack", ["device", "other device"])
def test_a_device_that_runs_out_is_no_crash(
    store: ImageStore, tmp_path: Path, no_memory: list[str], lack: str
) -> None:
    no_memory.append(lack)
    placed, line = place_pixels(store, META, "device", Budget(PLENTY, PLENTY, PLENTY), tmp_path)
    assert placed.level == "host"
    assert line.endswith("in host memory: GPU memory ran out while they were copied")


def test_host_memory_that_runs_out_is_no_crash(
    store: ImageStore, tmp_path: Path, no_memory: list[str]
) -> None:
    on_disk, _ = place_pixels(store, CPU, "disk", Budget(0, 0, PLENTY), tmp_path)
    no_memory += ["device", "host"]
    placed, line = place_pixels(on_disk, META, "auto", Budget(PLENTY, PLENTY, PLENTY), tmp_path)
    assert placed.level == "disk"
    assert line.endswith(
        "GPU memory ran out while they were copied; host memory ran out while they were copied"
    )
    assert torch.equal(placed.pixels, store.pixels)


def test_other_faults_of_a_device_are_not_hidden(
    store: ImageStore, tmp_path: Path, no_memory: list[str]
) -> None:
    no_memory.append("broken device")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        place_pixels(store, META, "auto", Budget(PLENTY, PLENTY, PLENTY), tmp_path)


def test_every_level_gives_the_same_crops_and_digest(store: ImageStore, tmp_path: Path) -> None:
    budget = Budget(PLENTY, PLENTY, PLENTY)
    rows = torch.randint(30, (50,), generator=torch.Generator().manual_seed(0))
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(1))
    devices = [CPU, *([torch.device("cuda")] if torch.cuda.is_available() else [])]
    for device in devices:
        current = store
        for level in ("host", "disk", "host", *LEVELS, "disk", "device"):  # every way up and down
            current, _ = place_pixels(current, device, level, budget, tmp_path)
            assert current.problem[-1]
            assert torch.equal(current.pixels.cpu(), store.pixels)
            assert torch.equal(current.crop(rows, crops).cpu(), store.crop(rows, crops))
            assert torch.equal(current.cut(rows, crops), store.crop(rows, crops))
            assert current.digest() == store.digest()


def test_spilled_while_decoding_then_placed_where_it_fits(tmp_path: Path) -> None:
    """Host memory was short on the way; the GPU, or the host after all, has room at the end."""
    paths = write_noise(tmp_path, [(40, 50)] * 5)
    plain = ImageStore.decode(paths, 28, progress=False)
    spilled = ImageStore.decode(paths, 28, progress=False, spill=SpillConfig(100, tmp_path / "scratch"))
    assert spilled.level == "disk"
    assert place_pixels(spilled, META, "auto", Budget(PLENTY, 0, PLENTY), tmp_path)[0].level == "device"
    assert place_pixels(spilled, CPU, "auto", Budget(0, 100, PLENTY), tmp_path)[0] is spilled
    placed, _ = place_pixels(spilled, CPU, "auto", Budget(0, PLENTY, PLENTY), tmp_path)
    assert placed.level == "host"
    assert torch.equal(placed.pixels, plain.pixels)


LINUX = Path("/proc/self/maps").exists()


def filled(images: list[np.ndarray], spill: SpillConfig | None) -> tuple[torch.Tensor, bool, list[int]]:
    buffer = PixelBuffer(len(images), spill)
    starts = [buffer.add(image) for image in images]
    return *buffer.finish(), starts


@pytest.fixture
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sides = rng.integers(0, 20, (60, 2)).tolist()
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sides]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 1.0, 2.0])
def test_the_file_holds_what_memory_would(tmp_path: Path, images: list[np.ndarray], share: float) -> None:
    total = sum(image.size for image in images)
    expected = np.concatenate([image.reshape(-1) for image in images])
    pixels, mapped, starts = filled(images, SpillConfig(int(share * total), tmp_path))
    assert np.array_equal(pixels.numpy(), expected)
    assert starts == np.cumsum([0, *(image.size for image in images[:-1])]).tolist()
    assert mapped or share >= 1
    assert not mapped or share < 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_while_memory_lasts(tmp_path: Path, images: list[np.ndarray]) -> None:
    total = sum(image.size for image in images)
    folder = tmp_path / "never made"
    assert not filled(images, SpillConfig(10 * total, folder))[1]
    assert not filled(images, None)[1]
    assert not folder.exists()


def test_it_moves_as_soon_as_the_total_is_foreseen(tmp_path: Path) -> None:
    image = np.zeros((10, 10, 3), dtype=np.uint8)
    buffer = PixelBuffer(1000, SpillConfig(500 * image.size, tmp_path))
    for _ in range(SPILL_MARGIN - 1):
        buffer.add(image)
        assert buffer.scratch is None
    buffer.add(image)
    assert buffer.scratch is not None
    assert len(buffer.memory) == 0


def test_a_large_first_image_does_not_decide(tmp_path: Path) -> None:
    large, small = np.zeros((10, 40, 3), dtype=np.uint8), np.zeros((10, 10, 3), dtype=np.uint8)
    assert not filled([large, *[small] * 39], SpillConfig(50 * small.size, tmp_path))[1]


def test_memory_stays_bounded_while_decoding(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 128)] * 20) * 40
    total = len(paths) * 32 * 128 * 3
    scratch = tmp_path / "scratch"

    def peak(spill: SpillConfig | None) -> tuple[int, ImageStore]:
        tracemalloc.start()
        try:
            store = ImageStore.decode(paths, 28, workers=1, progress=False, spill=spill)
            return tracemalloc.get_traced_memory()[1], store
        finally:
            tracemalloc.stop()

    free, in_memory = peak(None)
    bounded, on_disk = peak(SpillConfig(total // 10, scratch))
    assert free > total
    assert bounded < total // 4
    assert (in_memory.level, on_disk.level) == ("host", "disk")
    assert torch.equal(in_memory.pixels, on_disk.pixels)


def test_no_images_at_all(tmp_path: Path) -> None:
    store = ImageStore.decode([], 28, progress=False, spill=SpillConfig(0, tmp_path))
    assert (len(store), store.nbytes) == (0, 0)


def test_a_file_has_its_limit(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 32)] * 4)
    each = 32 * 32 * 3
    folder = tmp_path / "scratch"
    ImageStore.decode(paths, 28, progress=False, spill=SpillConfig(0, folder, disk_bytes=4 * each))
    with pytest.raises(InputError, match=r"at least 12\.3 kB.* 9\.2 kB for files in .*--memory\.disk_gb"):
        ImageStore.decode(paths, 28, progress=False, spill=SpillConfig(0, folder, disk_bytes=3 * each))


def test_a_full_disk_and_a_forbidden_folder_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"No file can be made in .*--memory\.cache_dir"):
        Scratch(SpillConfig(0, tmp_path / "file" / "below"))
    scratch = Scratch(SpillConfig(0, tmp_path))

    class Full:
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    scratch.file = Full()  # type: ignore[assignment]
    with pytest.raises(InputError, match="No space left on device"):
        scratch.write(np.zeros(3, dtype=np.uint8))


def test_a_disk_that_takes_a_part_at_a_time(tmp_path: Path) -> None:
    scratch, content = Scratch(SpillConfig(0, tmp_path)), np.arange(250, dtype=np.uint8)
    real = scratch.file

    class Slow:
        def write(self, part: memoryview) -> int:
            return real.write(part[:7])

    scratch.file = Slow()  # type: ignore[assignment]
    scratch.write(content)
    scratch.file = real
    assert np.array_equal(scratch.map().numpy(), content)


@pytest.mark.skipif(not LINUX, reason="needs Linux's list of mapped files")
def test_the_file_goes_with_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"

    def held() -> bool:
        return str(folder) in Path("/proc/self/maps").read_text()

    paths = write_noise(tmp_path, [(32, 32)] * 3)
    store = ImageStore.decode(paths, 28, progress=False, spill=SpillConfig(0, folder))
    assert held()
    assert list(folder.iterdir()) == []
    view = store.image(1)
    del store
    gc.collect()
    assert held(), "a view keeps it"
    assert torch.equal(view, ImageStore.decode([paths[1]], 28, progress=False).image(0))
    del view
    gc.collect()
    assert not held()


KILLED = """
import sys, time
from pathlib import Path
from holotype.data import image_store as ingest
from holotype.data.image_store import ImageStore, SpillConfig

*paths, folder, moment = sys.argv[1:]
read = ingest.open_image

def wait():
    print("ready", flush=True)
    time.sleep(60)

def opened(path):
    if moment == "during" and path == paths[-1]:
        wait()
    return read(path)

ingest.open_image = opened
store = ImageStore.decode(paths, 28, workers=1, progress=False, spill=SpillConfig(0, Path(folder)))
wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("moment", ["during", "after"])
def test_a_killed_process_leaves_no_file(tmp_path: Path, moment: str) -> None:
    folder = tmp_path / "scratch"
    words = [sys.executable, "-c", KILLED, *write_noise(tmp_path, [(32, 32)] * 8), str(folder), moment]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


MEASURE = """
import resource, sys
from PIL import Image
from holotype.data.image_store import decode_in_order
Image.init()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
n = int(sys.argv[2])
problems = [image.problem for image in decode_in_order([sys.argv[1]] * n, 256, n, progress=False)]
assert problems == [""] * n, problems
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def save(mode: str, side: int, file: Path) -> Path:
    image = Image.new(mode, (side, side))
    if mode == "P":
        image.info["transparency"] = 0
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(
        file, exif=exif, compress_level=1, **{k: v for k, v in image.info.items() if k == "transparency"}
    )
    return file


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is counted in kB on Linux")
@pytest.mark.parametrize(("mode", "side", "n", "bytes_per_pixel"), [("RGBA", 5000, 3, 8), ("P", 12000, 2, 5)])
def test_several_images_of_many_pixels(
    mode: str, side: int, n: int, bytes_per_pixel: int, tmp_path: Path
) -> None:
    """As many threads as images; all are transparent and turned. There is room for one at a time."""
    file = save(mode, side, tmp_path / "large.png")
    assert file.stat().st_size < 1_000_000
    words = [sys.executable, "-c", MEASURE, str(file), str(n)]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert int(ran.stdout) < bytes_per_pixel * side**2 / 2**20 + 140


def test_the_largest_image_stays_below_a_gigabyte() -> None:
    assert 4 * MAX_PIXELS < MAX_BYTES <= 10**9


def test_costly_decoders_are_known(tmp_path: Path) -> None:
    """Bytes per pixel as measured; a progressive JPEG keeps all coefficients, WebP several pictures. What is not RGB
    or not upright is there twice."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    cases = {
        "a.jpg": ({}, 4),
        "b.jpg": ({"progressive": True}, 10),
        "a.png": ({}, 4),
        "a.webp": ({}, 16),
        "a.tif": ({"compression": "tiff_lzw", "strip_size": 10**6}, 9),
        "c.jpg": ({"exif": turned}, 8),
        "c.png": ({"exif": turned}, 8),
    }
    for name, (options, expected) in cases.items():
        image.save(tmp_path / name, **options)
        with Image.open(tmp_path / name) as file:
            assert decoding_bytes(file, file.size) == expected * 64 * 80, name
    image.convert("L").save(tmp_path / "l.png")
    with Image.open(tmp_path / "l.png") as file:
        assert decoding_bytes(file, file.size) == 5 * 64 * 80


def test_room_is_shared_and_one_always_gets_in() -> None:
    room, inside, most, order = MemoryBudget(100), [0], [0], []
    lock = threading.Lock()

    def work(nbytes: int) -> None:
        with room.taken(nbytes):
            with lock:
                inside[0] += min(nbytes, 100)
                most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            with lock:
                inside[0] -= min(nbytes, 100)
                order.append(nbytes)

    threads = [threading.Thread(target=work, args=(n,)) for n in (30, 60, 1000, 40, 20, 500, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(order) == [20, 30, 40, 60, 100, 500, 1000]
    assert most[0] <= 100
    assert inside == [0]


def test_room_is_given_back_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = MemoryBudget(64)
    monkeypatch.setattr("holotype.data.image_store.DECODE_BUDGET", room)
    image = Image.fromarray(np.zeros((40, 40, 3), np.uint8))
    image.save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:-40])
    paths = [str(tmp_path / name) for name in ("cut.png", "whole.png", "cut.png", "gone.png", "whole.png")]
    found = list(decode_in_order(paths, 32, 2, progress=False))
    assert [bool(image.problem) for image in found] == [True, False, True, True, False]
    assert room._free == 64
