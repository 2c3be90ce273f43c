"""ImageNet-100, Herbarium-19 and CIFAR-100-200: a folder per class, rows sorted by class and file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.data.datasets.base import ClassSplit, Listing, SplitListing, find_root, require
from holotype.data.readers.folder import scan_folder


def list_imagenet100(root: Path, split: ClassSplit) -> Listing:
    """train/<wnid>/ and val/<wnid>/; of all wnid folders only those of the split are read."""
    folders = ("imagenet", "imagenet100", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
    base = find_root(root, folders, "train")
    for wnid in split.folders:
        require(base / "train" / wnid)
    # the official archive of the val images is flat; without class folders there is no test part
    sorted_val = all((base / "val" / wnid).is_dir() for wnid in split.folders)
    test = _by_class(base / "val", split.folders) if sorted_val else None
    return Listing(base, split.names or split.folders, _by_class(base / "train", split.folders), test)


def list_herbarium19(root: Path, split: ClassSplit) -> Listing:
    """small-train/<class>/ and small-validation/<class>/.

    The folders are numbers, but the split counts them in the order of their names as text
    (0, 1, 10, 100, ...), as the reference code's image folders do: class 2 of the split is folder "10".
    """
    base = find_root(root, ("herbarium_19", "herbarium19"), "small-train")
    classes = _class_folders(base / "small-train")
    validation = base / "small-validation"
    test = _by_class(validation, classes) if validation.is_dir() else None
    return Listing(base, classes, _by_class(base / "small-train", classes), test)


def list_cifar100_200(root: Path, split: ClassSplit) -> Listing:
    """A folder of PNG files per class, and no test images."""
    base = find_root(root, ("cifar100-200",), "apple")
    classes = _class_folders(base)
    return Listing(base, classes, _by_class(base, classes), None)


def _class_folders(base: Path) -> tuple[str, ...]:
    return tuple(sorted(f.name for f in base.iterdir() if f.is_dir() and not f.name.startswith(".")))


def _by_class(base: Path, classes: Sequence[str]) -> SplitListing:
    """Images of base/<class> in the order of image folders elsewhere: class, sub-folder, file name."""
    path: list[str] = []
    label: list[int] = []
    for index, name in enumerate(classes):
        images = sorted(scan_folder(base / name).images, key=lambda file: (str(file.parent), file.name))
        path += map(str, images)
        label += [index] * len(images)
    return SplitListing(path, label)
