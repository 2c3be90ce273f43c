"""How times and memory are taken, the same way for everything that is compared.

A GPU works behind the program's back, so that clocks are read only after waiting for it, and only between
blocks of steps: waiting after every step would itself cost what it measures.

And what every measurement starts from: JPEG files that cost about as much to read as photographs, a network, a method.
"""

from __future__ import annotations

import hashlib
import io
import resource
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from PIL import Image

from holotype.config.schema import IMAGENET_MEAN, IMAGENET_STD, BackboneConfig
from holotype.data.datasets.registry import SAMPLE
from holotype.data.decode import ImageProblem, read_image
from holotype.data.image_files import IMAGE_EXTENSIONS
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Method, Task, find_method
from holotype.models.backbone import Backbone, load_backbone
from holotype.models.tail import Model, split_backbone
from holotype.models.weights_io import TEST_BACKBONES
from holotype.models.zoo import patch_torchvision
from holotype.utils.device import Device

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))  # the harness is there

from harness import Record as Record
from harness import command as command
from harness import facts as facts
from harness import has_record as has_record
from harness import method as method
from harness import one_sentence as one_sentence
from harness import pipeline as pipeline
from harness import read_record as read_record
from harness import read_records as read_records
from harness import script_parser as script_parser
from harness import short as short
from harness import size as size
from harness import table as table
from harness import write_record as write_record

EPOCHS = 200
"""Epochs of the run that step times are extrapolated to; what the methods' papers train."""


def choose_parts(only: str, parts: Collection[str]) -> list[str]:
    """Those of a list with commas, in the order of all parts."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names if name not in parts]:
        raise InputError(f"There is no part {unknown[0]!r}; --only takes some of {','.join(parts)}.")
    return [name for name in parts if name in names]


@dataclass(frozen=True)
class Plan:
    """How many steps are run, and how many of them count."""

    warmup: int
    blocks: int
    size: int
    """Steps of a block; the clock is read between blocks."""

    @property
    def steps(self) -> int:
        """In all."""
        return self.warmup + self.blocks * self.size


@dataclass(frozen=True)
class Timing:
    """What a step costs."""

    ms: float
    """Median over the blocks, in milliseconds a step."""
    mean_ms: float
    """Mean over all steps: it holds the turns of epochs, which the median leaves out."""
    slowest_ms: float
    """The slowest block."""
    start_seconds: float
    """What the warm-up took beyond as many steady steps: compilation, capture, first reads."""
    steps: int
    """Steps that count."""

    def record(self, images: int, batch: int) -> dict[str, Any]:
        """The figures of a run over `images` images: 200 epochs of full batches, extrapolated."""
        steps = EPOCHS * (images // batch)
        return {
            **{key: round(value, 4) for key, value in asdict(self).items()},
            "images_per_second": round(1e3 * batch / self.ms, 1),
            "run_steps": steps,
            "extrapolated_seconds": round(self.start_seconds + steps * self.mean_ms / 1e3, 1),
        }


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_steps(step: Callable[[], object], plan: Plan, device: torch.device) -> Timing:
    """Run `step` through the plan."""
    wait(device)
    start = time.perf_counter()
    for _ in range(plan.warmup):
        step()
    wait(device)
    warm = time.perf_counter() - start
    blocks = []
    for _ in range(plan.blocks):
        start = time.perf_counter()
        for _ in range(plan.size):
            step()
        wait(device)
        blocks.append((time.perf_counter() - start) / plan.size)
    steady = median(blocks)
    return Timing(
        ms=1e3 * steady,
        mean_ms=1e3 * mean(blocks),
        slowest_ms=1e3 * max(blocks),
        start_seconds=max(warm - plan.warmup * steady, 0.0),
        steps=plan.blocks * plan.size,
    )


def combined(timings: Sequence[Timing], start_seconds: float = 0.0) -> Timing:
    """What time_steps would say of blocks that were timed one by one, between others."""
    return Timing(
        ms=median(timing.ms for timing in timings),
        mean_ms=mean(timing.mean_ms for timing in timings),
        slowest_ms=max(timing.slowest_ms for timing in timings),
        start_seconds=start_seconds,
        steps=sum(timing.steps for timing in timings),
    )


def time_call(call: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Median seconds of a call, each one waited for; twice unmeasured first."""
    seconds = []
    for _ in range(repeats + 2):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        seconds.append(time.perf_counter() - start)
    return median(seconds[2:])


class Peak:
    """The most memory in use between entering and leaving, of the GPU and of this process on the host."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.record: dict[str, int] = {}
        """`host_bytes`, and `device_bytes` on a GPU; filled on leaving."""

    def __enter__(self) -> Peak:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        # Linux forgets the peak of a process on request; elsewhere it is that of the whole life.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return self

    def __exit__(self, *_: object) -> None:
        self.record["host_bytes"] = _peak_resident()
        if self.device.type == "cuda":
            self.record["device_bytes"] = torch.cuda.max_memory_allocated(self.device)


def _peak_resident() -> int:
    """Bytes; worker processes of a loader are not in it."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@dataclass(frozen=True)
class Clusters:
    """What is clustered: made features, in classes of equal size."""

    images: int
    dim: int
    classes: int
    starts: int = 1
    """Of k-means; communities have none."""


CUB = Clusters(6000, 384, 200)
"""About CUB's images, as ViT-S sees them."""
IMAGENET_100 = Clusters(127_000, 768, 100, starts=100)
"""About ImageNet-100's images, as ViT-B sees them."""

SHORT = Plan(10, 5, 20)
"""Where many are measured."""


@dataclass(frozen=True)
class Effort:
    """How long each kind of step is measured, and how far growth is followed."""

    reference: Plan
    exact: Plan
    cached: Plan
    together: Plan
    repeats: int
    """Of the trunk and the matrix product."""
    runs: tuple[int, ...] = (1, 8)
    """Runs that train at once."""
    ks: tuple[int, ...] = (10, 100, 200, 1000)
    views: tuple[str, ...] = ("2+1", "4+2", "8+4", "16+8")
    grown: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    """Images of a growing collection."""
    exact_growth: bool = True
    """Whether growth with the batch is followed in exact mode too: every shape is compiled anew."""
    methods: Plan = SHORT
    """Of every method on tokens."""
    image_stages: Plan = SHORT
    """Of stages on images; where two kinds of step take turns, a turn is a block, and each kind has so many."""
    communities: Clusters = CUB
    kmeans: Clusters = IMAGENET_100


EFFORTS = {
    "cuda": Effort(Plan(16, 4, 8), Plan(12, 20, 10), Plan(20, 20, 50), Plan(10, 10, 25), 20),
    "cuda quick": Effort(
        Plan(8, 2, 8), Plan(5, 5, 10), Plan(10, 5, 50), Plan(5, 5, 10), 10, exact_growth=False
    ),
    "cpu": Effort(
        Plan(2, 4, 2),
        Plan(2, 4, 2),
        Plan(4, 10, 5),
        Plan(2, 4, 2),
        5,
        methods=Plan(4, 5, 4),
        image_stages=Plan(2, 3, 2),
        kmeans=replace(IMAGENET_100, starts=1),  # one takes most of a minute
    ),
    "cpu quick": Effort(
        Plan(1, 2, 1),
        Plan(1, 2, 1),
        Plan(2, 3, 2),
        Plan(1, 2, 1),
        2,
        exact_growth=False,
        methods=Plan(1, 2, 2),
        image_stages=Plan(1, 2, 1),
        communities=Clusters(600, 96, 20),
        kmeans=Clusters(1200, 96, 20, starts=4),
        grown=(1_000, 10_000, 100_000),
    ),
}
"""By device; any other device than these is measured like a CPU."""


LONGER, SHORTER = 500, 375
"""Sides of most of CUB's photographs; the shorter one varies by SPREAD here."""
SPREAD = 40
TARGET = 100_000
"""Bytes of a file, within about a tenth."""
QUALITY = 90
GRAIN = 1024
"""Side of the field of noise that every image takes its own piece of; drawing noise anew costs more than
writing the file."""


@dataclass(frozen=True)
class Photographs:
    """What was made."""

    paths: list[str]
    mean_bytes: float
    description: str


Source = Callable[[int], Image.Image]
"""The picture to enlarge for a number."""


def make_photographs(
    folder: Path, n: int, *, images: Path | None = None, threads: int = 8, longer: int = LONGER
) -> Photographs:
    """Write n JPEG files into `folder`, the same ones whenever the arguments are the same."""
    if n < 1:
        raise InputError(f"{n} images cannot be made; give --n-images a positive number.")
    folder.mkdir(parents=True, exist_ok=True)
    source, origin = _sample() if images is None else _folder(images)
    grain = np.random.default_rng(0).normal(0, 1, (GRAIN, GRAIN, 3)).astype(np.float32)
    target = TARGET * longer**2 / LONGER**2
    strength = _calibrate(source, grain, longer, target)
    paths = [folder / f"{number:06d}.jpg" for number in range(n)]

    def write(number: int) -> int:
        _photograph(source, grain, number, longer, strength).save(paths[number], quality=QUALITY)
        return paths[number].stat().st_size

    with ThreadPoolExecutor(threads) as pool:
        sizes = list(pool.map(write, range(n)))
    mean = sum(sizes) / n
    description = f"{n:,} JPEG files, {longer} pixels on the longer side, {mean / 1e3:.0f} kB each: {origin}"
    return Photographs([str(path) for path in paths], mean, f"{description}, enlarged, with grain")


def _sample() -> tuple[Source, str]:
    with np.load(SAMPLE, allow_pickle=False) as arrays:
        pixels = arrays["x"]
    pictures = [Image.fromarray(one).convert("RGB") for one in pixels]
    return lambda number: pictures[number % len(pictures)], "the embedded Fashion-MNIST images"


def _folder(images: Path) -> tuple[Source, str]:
    found = (
        sorted(p for p in images.rglob("*") if p.suffix.lower() in IMAGE_EXTENSIONS)
        if images.is_dir()
        else []
    )
    if not found:
        raise InputError(f"There are no images in {images}; give another folder with --images.")

    def read(number: int) -> Image.Image:
        path = found[number % len(found)]
        try:
            return read_image(str(path))[0]
        except ImageProblem as problem:
            raise InputError(f"{problem} Remove it from the folder given with --images.") from problem

    return read, f"images of the folder {images.name}"


def _photograph(source: Source, grain: np.ndarray, number: int, longer: int, strength: float) -> Image.Image:
    """Picture `number`: every third stands upright, the shorter side varies, the grain is its own piece."""
    rng = np.random.default_rng(number)
    spread = int(rng.integers(-SPREAD, SPREAD + 1)) * longer // LONGER
    shorter = max(SHORTER * longer // LONGER + spread, 1)
    size = (shorter, longer) if number % 3 == 0 else (longer, shorter)
    picture = np.asarray(source(number).resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
    top, left = rng.integers(0, GRAIN - longer, 2)
    piece = grain[top : top + size[1], left : left + size[0]]
    return Image.fromarray(np.clip(picture + strength * piece, 0, 255).astype(np.uint8))


def _calibrate(source: Source, grain: np.ndarray, longer: int, target: float) -> float:
    """The strength of the grain at which files take `target` bytes, by bisection over a few pictures."""

    def mean_bytes(strength: float) -> float:
        sizes = []
        for number in range(24):
            stream = io.BytesIO()
            _photograph(source, grain, number, longer, strength).save(stream, "jpeg", quality=QUALITY)
            sizes.append(stream.tell())
        return sum(sizes) / len(sizes)

    low, high = 0.0, 64.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_bytes(middle) < target else (low, middle)
    return high


EMBEDDED_ARCH, EMBEDDED_SIZE = "vit_tiny_patch16_224", 128


@dataclass(frozen=True)
class World:
    """The conditions under which everything is compared."""

    paths: list[str]
    arch: str
    """timm's name of a network or that of one made for the project, which gets random weights (they do not matter for
    speed), or "embedded"."""
    image_size: int
    batch: int
    k: int
    device: torch.device
    epochs: int = 200
    blocks: int = 1
    """That are trained."""

    def table(self, n: int | None = None, k: int | None = None) -> Table:
        """The first n photographs, half of k classes known, and a quarter of the images labelled, as in CUB."""
        n, k = n or len(self.paths), k or self.k
        known = tuple(f"class {c:04d}" for c in range(max(k // 2, 1)))
        label = ["" if i % 4 else known[i // 4 % len(known)] for i in range(n)]
        return Table(
            np.array(self.paths[:n], dtype=object), np.array(label, dtype=object), known, name="speed"
        )

    def method(
        self,
        name: str,
        dim: int,
        n: int | None = None,
        k: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Method:
        """With fresh heads."""
        table, (cls, config) = self.table(n, k), self.configured(name, settings or {})
        torch.manual_seed(0)
        task = Task(len(table.known), k or self.k, dim, len(table), int(table.labelled.sum()), self.epochs)
        return cls(config, task)

    def configured(self, name: str, settings: Mapping[str, Any]) -> tuple[type[Method], Any]:
        """A method, and its settings: the defaults but for those that are given."""
        cls = find_method(name)
        return cls, cls.Config(**settings)

    def model(self) -> Model:
        """The whole network as timm builds it, with random weights."""
        patch_torchvision()
        import timm

        arch = EMBEDDED_ARCH if self.arch == "embedded" else self.arch
        arch = TEST_BACKBONES[arch].arch if arch in TEST_BACKBONES else arch
        if not timm.is_model(arch):
            raise InputError(f"timm knows no network {arch}; give --arch another name.")
        torch.manual_seed(0)
        model = timm.create_model(arch, img_size=self.image_size, num_classes=0)
        for name, parameter in model.named_parameters():
            if name.endswith(".gamma"):  # timm starts it near 0, with which all images would look the same
                torch.nn.init.ones_(parameter)
        return model

    def backbone(self) -> Backbone:
        """The same network as trunk and tail."""
        if self.arch == "embedded" and self.image_size == EMBEDDED_SIZE:
            return load_backbone(BackboneConfig(train_blocks=self.blocks))
        model = self.model()
        dim = int(model.num_features)
        trunk, tail = split_backbone(model, self.blocks)
        digest = hashlib.sha256(f"random {self.arch} {self.image_size}".encode()).hexdigest()
        return Backbone(
            trunk, tail, dim, self.image_size, IMAGENET_MEAN, IMAGENET_STD, self.arch, digest, caveat=""
        )

    def compute(self) -> Device:
        """One process on this device: bf16 for the backbone on a GPU, fp32 on a CPU, as runs have it."""
        return Device.on(self.device.type)
