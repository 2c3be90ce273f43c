"""How fast are images read? Threads, 1 to all processors, and photographs of 12 million pixels.

    python benchmarks/decode.py --out experiments/results/decode.jsonl#2-cores

Made photographs of 500 pixels are read as training reads them. Beside images a second stand the processor's seconds an
image, by the user and in the kernel, and page faults: where the first grow with the number of threads, they wait for
one another; where the second do, for the memory map of the process. `alone` is what one thread needs for each part.
Then photographs of 12 million pixels: whole and smaller, once and twice, as discover did and does.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from holotype.data.decode import open_image
from holotype.data.decode_stream import DRAFT, decode_in_order, decode_one
from holotype.data.image_store import CROP_FRACTION, ImageStore
from holotype.utils.device import cpu_count
from measure import command, facts, make_photographs, one_sentence, script_parser, write_record

LARGE, SIDES = 12, (4000, 3000)
"""Different photographs of these sides, each of which is read several times."""


def used() -> np.ndarray:
    """Seconds by the clock, seconds of the processor by the user and in the kernel, page faults; of children too."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sums = [sum(getattr(each, name) for each in both) for name in ("ru_utime", "ru_stime", "ru_minflt")]
    return np.array([time.perf_counter(), *sums])


def cost(call: Callable[[], Any], images: int) -> dict[str, float]:
    before = used()
    call()
    seconds, user, kernel, faults = (used() - before).tolist()
    return {
        "images_per_second": round(images / seconds, 1),
        "user_ms": round(1e3 * user / images, 3),
        "kernel_ms": round(1e3 * kernel / images, 3),
        "page_faults": round(faults / images),
    }


def alone(paths: Sequence[str], short: int) -> dict[str, float]:
    """Milliseconds an image of one thread: opening, decoding, resizing, and what the consumer does."""
    seconds, buffer = np.zeros(4), bytearray()
    for path in paths:
        at = [time.perf_counter()]
        with open_image(path) as image:
            at.append(time.perf_counter())
            image.load()
            at.append(time.perf_counter())
            width, height = image.size
            scale = short / min(width, height)
            resized = image.rgb().resize((int(width * scale), int(height * scale)), Image.Resampling.BICUBIC)
            at.append(time.perf_counter())
        buffer += np.ascontiguousarray(np.asarray(resized)).data
        at.append(time.perf_counter())
        seconds += np.diff(at)
    names = ("open", "decode", "resize", "copy")
    return dict(zip(names, (1e3 * seconds / len(paths)).round(3).tolist(), strict=True))


def counts() -> list[int]:
    return sorted({n for n in (1, 2, 4, 8, 16, 32) if n < cpu_count()} | {cpu_count()})


def scaling(paths: Sequence[str], size: int) -> Iterator[dict[str, Any]]:
    """Reading into a store, as runs do, and without one."""
    short = int(size / CROP_FRACTION)
    for count in counts():
        list(decode_in_order(paths[: 4 * count], short, count, False))  # files warm

        def stream(count: int = count) -> None:
            for _ in decode_in_order(paths, short, count, False):
                pass

        yield {"kind": "threads", "count": count} | cost(stream, len(paths))
    yield {"kind": "store", "count": cpu_count()} | cost(
        lambda: ImageStore.decode(paths, size, progress=False), len(paths)
    )


def large_photographs(folder: Path, made: Sequence[str]) -> list[str]:
    """Made photographs, enlarged, with grain: files of about 4 MB."""
    rng, paths = np.random.default_rng(0), []
    for number in range(LARGE):
        with Image.open(made[number % len(made)]) as image:
            pixels = np.asarray(image.resize(SIDES, Image.Resampling.BICUBIC), np.int16)
        grain = rng.integers(-12, 13, (SIDES[1], SIDES[0], 1), dtype=np.int16)
        paths.append(str(folder / f"large-{number}.jpg"))
        Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def photographs(paths: Sequence[str], n: int, size: int) -> dict[str, Any]:
    """Seconds of reading n of them, and how much the pixels of smaller decoding differ."""
    every, short = [paths[i % len(paths)] for i in range(n)], int(size / CROP_FRACTION)

    def read(draft: int) -> float:
        start = time.perf_counter()
        for _ in decode_in_order(every, short, None, False, draft=draft):
            pass
        return round(time.perf_counter() - start, 2)

    pairs = [[decode_one(path, short, draft).pixels.astype(int) for draft in (0, DRAFT)] for path in paths]
    differences = [np.abs(whole - drafted) for whole, drafted in pairs]
    whole, drafted = read(0), read(DRAFT)
    return {
        "images": n,
        "sides": list(SIDES),
        "megabytes": round(float(np.mean([os.path.getsize(path) for path in paths])) / 1e6, 1),
        "whole_twice": 2 * whole,
        "smaller_once": drafted,
        "mean_difference": round(float(np.mean([each.mean() for each in differences])), 3),
        "largest_difference": int(max(each.max() for each in differences)),
    }


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else list(words)
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/decode.json"), help="file for the figures")
    parser.add_argument("--n-images", type=int, default=4000, help="photographs of 500 pixels")
    parser.add_argument("--n-large", type=int, default=300, help="photographs of 12 million pixels; 0 = none")
    parser.add_argument("--image-size", type=int, default=224, help="side of the network's input")
    given = parser.parse_args(words)
    record = {**facts(torch.device("cpu")), "command": command("benchmarks/decode.py", words)}
    with tempfile.TemporaryDirectory(prefix="holotype-decode-", ignore_cleanup_errors=True) as scratch:
        made = make_photographs(Path(scratch) / "photographs", given.n_images, threads=cpu_count())
        record |= {"photographs": made.description, "cores": cpu_count(), "image_size": given.image_size}
        record["alone_ms"] = alone(made.paths[:200], int(given.image_size / CROP_FRACTION))
        print("alone, ms an image:", record["alone_ms"], flush=True)
        record["scaling"] = []
        for row in scaling(made.paths, given.image_size):
            record["scaling"].append(row)
            print("  ", row, flush=True)
        if given.n_large:
            large = large_photographs(Path(scratch), made.paths)
            record["large"] = photographs(large, given.n_large, given.image_size)
            print("large:", record["large"], flush=True)
    write_record(given.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
