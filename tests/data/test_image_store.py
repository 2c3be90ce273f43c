"""The store holds what PIL would give: golden numbers, bit-equal crops, odd files, wherever the pixels lie."""

import dataclasses
import hashlib
import shutil
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
from holotype.data.decode import MemoryBudget, OpenImage
from holotype.data.image_store import (
    ImageStore,
    PixelBuffer,
    Scratch,
    SpillConfig,
    place_pixels,
)
from holotype.errors import InputError
from holotype.utils.memory import LEVELS, Budget

from .noise import odd_files, write_noise

GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "transform_subset.npz", allow_pickle=False)
CASES = ("grad_50x69", "check_71x50", "noise_32x32", "check_290x270_down")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def decode(paths: list[str], size: int = 28, **how) -> ImageStore:
    return ImageStore.decode(paths, size, progress=False, **how)


def sha256(hwc: torch.Tensor) -> str:
    return hashlib.sha256(hwc.contiguous().numpy().tobytes()).hexdigest()


@pytest.fixture(scope="module")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    folder = tmp_path_factory.mktemp("golden")
    paths = [str(folder / f"{case}.png") for case in CASES]
    for case, path in zip(CASES, paths, strict=True):
        Image.fromarray(GOLDEN[f"{case}.image"]).save(path)
    return decode(paths, 224)


@pytest.mark.parametrize("view", ["view0", "view1", "view2", "view3", "eval"])
@pytest.mark.parametrize("row", range(len(CASES)), ids=CASES)
def test_resized_pixels_and_views_are_golden(golden_store: ImageStore, row: int, view: str) -> None:
    case, stored, rows = CASES[row], golden_store.image(row), torch.tensor([row])
    assert list(stored.shape[:2]) == GOLDEN[f"{case}.resized_hw"].tolist()
    assert sha256(stored) == str(GOLDEN[f"{case}.resized_sha256"])
    assert stored.long().sum((0, 1)).tolist() == GOLDEN[f"{case}.resized_channel_sum"].tolist()
    key = f"{case}.{view}"
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
    total = x.astype(np.float64).sum((1, 2))
    np.testing.assert_allclose(total, GOLDEN[f"{key}.normalised_sum_f64"], rtol=5e-5)
    if view != "eval":
        assert np.abs(x[:, :8, -8:] - GOLDEN[f"{key}.normalised_corner8"]).max() < 1e-6
        square = (x.astype(np.float64) ** 2).sum((1, 2))
        np.testing.assert_allclose(square, GOLDEN[f"{key}.normalised_sqsum_f64"], rtol=5e-5)


def pil_crop(stored: torch.Tensor, top: int, left: int, flip: bool, size: int) -> np.ndarray:
    image = Image.fromarray(stored.numpy()).crop((left, top, left + size, top + size))
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


@pytest.mark.parametrize("size", [1, 7, 28, 37])
@pytest.mark.parametrize("level", ["host", "disk"])
def test_crops_equal_pil_on_ragged_images(tmp_path: Path, size: int, level: str) -> None:
    shapes = [(40, 40), (33, 90), (100, 35), (20, 21), (64, 42), (42, 128)]
    spill = SpillConfig(0 if level == "disk" else 10**9, tmp_path)
    store = decode(write_noise(tmp_path, shapes), size, spill=spill)
    assert store.level == level
    generator = torch.Generator().manual_seed(3)
    for n in (1, 2, 40):
        rows = torch.randint(len(store), (n,), generator=generator)
        crops = draw_crops(store.height[rows], store.width[rows], size, generator)
        if n == 40:  # the extreme corners stay inside their image
            crops.top[:6], crops.left[:6] = store.height[rows[:6]] - size, store.width[rows[:6]] - size
        for images in (store.cut(rows, crops), store.crop(rows, crops)):
            assert (images.shape, images.dtype) == ((n, 3, size, size), torch.uint8)
            assert images.permute(0, 2, 3, 1).is_contiguous()
            for i, row in enumerate(rows.tolist()):
                place = int(crops.top[i]), int(crops.left[i]), bool(crops.flip[i])
                expected = pil_crop(store.image(row), *place, size)
                assert np.array_equal(images[i].permute(1, 2, 0).numpy(), expected), (row, place)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert store.cut(nothing, CropParams(nothing, nothing, nothing.bool())).shape == (0, 3, size, size)


def test_broken_files_become_problems(tmp_path: Path) -> None:
    paths = odd_files(tmp_path)
    store = decode(paths)
    assert [bool(p) for p in store.problem] == [False, *[True] * 5, False]
    assert not torch.stack([store.height, store.width])[:, 1:-1].any()
    assert torch.equal(store.image(6), decode([paths[-1]]).image(0))  # it keeps its place after broken ones
    zeros = torch.zeros(2, dtype=torch.int64)
    for rows, top, wrong in (([0, 2], [0, 0], 2), ([0, 0], [0, 9], 0)):
        for cut in (store.cut, store.crop):
            with pytest.raises(InputError, match=f"does not fit image {wrong}"):
                cut(torch.tensor(rows), CropParams(torch.tensor(top), zeros, zeros.bool()))
    for none in (["/nowhere/a.png", "/nowhere/b.png"], []):
        for spill in (None, SpillConfig(0, tmp_path)):
            store = decode(none, spill=spill)
            assert (len(store), store.nbytes, all(store.problem)) == (len(none), 0, True)
    with pytest.raises(InputError, match="crop size"):
        decode([], 0)


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
    b = shutil.copy(good, str(tmp_path / "b.png"))
    store = decode([good, b, str(tmp_path / "c.gif")])
    assert store.problem.tolist() == ["", f"{b} takes more memory than there is; shrink it first.", ""]
    assert store.note.tolist() == ["", "", "first of 2 frames used"]


@pytest.mark.parametrize(("height", "width"), [(10, 60), (60, 10), (1, 3000), (1, 1), (33, 200), (20, 80)])
def test_extreme_sides_are_cut_to_the_middle(tmp_path: Path, height: int, width: int) -> None:
    (path,) = write_noise(tmp_path, [(height, width)])
    store = decode([path])
    stored, long = store.image(0), max(height, width) > 4 * min(height, width)
    assert (store.problem[0], "4 times the shorter side" in store.note[0]) == ("", long)
    if long:
        assert sorted(stored.shape[:2]) == [32, 128]
    # Within one grey level of resizing the whole and cutting the middle out of it.
    scale = min(height, width)
    whole = Image.open(path).resize((32 * width // scale, 32 * height // scale), Image.Resampling.BICUBIC)
    top, left = (whole.height - stored.shape[0]) // 2, (whole.width - stored.shape[1]) // 2
    middle = np.asarray(whole)[top : top + stored.shape[0], left : left + stored.shape[1]]
    assert np.abs(middle.astype(int) - stored.numpy().astype(int)).max() <= int(long)


def test_worker_count_changes_nothing_and_the_buffer_holds_the_images_alone(tmp_path: Path) -> None:
    sizes = np.random.default_rng(5).integers(20, 120, (25, 2)).tolist()
    paths = write_noise(tmp_path, [(h, w) for h, w in sizes])
    paths.insert(7, str(tmp_path / "missing.png"))
    one, *others = (decode(paths, workers=w) for w in (1, 2, 7, None))
    assert one.nbytes == one.pixels.numel() == int((one.height * one.width * 3).sum())
    for other in others:
        assert torch.equal(one.pixels, other.pixels)
        assert torch.equal(one.offset, other.offset)
        assert one.problem.tolist() == other.problem.tolist()


def test_the_digest_tells_stores_apart(tmp_path: Path, monkeypatch) -> None:
    paths = write_noise(tmp_path, [(32, 64), (64, 32), (32, 32)])
    store = decode(paths)
    lists = (paths[::-1], paths[:2], [], [*paths, "missing"])
    others = [*map(decode, lists), decode(paths, 14)]
    others.append(dataclasses.replace(store, height=store.width, width=store.height))  # the same bytes
    assert store.digest() == decode(paths).digest()
    assert len({one.digest() for one in (store, *others)}) == 7
    monkeypatch.setattr("holotype.data.image_store.HASHED_AT_ONCE", 1000)
    digests = {store.digest()}
    for at in range(0, store.nbytes, 500):
        changed = dataclasses.replace(store, pixels=store.pixels.clone())
        changed.pixels[at] ^= 1
        digests.add(changed.digest())
    assert len(digests) == len(range(0, store.nbytes, 500)) + 1


CPU, META = torch.device("cpu"), torch.device("meta")
"""The meta device stands in for a GPU: it takes tensors and holds no pixels."""
PLENTY = 10**12
ROOMY = Budget(PLENTY, PLENTY, PLENTY)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    sizes = np.random.default_rng(1).integers(20, 90, (30, 2)).tolist()
    paths = write_noise(tmp_path_factory.mktemp("noise"), [(h, w) for h, w in sizes])
    return decode([*paths, "missing.png"])


@pytest.mark.parametrize(
    ("device", "choice", "budget", "level", "says"),
    [
        (CPU, "auto", ROOMY, "host", "room for 1.0 TB"),
        (CPU, "device", ROOMY, "host", "room for 1.0 TB"),
        (CPU, "host", ROOMY, "host", "as asked for"),
        (CPU, "disk", ROOMY, "disk", "as asked for"),
        (CPU, "auto", Budget(0, 1000, PLENTY), "disk", "1.0 kB of host memory"),
        (META, "auto", ROOMY, "device", "room for 1.0 TB"),
        (META, "device", Budget(PLENTY, 0, 0), "device", "as asked for"),
        (META, "host", ROOMY, "host", "as asked for"),
        (META, "device", Budget(1000, PLENTY, PLENTY), "host", "1.0 kB of GPU memory"),
        (META, "auto", Budget(1000, 2000, PLENTY), "disk", "2.0 kB of host memory"),
    ],
)
def test_the_first_level_with_room(store, tmp_path, device, choice, budget, level, says) -> None:
    placed, line = place_pixels(store, device, choice, budget, tmp_path)
    assert placed.level == level
    assert placed.device.type == (device.type if level == "device" else "cpu")
    assert line.startswith(f"31 images, {store.nbytes / 1000:.1f} kB, in ")
    assert says in line
    assert (str(tmp_path) in line) == (level == "disk")
    assert list(tmp_path.iterdir()) == []
    if level != "device":
        assert torch.equal(placed.pixels, store.pixels)
    with pytest.raises(InputError, match=r"may take 1\.0 kB; raise --memory\.disk-gb"):
        place_pixels(store, META, "auto", Budget(0, 0, 1000), tmp_path)
    with pytest.raises(InputError, match="--store gpu is unknown"):
        place_pixels(store, META, "gpu", ROOMY, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.0 GB)"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
    ],
)
def test_a_device_that_runs_out_is_no_crash(store, tmp_path: Path, monkeypatch, error: Exception) -> None:
    def refuse(*_: object) -> None:
        raise error

    on_disk, _ = place_pixels(store, CPU, "disk", ROOMY, tmp_path)
    monkeypatch.setattr(ImageStore, "to", refuse)
    if "illegal" in str(error):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            place_pixels(store, META, "auto", ROOMY, tmp_path)
        return
    placed, line = place_pixels(store, META, "device", ROOMY, tmp_path)
    assert placed.level == "host"
    assert line.endswith("in host memory: GPU memory ran out while they were copied")
    error = MemoryError()
    monkeypatch.setattr(image_store, "_to_host", refuse)
    placed, line = place_pixels(on_disk, META, "auto", ROOMY, tmp_path)
    assert placed.level == "disk"
    assert line.endswith("; host memory ran out while they were copied")
    assert torch.equal(placed.pixels, store.pixels)


def test_every_level_gives_the_same_crops_and_digest(store: ImageStore, tmp_path: Path) -> None:
    rows = torch.randint(30, (50,), generator=torch.Generator().manual_seed(0))
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(1))
    for device in [CPU, *([torch.device("cuda")] if torch.cuda.is_available() else [])]:
        current = store
        for level in ("host", "disk", "host", *LEVELS, "disk", "device"):  # every way up and down
            current, _ = place_pixels(current, device, level, ROOMY, tmp_path)
            assert current.problem[-1]
            assert torch.equal(current.pixels.cpu(), store.pixels)
            assert torch.equal(current.crop(rows, crops).cpu(), store.crop(rows, crops))
            assert torch.equal(current.cut(rows, crops), store.crop(rows, crops))
            assert current.digest() == store.digest()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 1.0, 2.0, 10.0, None])
def test_the_file_holds_what_memory_would(tmp_path: Path, share: float | None) -> None:
    rng = np.random.default_rng(0)
    sides = rng.integers(0, 20, (60, 2)).tolist()
    images = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sides]
    total, folder = sum(image.size for image in images), tmp_path / "scratch"
    spill = None if share is None else SpillConfig(int(share * total), folder)
    buffer = PixelBuffer(len(images), spill)
    starts = [buffer.add(image) for image in images]
    pixels, mapped = buffer.finish()
    assert np.array_equal(pixels.numpy(), np.concatenate([image.reshape(-1) for image in images]))
    assert starts == np.cumsum([0, *(image.size for image in images[:-1])]).tolist()
    assert mapped == folder.exists() or not list(folder.iterdir())
    assert (share is not None and share < 1) <= mapped <= (share is not None and share < 2)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_memory_stays_bounded_while_decoding(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 128)] * 20) * 20
    total = len(paths) * 32 * 128 * 3

    def peak(spill: SpillConfig | None) -> tuple[int, ImageStore]:
        tracemalloc.start()
        try:
            store = decode(paths, workers=1, spill=spill)
            return tracemalloc.get_traced_memory()[1], store
        finally:
            tracemalloc.stop()

    free, in_memory = peak(None)
    bounded, on_disk = peak(SpillConfig(total // 10, tmp_path / "scratch"))
    assert free > total
    assert bounded < total // 4
    assert (in_memory.level, on_disk.level) == ("host", "disk")
    assert torch.equal(in_memory.pixels, on_disk.pixels)


def test_a_file_has_its_limit_and_a_full_disk_and_a_forbidden_folder_are_said(tmp_path: Path) -> None:
    paths, each = write_noise(tmp_path, [(32, 32)] * 4), 32 * 32 * 3
    decode(paths, spill=SpillConfig(0, tmp_path / "scratch", disk_bytes=4 * each))
    with pytest.raises(InputError, match=r"at least 12\.3 kB.* 9\.2 kB; raise --memory\.disk-gb"):
        decode(paths, spill=SpillConfig(0, tmp_path / "scratch", disk_bytes=3 * each))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot be written to .*--memory\.cache-dir"):
        Scratch(SpillConfig(0, tmp_path / "file" / "below"))
    scratch, content = Scratch(SpillConfig(0, tmp_path)), np.arange(250, dtype=np.uint8)
    real = scratch.file

    class Odd:
        """A disk that takes a part at a time, and then no more."""

        taken = 0

        def write(self, part: memoryview) -> int:
            self.taken += 1
            if self.taken > 40:
                raise OSError(28, "No space left on device")
            return real.write(part[:7])

    scratch.file = Odd()  # type: ignore[assignment]
    scratch.write(content)
    with pytest.raises(InputError, match="No space left on device"):
        scratch.write(content)
    scratch.file, scratch.used = real, len(content)
    assert np.array_equal(scratch.map().numpy(), content)


def test_room_is_shared_and_one_always_gets_in() -> None:
    room, inside, most, order = MemoryBudget(100), [0], [0], []
    lock = threading.Lock()

    def work(nbytes: int) -> None:
        with room.reserve(nbytes):
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
    assert (most[0] <= 100, inside) == (True, [0])
