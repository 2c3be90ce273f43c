"""Registry of the GCD benchmarks: load one from its official layout, check a copy.

A layout (layouts.py) lists the images and their classes, splits/*.json names the known classes, and both together are
a Benchmark. gcd_split.py draws the labelled images.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.data.datasets.layouts import (
    ClassSplit,
    Listing,
    MissingFile,
    SplitListing,
    list_aircraft,
    list_cars,
    list_cifar10,
    list_cifar100,
    list_cifar100_200,
    list_cub,
    list_herbarium19,
    list_imagenet100,
)
from holotype.data.paths import is_address, is_pattern
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import suggest, suggest_path

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "sample" / "fashion_mnist_1000.npz"


@dataclass(frozen=True)
class Benchmark:
    """A data set with its classes parted. In its tables `label` is the true class of every image."""

    name: str
    train: Table
    test: Table | None
    """None where the test images are not there."""
    known: tuple[str, ...]
    """Known classes in the order of the training labels."""
    novel: tuple[str, ...]


@dataclass(frozen=True)
class DatasetInfo:
    """The packaged facts of a benchmark, splits/NAME.json."""

    title: str
    origin: str
    """Where the data come from."""
    classes: int
    train: int | None
    """Number of training images; None where no list fixes it."""
    test: int | None
    """Number of test images; 0 where the data set has none."""
    split: ClassSplit


@dataclass(frozen=True)
class CheckReport:
    """Which files of a benchmark a folder holds."""

    title: str
    """Name, title and folder."""
    found: tuple[str, ...]
    missing: tuple[str, ...]
    origin: str
    ok: bool
    """Whether the benchmark can be trained on; test images may still be missing."""

    def __str__(self) -> str:
        parts = {"found  ": self.found, "missing": self.missing, "source ": (self.origin,)}
        lines = [f"  {name}  {text}" for name, texts in parts.items() for text in texts]
        return "\n".join([f"{self.title}: {'ready' if self.ok else 'not ready'}", *lines])


def _list_sample(root: Path, split: ClassSplit) -> Listing:
    """The embedded sample; `root` does not matter."""
    with np.load(SAMPLE, allow_pickle=False) as arrays:
        classes = tuple(str(name) for name in arrays["classes"])
        label = [int(index) for index in arrays["y"]]
    images = SplitListing([f"{SAMPLE}#{i}" for i in range(len(label))], label)
    return Listing(SAMPLE.parent, classes, images, None)


EMBEDDED = ("fashion-sample",)
"""Data sets that come with the package."""
LAYOUTS: dict[str, Callable[[Path, ClassSplit], Listing]] = {
    "cub": list_cub,
    "scars": list_cars,
    "aircraft": list_aircraft,
    "cifar10": list_cifar10,
    "cifar100": list_cifar100,
    "imagenet100": list_imagenet100,
    "herbarium19": list_herbarium19,
    "cifar100-200": list_cifar100_200,
    "scars-8137": list_cars,
    "fashion-sample": _list_sample,
}
BENCHMARKS = tuple(LAYOUTS)
"""Names of all benchmarks."""


def read_dataset_info(name: str) -> DatasetInfo:
    """Return the packaged facts of a benchmark."""
    raw = json.loads((HERE / "splits" / f"{name}.json").read_text(encoding="utf-8"))
    fields = ("known", "novel", "folders", "names")
    split = ClassSplit(**{field: tuple(raw.get(field, ())) for field in fields})
    return DatasetInfo(raw["title"], raw["origin"], raw["classes"], raw["train"], raw["test"], split)


def load_benchmark(name: str, root: Path | str | None = None) -> Benchmark:
    """Load the benchmark whose files lie in `root` (the folder of its archive, or the one above)."""
    base, facts = _checked_root(name, root), read_dataset_info(name)
    listing = _listing(name, base, facts)
    test = listing.test
    if test is not None and test.path and len(test.absent()) >= len(test.path):
        test = None  # a copy for training only
    for part, images, expected in (("training", listing.train, facts.train), ("test", test, facts.test)):
        if images is not None and (absent := images.absent()):
            lost = f"{absent[0]} is missing, with {len(absent):,} of {len(images.path):,} {part} images"
            raise InputError(f"{name}: {lost}; the data come from {facts.origin}.")
        if images is not None and expected not in (None, len(images.path)):
            listed = f"{len(images.path):,} {part} images are listed in {listing.root}"
            raise InputError(f"{name}: {listed}, the data set has {expected:,}; get it from {facts.origin}.")
    return _benchmark(name, listing, test, facts.split)


def check_dataset(dataset: str) -> None:
    """Raise InputError unless a data set is the name of a benchmark, something on the disk or an address."""
    if dataset in BENCHMARKS or is_address(dataset) or is_pattern(dataset) or Path(dataset).exists():
        return
    near = suggest(dataset, BENCHMARKS) or suggest_path(dataset)
    known = f"a folder of images, a CSV or Parquet file, or one of {', '.join(BENCHMARKS)}"
    raise InputError(f"There is no data set, file or folder called {dataset!r}{near}; give {known}.")


def check_benchmark(name: str, root: Path | str | None = None) -> CheckReport:
    """Return which files of a benchmark exist, which are missing and where they come from."""
    base, facts = _checked_root(name, root), read_dataset_info(name)
    found: list[str] = []
    missing: list[str] = []
    try:
        listing = _listing(name, base, facts)
        found.append(f"{len(listing.classes):,} classes")
        for part, images in (("training", listing.train), ("test", listing.test)):
            if images is not None or facts.test != 0:
                _report_part(part, images, found, missing)
        load_benchmark(name, base)
        ok = True
    except InputError as error:
        missing.append(str(error))
        ok = False
    title = f"{name} ({facts.title}) in {base}"
    return CheckReport(title, tuple(found), tuple(missing), facts.origin, ok)


def _report_part(part: str, images: SplitListing | None, found: list[str], missing: list[str]) -> None:
    if images is None:
        missing.append(f"{part} images: no list of them; training works, scores on held-out images do not")
        return
    absent = images.absent()
    if len(absent) < len(images.path) or not absent:
        found.append(f"{len(images.path) - len(absent):,} of {len(images.path):,} {part} images")
    elif part == "test":
        missing.append(f"test images: all {len(absent):,}; training works, scores on held-out images do not")


def _checked_root(name: str, root: Path | str | None) -> Path:
    if name not in LAYOUTS:
        near = suggest(name, LAYOUTS)
        raise InputError(f"There is no benchmark called {name!r}{near}; there are {', '.join(LAYOUTS)}.")
    if name in EMBEDDED:
        return SAMPLE.parent
    if root is None or not Path(root).is_dir():
        problem = "is not part of the package" if root is None else f"needs a folder, and {root} is none"
        near = "" if root is None else suggest_path(root)
        raise InputError(f"The benchmark {name} {problem}{near}; give the folder that holds it with --root.")
    return Path(root).absolute()


def _listing(name: str, root: Path, facts: DatasetInfo) -> Listing:
    """Return the layout's listing, whose classes the split must part completely."""
    try:
        listing = LAYOUTS[name](root, facts.split)
    except MissingFile as missing:
        raise InputError(f"{name}: {missing} is missing; the data come from {facts.origin}.") from missing
    labels = {*listing.train.label, *(listing.test.label if listing.test else ())}
    if not labels <= set(range(len(listing.classes))):
        raise InputError(
            f"{name}: {listing.root} has a class outside the {len(listing.classes)}; get it again."
        )
    parted = sorted(facts.split.known + facts.split.novel)
    if parted != list(range(len(listing.classes))):
        classes = f"{len(listing.classes)} classes were found in {listing.root}, not {len(parted)}"
        raise InputError(f"{name}: {classes}; check that the data set is complete.")
    return listing


def _benchmark(name: str, listing: Listing, test: SplitListing | None, split: ClassSplit) -> Benchmark:
    known = tuple(listing.classes[i] for i in split.known)
    novel = tuple(listing.classes[i] for i in split.novel)

    def table(part: SplitListing, name: str) -> Table:
        label = np.array(listing.classes, dtype=object)[np.array(part.label, dtype=np.int64)]
        columns = {"path": part.path, "label": label}
        return Table.from_columns(columns, known=known + novel, name=name, root=str(listing.root))

    held_out = None if test is None else table(test, f"{name}-test")
    return Benchmark(name, table(listing.train, name), held_out, known, novel)
