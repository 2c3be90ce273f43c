"""The store holds what PIL would give: golden numbers, bit-equal crops, odd files, saving."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from holotype.data import store as store_module
from holotype.data.store import ImageStore
from holotype.data.views import Crops, centre_crops, draw_crops, normalise
from holotype.errors import InputError

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "parity" / "transform_subset.npz", allow_pickle=False)
CASES = ("grad_50x69", "check_71x50", "noise_32x32", "check_290x270_down")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sha256(hwc: torch.Tensor) -> str:
    return hashlib.sha256(hwc.contiguous().numpy().tobytes()).hexdigest()


def write_noise(folder: Path, shapes: list[tuple[int, int]], seed: int = 0) -> list[str]:
    """PNG files of random pixels, shapes (height, width)."""
    rng = np.random.default_rng(seed)
    paths = []
    for i, (height, width) in enumerate(shapes):
        path = folder / f"{seed}_{i:03d}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        paths.append(str(path))
    return paths


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
        crops = Crops(top, left, flip.bool())
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
    crops = Crops(store.height - 28, store.width - 28, torch.tensor([True, False, True]))
    images = store.crop(rows, crops)
    for i in range(3):
        place = int(crops.top[i]), int(crops.left[i]), bool(crops.flip[i])
        assert np.array_equal(images[i].permute(1, 2, 0).numpy(), pil_crop(store.image(i), *place, 28))


def odd_files(folder: Path) -> list[str]:
    """A good image, then files that cannot be used, then a good one."""
    good = write_noise(folder, [(40, 50), (50, 40)])
    empty, text, cut, folder_itself = (folder / n for n in ("empty.jpg", "text.png", "cut.png", "folder.png"))
    empty.write_bytes(b"")
    text.write_text("not an image")
    cut.write_bytes(Path(good[0]).read_bytes()[:60])
    folder_itself.mkdir()
    odd = [str(x) for x in (empty, text, cut, folder_itself, folder / "missing.png")]
    return [good[0], *odd, good[1]]


def test_broken_files_become_problems(tmp_path: Path) -> None:
    paths = odd_files(tmp_path)
    store = ImageStore.decode(paths, 28, progress=False)
    assert len(store) == len(paths) == 7
    assert [bool(p) for p in store.problem] == [False, *[True] * 5, False]
    assert not torch.stack([store.height, store.width])[:, 1:-1].any()
    alone = ImageStore.decode([paths[-1]], 28, progress=False).image(0)
    assert torch.equal(store.image(6), alone), "images after a broken one keep their place"
    with pytest.raises(InputError, match="image 2"):
        store.crop(torch.tensor([0, 2]), Crops(*torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2).bool()))


def test_any_failure_of_one_image_is_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> tuple[Image.Image, str]:
        if path == "b":
            raise MemoryError("too large")
        if path == "d":
            return Image.new("RGB", (0, 5)), ""
        return Image.new("RGB", (40, 40)), "first frame used" if path == "c" else ""

    monkeypatch.setattr(store_module, "read_image", read)
    store = ImageStore.decode(["a", "b", "c", "d"], 28, progress=False)
    assert store.problem.tolist() == [
        "",
        "b could not be prepared (MemoryError: too large).",
        "",
        "d has no pixels.",
    ]
    assert store.note.tolist() == ["", "", "first frame used", ""]


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


def test_the_buffer_holds_the_images_and_nothing_else(tmp_path: Path) -> None:
    # Small images first, then large ones: the guess of the final size is too small and must grow.
    paths = write_noise(tmp_path, [(32, 32)] * 10 + [(32, 128)] * 10)
    store = ImageStore.decode(paths, 28, progress=False)
    assert store.nbytes == store.pixels.numel() == int((store.height * store.width * 3).sum())
    assert torch.equal(store.image(19), torch.from_numpy(np.array(Image.open(paths[19]))))
    assert torch.equal(store.image(0), torch.from_numpy(np.array(Image.open(paths[0]))))


def test_silent_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=True)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    paths = [*odd_files(tmp_path), *write_noise(tmp_path, [(10, 90)], seed=1)]
    store = ImageStore.decode(paths, 28, progress=False)
    file = tmp_path / "images.safetensors"
    file.write_text("an older file")
    store.save(file)
    assert [x.name for x in tmp_path.iterdir() if x.name.startswith("images")] == [file.name]
    loaded = ImageStore.load(file)
    assert loaded.size == 28
    assert loaded.problem.tolist() == store.problem.tolist()
    assert loaded.note.tolist() == store.note.tolist()
    for name in ("pixels", "offset", "height", "width"):
        assert torch.equal(getattr(loaded, name), getattr(store, name))
    rows = torch.tensor([0, 6, 7, 0])
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(0))
    assert torch.equal(loaded.crop(rows, crops), store.crop(rows, crops))
    loaded.save(file)  # over the file it is mapped from
    assert torch.equal(ImageStore.load(file).pixels, store.pixels)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=False)
    file = tmp_path / "images.safetensors"
    store.save(file)
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match="disk full"):
        store.save(file)
    assert file.read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image store"):
        ImageStore.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is not a tensor file")
    with pytest.raises(InputError, match="cannot be read"):
        ImageStore.load(tmp_path / "text.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="not an image store"):
        ImageStore.load(tmp_path / "model.safetensors")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mapped files")
def test_loaded_pixels_stay_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mapped.safetensors"
    ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=False).save(file)
    loaded = ImageStore.load(file)
    at = loaded.pixels.data_ptr()
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(file) in line]
    ranges = [[int(x, 16) for x in line[0].split("-")] for line in mapped]
    assert any(start <= at < end for start, end in ranges)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_same_crops(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(40, 60), (60, 40)]), 28, progress=False)
    rows = torch.tensor([0, 1, 1, 0])
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(0))
    expected, on_gpu = store.crop(rows, crops), store.to("cuda")
    assert torch.equal(on_gpu.crop(rows, crops).cpu(), expected)
    assert torch.equal(on_gpu.crop(rows.cuda(), crops.to("cuda")).cpu(), expected)
    assert on_gpu.height.device.type == "cpu"
