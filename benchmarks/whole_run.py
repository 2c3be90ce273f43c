"""What a run costs, from the start of Python to the table, and its parts; now and as the version before computed.

    python benchmarks/whole_run.py --out experiments/results/whole_run.jsonl#h200
    python benchmarks/whole_run.py --only start,photographs

One command measures, in this order and within --minutes:

steps        cached steps with one and with two trained blocks, eager and compiled (the first compiling starts with
             nothing kept)
reading      photographs of 500 pixels in 1 thread to one a processor, with the processor's time and page faults of an
             image: where the first grows with the threads, they wait for one another; `alone`: the parts of one thread
whole        RPC as `holotype train` does it, now and as before
embed        `holotype embed` against the rate of the trunk
together     eight seeds at once
between      what lies between before and now, added one after the other
reference    a step in the style of released code
start        from the command to the first step, on the embedded sample, with the token cache of an earlier run
photographs  reading photographs of 12 million pixels, whole and smaller
forecast     what `holotype discover` says before it begins, and what it then takes

Photographs and weights are made. The file is written after every row, and printed at the end as one line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from holotype.config.schema import DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.decode import DRAFT, decode_in_order, decode_one, open_image
from holotype.data.image_store import CROP_FRACTION, ImageStore
from holotype.discovery.dry_run import estimate_seconds
from holotype.discovery.pipeline import discover_table
from holotype.discovery.training_plan import default_trainings
from holotype.models.backbone import load_backbone
from holotype.models.weights_io import TEST_BACKBONES
from holotype.training import step as step_module
from holotype.training.encoder import Encoder
from holotype.utils.device import cpu_count, pick_device
from measure import (
    EFFORTS,
    EMBEDDED_SIZE,
    Plan,
    World,
    choose_parts,
    command,
    facts,
    make_photographs,
    one_sentence,
    script_parser,
    time_call,
    write_record,
)
from parts import Bench, free, measure_loop, measure_together
from parts import reference as reference_style

METHODS, RUNS = ("simgcd", "rpc"), 8
NEVER, ALWAYS = dict.fromkeys((1, 2), 10**9), dict.fromkeys((1, 2), 0)
CHILD = """
import sys
from holotype.training import step
step.WORTH_COMPILING = dict.fromkeys((1, 2), {least})
from holotype.training import build_token_cache
build_token_cache.WORTH_COMPILING = {trunk}
from holotype.cli import main
sys.exit(main(sys.argv[1:]))
"""
KINDS = {
    "before": {"least": 10**9, "trunk": 400_000},
    "trunk compiled": {"least": 10**9, "trunk": 0},
    "all compiled": {"least": 0, "trunk": 0},
}
"""What a whole run does otherwise than the version before: each adds to the one above it."""
ENDS = ("before", "all compiled")
"""The first and the last of them, which are measured first."""
IMPORTS = """
from holotype.models.zoo import import_timm
import_timm()
import holotype.cli.train, pandas, pyarrow.parquet, torch._dynamo
"""
"""Most of what a run imports: Python compiles it once, as pip does when it installs a package."""
FIRST_STEP = """
import os, sys, time
from holotype.training import step
def first(self, drawn):
    busy = os.times()
    print(f"FIRST {time.time() - float(os.environ['STARTED']):.3f} {busy.user + busy.system:.3f}", flush=True)
    os._exit(0)
step.Step.__call__ = first
from holotype.cli import main
sys.exit(main(sys.argv[1:]))
"""
SAMPLE = ("train", "simgcd", "fashion-sample", "--no-progress", "--device=cpu")
STARTS = 5
LARGE, SIDES = 12, (4000, 3000)
"""Different photographs of these sides, each of which is read several times."""


EFFORT_NAMES = ("quick", "normal")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    images: int
    views: str
    epochs: int
    plan: Plan
    decoded: int
    """Images that one thread reads."""
    large: int = 300
    """Photographs of 12 million pixels."""


SIZES = {
    "cuda": Sizes(5994, "16+8", 200, Plan(20, 5, 50), 250),
    "cpu": Sizes(256, "2+1", 2, Plan(2, 2, 2), 64, large=48),
}


@contextmanager
def compiling(least: dict[int, int]) -> Iterator[None]:
    before = step_module.WORTH_COMPILING
    step_module.WORTH_COMPILING = least
    try:
        yield
    finally:
        step_module.WORTH_COMPILING = before


def steps(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Cached steps on a part of the images: a step costs the same whatever their number."""
    world, n = bench.world, min(len(bench.world.paths), 1024)
    for blocks in (1, 2):
        part = Bench(replace(world, paths=world.paths[:n], blocks=blocks), "4+2", bench.scratch)
        for name in METHODS if blocks == 1 else METHODS[1:]:
            for kind, least in (("eager", NEVER), ("compiled", ALWAYS)):
                with compiling(least):
                    row = measure_loop(part, name, sizes.plan, part.store(), part.cache())
                yield {"blocks": blocks, "kind": kind, **row}
        part.drop()


def reading(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Into a store, as runs do, and without one."""
    size = bench.world.image_size
    paths, short = bench.world.paths[: sizes.decoded * max(cpu_count() // 2, 1)], int(size / CROP_FRACTION)
    yield {"kind": "alone"} | alone(paths[:200], short)
    for count in sorted({n for n in (1, 2, 4, 8, 16, 32) if n < cpu_count()} | {cpu_count()}):
        read(paths[: 4 * count], short, count)  # files warm
        yield {"kind": "threads", "count": count} | cost(partial(read, paths, short, count), len(paths))
    decode = partial(ImageStore.decode, paths, size, progress=False)
    yield {"kind": "store", "count": cpu_count()} | cost(decode, len(paths))


def read(paths: Sequence[str], short: int, threads: int | None = None, draft: int = 0) -> None:
    """Decode images and forget them."""
    for _ in decode_in_order(paths, short, threads, False, draft=draft):
        pass


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


def collection(bench: Bench, folder: Path) -> list[str]:
    """A list of the photographs and a file of weights, as flags of a run on them."""
    table, weights = bench.world.table(), folder / "weights.safetensors"
    rows = zip(table.path, table.label, strict=True)
    (folder / "list.csv").write_text("path,label\n" + "".join(f"{path},{label}\n" for path, label in rows))
    flags = [f"--k={bench.world.k}", f"--device={bench.world.device.type}", "--no-progress"]
    if bench.world.arch == "embedded":
        return [str(folder / "list.csv"), *flags]
    arch = TEST_BACKBONES[bench.world.arch].arch if bench.world.arch in TEST_BACKBONES else bench.world.arch
    model, about = bench.world.model(), {"timm": arch, "image_size": str(bench.world.image_size)}
    about |= {"mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225", "license": "none"}
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, weights, about)
    return [str(folder / "list.csv"), *flags, f"--backbone.name={weights}"]


def run_once(kind: str, words: Sequence[str], scratch: Path) -> float:
    """Seconds of a process that does a command."""
    start = time.perf_counter()
    run_child(CHILD.format(**KINDS[kind]), words, scratch)
    return time.perf_counter() - start


def run_child(
    program: str, words: Sequence[str], scratch: Path, more: Mapping[str, str] | None = None
) -> str:
    """What a program prints in a process of its own, whose caches lie in `scratch`."""
    environment = os.environ | {"XDG_CACHE_HOME": str(scratch / "cache")} | dict(more or {})
    command = [sys.executable, "-c", program, *words]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{' '.join(words[:2])}: {made.stderr[-2000:]}")
    return made.stdout


def whole(bench: Bench, sizes: Sizes, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """RPC from the start of Python to its scores."""
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="whole-") as made:
        flags, epochs = collection(bench, Path(made)), f"--train.epochs={sizes.epochs}"
        run_child(IMPORTS, (), Path(made))
        for kind in kinds:
            out = Path(made) / kind.replace(" ", "-")
            words = [
                "train",
                "rpc",
                *flags,
                epochs,
                f"--train.batch_size={bench.world.batch}",
                f"--cache-views={sizes.views}",
                f"--out={out}",
                "--seed=0",
            ]
            seconds = run_once(kind, words, Path(made))
            told = json.loads((out / "scores.json").read_text())["made"]
            inside = ("decode_seconds", "cache_seconds", "seconds", "wall_seconds")
            yield {"kind": kind, "process_seconds": round(seconds, 1)} | {name: told[name] for name in inside}


def embed(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """`holotype embed`, against the trunk alone on images that lie on the device, and reading alone."""
    world, short = bench.world, int(bench.world.image_size / CROP_FRACTION)
    for compiled in (False, True) if world.device.type == "cuda" else (False,):
        encoder = Encoder(bench.backbone(), world.compute(), compiled=compiled)
        images = torch.randint(
            0, 256, (encoder.chunk, 3, world.image_size, world.image_size), dtype=torch.uint8
        )
        images = images.to(world.device)
        rate = encoder.chunk / time_call(
            lambda e=encoder, x=images: e.embed(e.inputs(x)), world.device, repeats=5
        )
        yield {
            "kind": f"network alone, {'compiled' if compiled else 'eager'}",
            "images_per_second": round(rate, 1),
        }
        del encoder
        free()
    yield {"kind": "reading alone"} | cost(partial(read, world.paths, short), len(world.paths))
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="embed-") as made:
        flags = [flag for flag in collection(bench, Path(made)) if not flag.startswith("--k=")]
        flags = [flag.replace("--backbone.name", "--backbone") for flag in flags]
        for kind in ("before", "trunk compiled"):
            out = Path(made) / kind
            seconds = run_once(kind, ["embed", *flags, f"--out={out}"], Path(made))
            yield {
                "kind": f"holotype embed, {kind}",
                "images_per_second": round(len(world.paths) / seconds, 1),
                "process_seconds": round(seconds, 1),
            }


def together(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """A step of each of eight seeds of RPC, eager and compiled."""
    part = Bench(replace(bench.world, paths=bench.world.paths[:1024]), "4+2", bench.scratch)
    for kind, least in (("eager", NEVER), ("compiled", ALWAYS)):
        with compiling(least):
            yield {"kind": kind, **measure_together(part, "rpc", sizes.plan, RUNS)}
    part.drop()


def reference(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """A step in the style of released code."""
    kind = "cuda quick" if bench.world.device.type == "cuda" else "cpu quick"
    yield from reference_style(bench, EFFORTS[kind])


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


def photographs(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Seconds of reading large ones, and how much the pixels of smaller decoding differ."""
    short = int(bench.world.image_size / CROP_FRACTION)
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="large-") as folder:
        paths = large_photographs(Path(folder), bench.world.paths)
        every = [paths[i % len(paths)] for i in range(sizes.large)]
        megabytes = round(float(np.mean([os.path.getsize(path) for path in paths])) / 1e6, 1)
        for kind, draft in (("whole", 0), ("smaller", DRAFT)):
            found = cost(partial(read, every, short, draft=draft), len(every))
            yield {"kind": kind, "images": len(every), "sides": list(SIDES), "megabytes": megabytes} | found
        pairs = [
            [decode_one(path, short, draft).pixels.astype(int) for draft in (0, DRAFT)] for path in paths
        ]
    differences = [np.abs(whole - drafted) for whole, drafted in pairs]
    mean, largest = np.mean([each.mean() for each in differences]), max(each.max() for each in differences)
    yield {"kind": "difference", "mean": round(float(mean), 3), "largest": int(largest)}


def first_step(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Seconds from the command to the first step, by the clock and of the processor; the first fills the cache."""
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="start-") as folder:
        for number in range(1 + STARTS):
            words = [*SAMPLE, f"--out={folder}/{number}"]
            told = run_child(FIRST_STEP, words, Path(folder), {"STARTED": str(time.time())})
            elapsed, busy = (float(word) for word in told.partition("FIRST")[2].split())
            yield {"kind": "warm" if number else "cold", "seconds": elapsed, "processor_seconds": busy}


def forecast(bench: Bench, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Seconds of embedding and training as they were forecast and as they were, and how many times as many."""
    table = load_benchmark("fashion-sample").train
    label = np.where(np.arange(len(table)) % 4 == 0, table.label, "")
    known = tuple(sorted({*label} - {""})[:5])
    table = replace(
        table, label=np.where(np.isin(label, known), label, "").astype(object), known=known, truth=None
    )
    for effort in EFFORT_NAMES:
        config = DiscoverConfig(backbone="embedded", device=bench.world.device.type, k="10", effort=effort)
        wanted = sum(
            estimate_seconds(
                table, config, load_backbone(config.network), default_trainings(config, len(table))
            )
        )
        with (
            tempfile.TemporaryDirectory(dir=bench.scratch, prefix="forecast-") as folder,
            mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}),  # tokens of an earlier run do not count
        ):
            seconds = discover_table(table, config, Path(folder) / "run", progress=False).facts.seconds
        took = seconds["embedding"] + seconds["training"]
        yield {"effort": effort, "forecast": wanted, "seconds": took, "ratio": took / wanted}


Part = Callable[[Bench, Sizes], Iterator[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "steps": steps,
    "reading": reading,
    "whole": lambda bench, sizes: whole(bench, sizes, [kind for kind in ENDS if kind in KINDS]),
    "embed": embed,
    "together": together,
    "between": lambda bench, sizes: whole(bench, sizes, [kind for kind in KINDS if kind not in ENDS]),
    "reference": reference,
    "start": first_step,
    "photographs": photographs,
    "forecast": forecast,
}


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else list(words)
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("results/whole_run.json"), help="file for the figures")
    add("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    add("--minutes", type=float, default=6.0, help="no part and no row is begun after so many")
    add("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where to compute")
    add("--arch", help="as of speed.py (vit_small_patch14_224 on a GPU, embedded on a CPU)")
    add("--n-images", type=int, help="photographs (5,994 on a GPU, 256 on a CPU)")
    given = parser.parse_args(words)
    wanted = choose_parts(given.only, PARTS)
    start, device = time.monotonic(), torch.device(pick_device(given.device))
    cuda = device.type == "cuda"
    arch = given.arch or ("vit_small_patch14_224" if cuda else "embedded")
    size = EMBEDDED_SIZE if arch == "embedded" else 32 if arch == "test_vit" else 224
    sizes = SIZES["cuda" if cuda else "cpu"]
    n, batch, k = given.n_images or sizes.images, *((128, 200) if cuda else (16, 8))
    failed = []
    with tempfile.TemporaryDirectory(prefix="holotype-whole-", ignore_cleanup_errors=True) as scratch:
        # an empty cache for the compiler: the first compiling counts in full
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch) / "compiler")
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "triton")
        # where Python may not write bytecode, every process compiles each module that it imports: seconds
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(scratch) / "bytecode")
        made = make_photographs(Path(scratch) / "photographs", n, threads=cpu_count())
        world = World(made.paths, arch, size, batch, k, device)
        record = {**facts(device), "command": command("benchmarks/whole_run.py", words), "arch": arch}
        record |= {"photographs": made.description, "batch": batch, "k": k, "views": sizes.views, "parts": {}}
        bench = Bench(world, sizes.views, Path(scratch) / "bench")
        bench.scratch.mkdir()
        for name in wanted:
            rows = record["parts"].setdefault(name, [])
            try:
                for row in PARTS[name](bench, sizes) if time.monotonic() - start < 60 * given.minutes else ():
                    rows.append(row | {"at": round(time.monotonic() - start, 1)})
                    print(name, rows[-1], file=sys.stderr, flush=True)
                    write_record(given.out, record)
                    if time.monotonic() - start > 60 * given.minutes:
                        break
            except RuntimeError:
                # out of memory, a kernel that failed: the other parts are still worth having
                failed.append(name)
                traceback.print_exc()
            free()
            write_record(given.out, record)
    print(json.dumps(record))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
