"""Small copies of the official layouts, three or four classes each, for the tests of the loaders."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from holotype.data.datasets import registry
from holotype.data.datasets.layouts import ClassSplit
from holotype.data.datasets.registry import Benchmark
from holotype.data.table import Table


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (5, 4), (10, 20, 30)).save(file)


def write(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


CUB_IMAGES = [
    ("001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg", 1, 1),
    ("001.Black_footed_Albatross/Black_Footed_Albatross_0009_34.jpg", 1, 1),
    ("002.Laysan_Albatross/Laysan_Albatross_0002_1027.jpg", 2, 0),
    ("002.Laysan_Albatross/Laysan_Albatross_0001_545.jpg", 2, 1),
    ("003.Sooty_Albatross/Sooty_Albatross_0048_1130.jpg", 3, 1),
    ("003.Sooty_Albatross/Sooty_Albatross_0040_796375.jpg", 3, 0),
]
"""File, class and whether it is a training image; not in the order of their names."""


def cub(root: Path) -> ClassSplit:
    base = root / "CUB_200_2011"
    for file, _, _ in CUB_IMAGES:
        picture(base / "images" / file)
    classes = dict.fromkeys(file.partition("/")[0] for file, _, _ in CUB_IMAGES)
    write(base / "classes.txt", [f"{i} {name}" for i, name in enumerate(classes, start=1)])
    for name, column in (("images", 0), ("image_class_labels", 1), ("train_test_split", 2)):
        write(base / f"{name}.txt", [f"{i} {image[column]}" for i, image in enumerate(CUB_IMAGES, start=1)])
    return ClassSplit(known=(2, 0), novel=(1,))


def annotations(file: Path, rows: list[tuple[str, int]]) -> None:
    """The devkit's struct array: bounding box, class from 1, file name."""
    names = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
    array = np.empty((1, len(rows)), dtype=[(name, object) for name in names])
    for i, (image, index) in enumerate(rows):
        array[0, i] = (1, 1, 4, 4, np.uint8(index), image)
    savemat(file, {"annotations": array})


def scars(root: Path) -> ClassSplit:
    classes = ["AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012", "Acura RL Sedan 2012"]
    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": np.array([classes], dtype=object)})
    train = [("00002.jpg", 3), ("00001.jpg", 1), ("00003.jpg", 2), ("00004.jpg", 3)]
    test = [("00001.jpg", 2), ("00002.jpg", 1)]
    annotations(root / "devkit" / "cars_train_annos.mat", train)
    annotations(root / "devkit" / "cars_test_annos_withlabels.mat", test)
    for folder, rows in (("cars_train", train), ("cars_test", test)):
        for name, _ in rows:
            picture(root / folder / name)
    return ClassSplit(known=(2, 1), novel=(0,))


def aircraft(root: Path) -> ClassSplit:
    """variants.txt lists families together; the class index follows the sorted names."""
    base = root / "fgvc-aircraft-2013b" / "data"
    train = [("1025794", "Boeing 717"), ("0056978", "F-16A/B")]
    train += [("1340192", "707-320"), ("0450014", "707-320")]
    test = [("1514522", "F-16A/B"), ("0747566", "707-320")]
    write(base / "variants.txt", ["F-16A/B", "707-320", "Boeing 717"])
    for part, rows in (("trainval", train), ("test", test)):
        write(base / f"images_variant_{part}.txt", [f"{image} {name}" for image, name in rows])
        for image, _ in rows:
            picture(base / "images" / f"{image}.jpg")
    return ClassSplit(known=(0, 2), novel=(1,))


def imagenet100(root: Path) -> ClassSplit:
    """A fourth wnid, which the split does not want, must be left alone."""
    wnids = ("n01443537", "n01537544", "n01631663")
    for wnid in (*wnids, "n01440764"):
        for i in (10026, 3):
            picture(root / "train" / wnid / f"{wnid}_{i}.JPEG")
        picture(root / "val" / wnid / f"ILSVRC2012_val_{len(wnid):08d}.JPEG")
    return ClassSplit((0, 1), (2,), folders=wnids, names=("goldfish", "indigo_bunting", "eft"))


def herbarium19(root: Path) -> ClassSplit:
    for folder in ("0", "1", "2", "10"):
        for i in (2, 1):
            picture(root / "herbarium_19" / "small-train" / folder / f"{i}00{folder}.jpg")
        picture(root / "herbarium_19" / "small-validation" / folder / f"9{folder}.jpg")
    return ClassSplit(known=(2, 0), novel=(1, 3))


def cifar100_200(root: Path) -> ClassSplit:
    for name in ("apple", "baby", "aquarium_fish"):
        for i in (58, 27):
            picture(root / "cifar100-200" / name / f"{name}_s_{i:06d}.png")
    return ClassSplit(known=(0, 1), novel=(2,))


CIFAR_CLASSES = ("airplane", "automobile", "bird")


def cifar10_binary(root: Path) -> ClassSplit:
    base = root / "cifar-10-batches-bin"
    write(base / "batches.meta.txt", [*CIFAR_CLASSES, ""])
    for seed in range(5):
        binary(base / f"data_batch_{seed + 1}.bin", seed, [(2,), (0,), (1,)])
    binary(base / "test_batch.bin", 9, [(1,), (1,), (2,)])
    return ClassSplit(known=(0, 1), novel=(2,))


def cifar100_binary(root: Path) -> ClassSplit:
    base = root / "cifar-100-binary"
    write(base / "fine_label_names.txt", list(CIFAR_CLASSES))
    binary(base / "train.bin", 0, [(19, 2), (7, 0), (7, 1)])  # coarse, fine
    binary(base / "test.bin", 1, [(0, 1), (1, 1), (2, 2)])
    return ClassSplit(known=(0, 1), novel=(2,))


def binary(file: Path, seed: int, labels: list[tuple[int, ...]]) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    records = [bytes(label) + row.tobytes() for label, row in zip(labels, pixels, strict=True)]
    file.write_bytes(b"".join(records))


MINIATURES = {
    "cub": cub,
    "scars": scars,
    "aircraft": aircraft,
    "imagenet100": imagenet100,
    "herbarium19": herbarium19,
    "cifar100-200": cifar100_200,
    "scars-8137": scars,
    "cifar10": cifar10_binary,
    "cifar100": cifar100_binary,
}
"""Benchmark -> the function that writes it and returns a split that fits it."""


@pytest.fixture
def mini(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], Benchmark]:
    """Write a small copy and read it, with its own split in place of the packaged one."""
    published = registry.read_dataset_info

    def load(name: str, root: Path) -> Benchmark:
        facts = replace(published(name), split=MINIATURES[name](root), train=None, test=None)
        monkeypatch.setattr(registry, "read_dataset_info", lambda _: facts)
        return registry.load_benchmark(name, root)

    return load


def rows(table: Table | None) -> list[tuple[str, str]]:
    """File name and class of each image."""
    assert table is not None
    return [(os.path.basename(p), c) for p, c in zip(table.path, table.label, strict=True)]
