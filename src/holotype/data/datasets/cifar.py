"""CIFAR-10 and CIFAR-100 from their binary archives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.data.datasets.base import (
    ClassSplit,
    Listing,
    MissingFile,
    SplitListing,
    check_class_index,
    read_split_lines,
    require_file,
)
from holotype.data.image_files import ArchiveProblem, binary_labels
from holotype.errors import InputError


def list_cifar10(root: Path, split: ClassSplit) -> Listing:
    """cifar-10-batches-bin/."""
    base = _find(root, "cifar-10-batches-bin", "batches.meta.txt", ("cifar-10-batches-py", "batches.meta"))
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return _listing(base, read_split_lines(base / "batches.meta.txt"), train, "test_batch.bin")


def list_cifar100(root: Path, split: ClassSplit) -> Listing:
    """cifar-100-binary/; fine classes."""
    base = _find(root, "cifar-100-binary", "fine_label_names.txt", ("cifar-100-python", "meta"))
    return _listing(base, read_split_lines(base / "fine_label_names.txt"), ["train.bin"], "test.bin")


def _find(root: Path, folder: str, names: str, python: tuple[str, str]) -> Path:
    """The folder that has the archive's file of class names. python: folder and class names of the Python archive."""
    homes = [root / folder, root / "cifar" / folder, root]
    for home in homes:
        if (home / names).is_file():
            return home
    for home in (root / python[0], root / "cifar" / python[0], root):
        if (home / python[1]).is_file():
            archive = folder.replace("-batches-bin", "-binary")
            raise InputError(
                f"{home} is CIFAR's Python version, which is a pickle and is not read; download the binary version "
                f"({archive}.tar.gz) from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it in {root}."
            )
    raise MissingFile(next((home for home in homes[:2] if home.is_dir()), homes[0]) / names)


def _listing(base: Path, names: Sequence[str], train: Sequence[str], test: str) -> Listing:
    parts = [_part(require_file(base / file), len(names)) for file in train]
    whole = SplitListing([p for part in parts for p in part.path], [c for part in parts for c in part.label])
    held_out = _part(base / test, len(names)) if (base / test).is_file() else None
    return Listing(base, tuple(names), whole, held_out)


def _part(file: Path, n_classes: int) -> SplitListing:
    """Rows "file#index" of one container."""
    try:
        label = binary_labels(file)
    except ArchiveProblem as problem:
        raise InputError(f"{problem} Get the archive again.") from problem
    check_class_index(file, label, n_classes)
    return SplitListing([f"{file}#{i}" for i in range(len(label))], label)
