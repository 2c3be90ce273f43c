"""Layouts of the benchmarks: list the images and classes of each archive as its publishers pack it.

A layout takes the folder of the archive, or the one above, and a ClassSplit. It keeps the data set's own order, since
that order decides which images the GCD protocol labels. Datasets with a folder per class are sorted by class and file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.image_files import ArchiveProblem, binary_labels, split_index
from holotype.data.readers.folder import scan_folder
from holotype.errors import InputError


class MissingFile(Exception):
    """A file or folder that the data set needs does not exist: its path."""


@dataclass(frozen=True)
class ClassSplit:
    """Which classes are known and which novel, as indices into the data set's class order."""

    known: tuple[int, ...]
    """Known classes; the order is that of the training labels."""
    novel: tuple[int, ...]
    folders: tuple[str, ...] = ()
    """Folder of each class, where the data set is a choice of classes from a larger one (ImageNet-100)."""
    names: tuple[str, ...] = ()
    """Name of each class, where its folder is only a code."""


@dataclass(frozen=True)
class SplitListing:
    """The training or the test images, in the data set's own order."""

    path: list[str]
    label: list[int]
    """Class index of each image."""

    def absent(self) -> list[str]:
        """Return the files that are not on disk. Every folder is listed once, which is faster than a check per file."""
        files = list(dict.fromkeys((split_index(path) or (path,))[0] for path in self.path))
        folders = {os.path.dirname(file) for file in files}
        present = {folder: set(os.listdir(folder)) for folder in folders if os.path.isdir(folder)}
        return [
            file for file in files if os.path.basename(file) not in present.get(os.path.dirname(file), ())
        ]


@dataclass(frozen=True)
class Listing:
    """A data set as its own files describe it."""

    root: Path
    """Folder that the images lie in."""
    classes: tuple[str, ...]
    """Class names by class index."""
    train: SplitListing
    test: SplitListing | None
    """None where the data set, or this copy of it, has no list of test images."""


def find_root(root: Path, folders: Sequence[str], marker: str) -> Path:
    """Return the first of root/folder, ..., root that has `marker` in it."""
    candidates = [root / folder for folder in folders]
    for base in (*candidates, root):
        if (base / marker).exists():
            return base
    nearest = next((base for base in candidates if base.is_dir()), candidates[0])
    raise MissingFile(nearest / marker)


def require(path: Path) -> Path:
    """Return the path itself, which must exist."""
    if not path.exists():
        raise MissingFile(path)
    return path


def read_text_lines(file: Path) -> list[str]:
    """Return the non-empty lines of a text file."""
    try:
        text = require(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text, so it may be damaged; get it again.") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Return the lines "key text" in the file's order."""
    rows = [line.partition(" ") for line in read_text_lines(file)]
    return [(key, text.strip()) for key, _, text in rows]


def list_cub(root: Path, split: ClassSplit) -> Listing:
    """CUB-200-2011: images.txt, image_class_labels.txt, train_test_split.txt, classes.txt and images/."""
    base = find_root(root, ("CUB_200_2011", "cub", "cub/CUB_200_2011"), "images.txt")
    classes = dict(read_pairs(base / "classes.txt"))
    if not all(number.isascii() and number.isdigit() for number in classes):
        raise InputError(f"{base / 'classes.txt'} does not number its classes; get the file again.")
    label = dict(read_pairs(base / "image_class_labels.txt"))
    in_train = dict(read_pairs(base / "train_test_split.txt"))
    order = {number: i for i, number in enumerate(sorted(classes, key=int))}
    train, test = SplitListing([], []), SplitListing([], [])
    for number, file in dict(read_pairs(base / "images.txt")).items():
        if number not in in_train or label.get(number) not in order:
            raise InputError(f"Image {number} of {base}/images.txt has no class or split; get it again.")
        part = train if in_train[number] == "1" else test
        part.path.append(str(base / "images" / file))
        part.label.append(order[label[number]])
    return Listing(base, tuple(classes[number] for number in order), train, test)


def list_cars(root: Path, split: ClassSplit) -> Listing:
    """Stanford Cars: cars_train/, cars_test/ and the devkit's .mat files; test images need their annotations."""
    base = find_root(root, ("stanford_cars", "scars"), "cars_train")
    folders = (base / "devkit", base / "car_devkit" / "devkit", base.parent / "devkit")
    devkit = next((folder for folder in folders if folder.is_dir()), None)
    if devkit is None:
        raise MissingFile(folders[0])
    classes = tuple(str(name) for name in _read_mat(devkit / "cars_meta.mat", "class_names"))
    train = _car_annotations(devkit / "cars_train_annos.mat", base / "cars_train")
    # the labelled test annotations are a file of their own, which some copies keep beside the devkit
    files = [folder / "cars_test_annos_withlabels.mat" for folder in (devkit, base)]
    file = next((f for f in files if f.is_file()), None)
    test = None if file is None else _car_annotations(file, base / "cars_test")
    return Listing(base, classes, train, test)


def _car_annotations(file: Path, images: Path) -> SplitListing:
    nested = images / images.name  # a common mirror nests the folder in itself
    images = nested if nested.is_dir() else images
    rows = _read_mat(file, "annotations")
    if not {"class", "fname"} <= set(rows.dtype.names or ()):
        raise InputError(f"{file} lists no class and fname for its images; get the file with labels.")
    try:
        label = [int(index) - 1 for index in rows["class"]]  # MATLAB counts from 1
    except (TypeError, ValueError) as error:
        raise InputError(f"{file} has a class that is no number; get the devkit again.") from error
    return SplitListing([str(images / str(name)) for name in rows["fname"]], label)


def _read_mat(file: Path, variable: str) -> Any:
    """Return one variable of a MATLAB file as a 1-D array (cells: of strings, structs: with named fields)."""
    from scipy.io import loadmat

    try:
        content = loadmat(require(file), squeeze_me=True, variable_names=[variable])
    except (OSError, ValueError, TypeError, NotImplementedError) as error:  # the last: files of MATLAB 7.3
        raise InputError(f"{file} is not a readable MATLAB file ({error}); get it again.") from error
    if variable not in content:
        raise InputError(f"{file} has no variable {variable}; get it again.")
    return np.atleast_1d(content[variable])


def list_aircraft(root: Path, split: ClassSplit) -> Listing:
    """FGVC-Aircraft: data/variants.txt, data/images_variant_{trainval,test}.txt, data/images/; classes are variants."""
    data = "fgvc-aircraft-2013b/data"
    base = find_root(root, (data, "aircraft/data", f"aircraft/{data}", "data"), "images_variant_trainval.txt")
    classes = tuple(sorted(read_text_lines(base / "variants.txt")))
    test = base / "images_variant_test.txt"
    train = _variants(base / "images_variant_trainval.txt", classes)
    return Listing(base, classes, train, _variants(test, classes) if test.is_file() else None)


def _variants(file: Path, classes: tuple[str, ...]) -> SplitListing:
    order = {name: i for i, name in enumerate(classes)}
    rows = read_pairs(file)
    for image, name in rows:
        if name not in order:
            raise InputError(f"Image {image} of {file} has the variant {name!r}, which variants.txt lacks.")
    paths = [str(file.parent / "images" / f"{image}.jpg") for image, _ in rows]
    return SplitListing(paths, [order[name] for _, name in rows])


def list_cifar10(root: Path, split: ClassSplit) -> Listing:
    """CIFAR-10 from its binary archive, cifar-10-batches-bin/."""
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return _list_cifar(root, "cifar-10-batches-bin", "batches.meta.txt", train, "test_batch.bin")


def list_cifar100(root: Path, split: ClassSplit) -> Listing:
    """CIFAR-100 from its binary archive, cifar-100-binary/; fine classes."""
    return _list_cifar(root, "cifar-100-binary", "fine_label_names.txt", ["train.bin"], "test.bin")


def _list_cifar(root: Path, folder: str, names: str, train: Sequence[str], test: str) -> Listing:
    """names: the file of class names. train, test: files of images, "file#index" each."""
    try:
        base = find_root(root, (folder, f"cifar/{folder}"), names)
    except MissingFile as missing:
        archive = folder.replace("-batches-bin", "-binary")
        pickle = "CIFAR's Python version is a pickle and is not read"
        raise MissingFile(f"{missing} of {archive}.tar.gz ({pickle})") from missing
    path, label = [], []
    for file in train:
        part = _cifar_part(require(base / file))
        path += part.path
        label += part.label
    held_out = _cifar_part(base / test) if (base / test).is_file() else None
    return Listing(base, tuple(read_text_lines(base / names)), SplitListing(path, label), held_out)


def _cifar_part(file: Path) -> SplitListing:
    try:
        label = binary_labels(file)
    except ArchiveProblem as problem:
        raise InputError(f"{problem} Get the archive again.") from problem
    return SplitListing([f"{file}#{i}" for i in range(len(label))], label)


def list_imagenet100(root: Path, split: ClassSplit) -> Listing:
    """ImageNet: train/<wnid>/ and val/<wnid>/; of all wnid folders only those of the split are read."""
    folders = ("imagenet", "imagenet100", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
    base = find_root(root, folders, "train")
    for wnid in split.folders:
        require(base / "train" / wnid)
    # the official archive of the val images is flat; without class folders there is no test part
    sorted_val = all((base / "val" / wnid).is_dir() for wnid in split.folders)
    test = _by_class(base / "val", split.folders) if sorted_val else None
    return Listing(base, split.names or split.folders, _by_class(base / "train", split.folders), test)


def list_herbarium19(root: Path, split: ClassSplit) -> Listing:
    """Herbarium-19: small-train/<class>/ and small-validation/<class>/.

    The folders are numbers, but the split counts them in the order of their names as text
    (0, 1, 10, 100, ...), as the reference code's image folders do: class 2 of the split is folder "10".
    """
    base = find_root(root, ("herbarium_19", "herbarium19"), "small-train")
    classes = _class_folders(base / "small-train")
    validation = base / "small-validation"
    test = _by_class(validation, classes) if validation.is_dir() else None
    return Listing(base, classes, _by_class(base / "small-train", classes), test)


def list_cifar100_200(root: Path, split: ClassSplit) -> Listing:
    """CIFAR-100-200: a folder of PNG files per class, and no test images."""
    base = find_root(root, ("cifar100-200",), "apple")
    classes = _class_folders(base)
    return Listing(base, classes, _by_class(base, classes), None)


def _class_folders(base: Path) -> tuple[str, ...]:
    return tuple(sorted(f.name for f in base.iterdir() if f.is_dir() and not f.name.startswith(".")))


def _by_class(base: Path, classes: Sequence[str]) -> SplitListing:
    """Return the images of base/<class> in torchvision's order: class, sub-folder, file name."""
    path: list[str] = []
    label: list[int] = []
    for index, name in enumerate(classes):
        images = sorted(scan_folder(base / name).images, key=lambda file: (str(file.parent), file.name))
        path += map(str, images)
        label += [index] * len(images)
    return SplitListing(path, label)
