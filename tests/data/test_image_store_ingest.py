"""Every image at its side, whatever it is; the threads change nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.data import image_store
from holotype.data.decode import OpenImage
from holotype.data.image_store import ImageStore

from .noise import write_noise


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


def test_a_fault_of_ours_in_one_image_is_its_problem_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise AssertionError("no")

    monkeypatch.setattr(image_store, "open_image", fail)
    (found,) = image_store.decode_in_order(["a.png"], 28, 1, progress=False)
    assert found.problem == "a.png could not be prepared (AssertionError: no)."


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


def test_silent_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=True)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
