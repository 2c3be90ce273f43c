"""The store goes where it fits, says where and why, never ends for lack of memory, and is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.data import image_store
from holotype.data.augment import draw_crops
from holotype.data.image_store import ImageStore, SpillConfig, place_pixels
from holotype.errors import InputError
from holotype.utils.memory import LEVELS, Budget, Level

from .noise import write_noise

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
        (CPU, "auto", Budget(0, PLENTY, PLENTY), "host", ", in host memory (room for 1.0 TB)"),
        (CPU, "device", Budget(0, PLENTY, PLENTY), "host", ", in host memory (room for 1.0 TB)"),
        (CPU, "host", Budget(0, PLENTY, PLENTY), "host", ", in host memory, as asked for"),
        (CPU, "disk", Budget(0, PLENTY, PLENTY), "disk", ", in a memory-mapped file in {}, as asked for"),
        (
            CPU,
            "auto",
            Budget(0, 1000, PLENTY),
            "disk",
            ", in a memory-mapped file in {}: SIZE do not fit the 1.0 kB of host memory that may be used",
        ),
        (META, "auto", Budget(PLENTY, PLENTY, PLENTY), "device", ", in GPU memory (room for 1.0 TB)"),
        (META, "device", Budget(PLENTY, 0, 0), "device", ", in GPU memory, as asked for"),
        (META, "host", Budget(PLENTY, PLENTY, PLENTY), "host", ", in host memory, as asked for"),
        (
            META,
            "device",
            Budget(1000, PLENTY, PLENTY),
            "host",
            ", in host memory: SIZE do not fit the 1.0 kB of GPU memory that may be used",
        ),
        (
            META,
            "auto",
            Budget(1000, 2000, PLENTY),
            "disk",
            ", in a memory-mapped file in {}: SIZE do not fit the 1.0 kB of GPU memory that may be used; "
            "SIZE do not fit the 2.0 kB of host memory that may be used",
        ),
    ],
)
def test_the_first_level_with_room(
    store: ImageStore,
    tmp_path: Path,
    device: torch.device,
    choice: image_store.PlacementChoice,
    budget: Budget,
    level: Level,
    says: str,
) -> None:
    placed, line = place_pixels(store, device, choice, budget, tmp_path)
    assert placed.level == level
    assert placed.device.type == (device.type if level == "device" else "cpu")
    size = f"{store.nbytes / 1000:.1f} kB"
    assert line == f"31 images, {size}{says.replace('SIZE', size).format(tmp_path)}"
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_without_room_for_real(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget that promises more than the GPU has: what torch raises is understood."""
    huge = 1 << 50
    monkeypatch.setattr(ImageStore, "to", lambda self, device: torch.empty(huge, device=device))
    placed, line = place_pixels(
        store, torch.device("cuda"), "device", Budget(PLENTY, PLENTY, PLENTY), tmp_path
    )
    assert placed.level == "host"
    assert "ran out" in line
