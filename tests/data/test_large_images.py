"""Small files of many pixels: what they take in memory, alone and together."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.decode import MAX_BYTES, MAX_PIXELS, decoding_bytes
from holotype.data.image_store import MemoryBudget, decode_in_order

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
