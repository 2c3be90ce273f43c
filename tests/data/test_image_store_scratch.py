"""Images that memory does not hold go to a file while they are decoded, and nothing of it is left behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.data.image_store import SPILL_MARGIN, ImageStore, PixelBuffer, Scratch, SpillConfig
from holotype.errors import InputError

from .noise import write_noise

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
