"""CUB-200-2011. The order of its own list decides which images the GCD protocol labels, so it is kept."""

from __future__ import annotations

from pathlib import Path

from holotype.data.datasets.base import ClassSplit, Listing, SplitListing, find_root, read_pairs
from holotype.errors import InputError


def list_cub(root: Path, split: ClassSplit) -> Listing:
    """List images.txt, image_class_labels.txt, train_test_split.txt, classes.txt and images/."""
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
