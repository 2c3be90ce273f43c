"""Stanford Cars. The order of its own lists decides which images the GCD protocol labels, so it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.datasets.base import (
    ClassSplit,
    Listing,
    MissingFile,
    SplitListing,
    find_root,
    require,
)
from holotype.errors import InputError


def list_cars(root: Path, split: ClassSplit) -> Listing:
    """List cars_train/, cars_test/ and the devkit's .mat files; without test annotations there is no test part."""
    base = find_root(root, ("stanford_cars", "scars"), "cars_train")
    homes = (base / "devkit", base / "car_devkit" / "devkit", base.parent / "devkit")
    devkit = next((home for home in homes if home.is_dir()), None)
    if devkit is None:
        raise MissingFile(homes[0])
    classes = tuple(str(name) for name in _read_mat(devkit / "cars_meta.mat", "class_names"))
    train = _annotations(devkit / "cars_train_annos.mat", base / "cars_train", classes)
    # the labelled test annotations are a file of their own, which some copies keep beside the devkit
    files = [home / "cars_test_annos_withlabels.mat" for home in (devkit, base)]
    file = next((f for f in files if f.is_file()), None)
    test = None if file is None else _annotations(file, base / "cars_test", classes)
    return Listing(base, classes, train, test)


def _annotations(file: Path, images: Path, classes: tuple[str, ...]) -> SplitListing:
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
