"""FGVC-Aircraft. The order of its own lists decides which images the GCD protocol labels, so it is kept."""

from __future__ import annotations

from pathlib import Path

from holotype.data.datasets.base import (
    ClassSplit,
    Listing,
    SplitListing,
    find_root,
    read_pairs,
    read_text_lines,
)
from holotype.errors import InputError

FOLDERS = ("fgvc-aircraft-2013b/data", "aircraft/data", "aircraft/fgvc-aircraft-2013b/data", "data")


def list_aircraft(root: Path, split: ClassSplit) -> Listing:
    """List data/variants.txt, data/images_variant_{trainval,test}.txt and data/images/; classes are variants."""
    base = find_root(root, FOLDERS, "images_variant_trainval.txt")
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
