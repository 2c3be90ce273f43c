"""CUB-200-2011, Stanford Cars and FGVC-Aircraft: data sets whose own files list every image.

The order of these lists decides which images the GCD protocol labels, so it is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.datasets.base import (
    ClassSplit,
    Listing,
    MissingFile,
    SplitListing,
    find_dataset_root,
    read_split_lines,
    require_file,
)
from holotype.errors import InputError


def list_cub(root: Path, split: ClassSplit) -> Listing:
    """images.txt, image_class_labels.txt, train_test_split.txt, classes.txt and images/."""
    base = find_dataset_root(root, ("CUB_200_2011", "cub", "cub/CUB_200_2011"), "images.txt")
    classes = _numbered(base / "classes.txt")
    if not all(number.isascii() and number.isdigit() for number in classes):
        raise InputError(f"{base / 'classes.txt'} does not number its classes; get the file again.")
    label = _numbered(base / "image_class_labels.txt")
    in_train = _numbered(base / "train_test_split.txt")
    order = {number: i for i, number in enumerate(sorted(classes, key=int))}
    train, test = SplitListing([], []), SplitListing([], [])
    for number, file in _numbered(base / "images.txt").items():
        if number not in label or number not in in_train or label[number] not in order:
            raise InputError(
                f"Image {number} of {base / 'images.txt'} has no class or no split; get the files again."
            )
        part = train if in_train[number] == "1" else test
        part.path.append(str(base / "images" / file))
        part.label.append(order[label[number]])
    return Listing(base, tuple(classes[number] for number in order), train, test)


def _numbered(file: Path) -> dict[str, str]:
    """Lines "number text" in the file's order."""
    rows = [line.partition(" ") for line in read_split_lines(file)]
    return {number: text.strip() for number, _, text in rows}


def list_cars(root: Path, split: ClassSplit) -> Listing:
    """cars_train/, cars_test/ and the devkit's .mat files; without test annotations there is no test part."""
    base = find_dataset_root(root, ("stanford_cars", "scars"), "cars_train")
    homes = (base / "devkit", base / "car_devkit" / "devkit", base.parent / "devkit")
    devkit = next((home for home in homes if home.is_dir()), None)
    if devkit is None:
        raise MissingFile(homes[0])
    classes = tuple(str(name) for name in _mat(devkit / "cars_meta.mat", "class_names"))
    train = _annotations(devkit / "cars_train_annos.mat", _images_folder(base / "cars_train"), classes)
    # the labelled test annotations are a file of their own, which some copies keep beside the devkit
    files = [home / "cars_test_annos_withlabels.mat" for home in (devkit, base)]
    file = next((f for f in files if f.is_file()), None)
    test = None if file is None else _annotations(file, _images_folder(base / "cars_test"), classes)
    return Listing(base, classes, train, test)


def _images_folder(folder: Path) -> Path:
    """A common mirror nests the folder in itself."""
    return folder / folder.name if (folder / folder.name).is_dir() else folder


def _annotations(file: Path, images: Path, classes: tuple[str, ...]) -> SplitListing:
    rows = _mat(file, "annotations")
    if not rows.dtype.names or not {"class", "fname"} <= set(rows.dtype.names):
        raise InputError(
            f"{file} lists no class and fname for its images; it may be the file without labels."
        )
    try:
        label = [int(index) - 1 for index in rows["class"]]  # MATLAB counts from 1
    except (TypeError, ValueError) as error:
        raise InputError(f"{file} has a class that is no number; get the devkit again.") from error
    if label and not 0 <= min(label) <= max(label) < len(classes):
        raise InputError(
            f"{file} has a class outside the {len(classes)} of cars_meta.mat; get the devkit again."
        )
    return SplitListing([str(images / str(name)) for name in rows["fname"]], label)


def _mat(file: Path, variable: str) -> Any:
    """One variable of a MATLAB file as a 1-D array (cells: of strings, structs: with named fields)."""
    from scipy.io import loadmat

    try:
        content = loadmat(require_file(file), squeeze_me=True, variable_names=[variable])
    except (
        OSError,
        ValueError,
        TypeError,
        NotImplementedError,  # scipy's, of files of MATLAB 7.3
    ) as error:
        raise InputError(f"{file} is not a readable MATLAB file ({error}); get it again.") from error
    if variable not in content:
        raise InputError(f"{file} has no variable {variable}; get it again.")
    return np.atleast_1d(content[variable])


def list_aircraft(root: Path, split: ClassSplit) -> Listing:
    """data/variants.txt, data/images_variant_{trainval,test}.txt and data/images/; classes are variants."""
    folders = [
        f"{name}/data" for name in ("fgvc-aircraft-2013b", "aircraft", "aircraft/fgvc-aircraft-2013b", ".")
    ]
    base = find_dataset_root(root, folders, "images_variant_trainval.txt")
    classes = tuple(sorted(read_split_lines(base / "variants.txt")))
    train = _variants(base, "trainval", classes)
    test = _variants(base, "test", classes) if (base / "images_variant_test.txt").is_file() else None
    return Listing(base, classes, train, test)


def _variants(base: Path, part: str, classes: tuple[str, ...]) -> SplitListing:
    file = base / f"images_variant_{part}.txt"
    order = {name: i for i, name in enumerate(classes)}
    rows = [line.partition(" ") for line in read_split_lines(file)]
    for image, _, name in rows:
        if name.strip() not in order:
            raise InputError(f"Image {image} of {file} has the variant {name!r}, which variants.txt lacks.")
    paths = [str(base / "images" / f"{image}.jpg") for image, _, _ in rows]
    return SplitListing(paths, [order[name.strip()] for _, _, name in rows])
