"""CIFAR-10 and CIFAR-100 from their binary archives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.data.datasets.base import (
    ClassSplit,
    Listing,
    MissingFile,
    SplitListing,
    read_text_lines,
    require,
)
from holotype.data.image_files import ArchiveProblem, binary_labels
from holotype.errors import InputError


def list_cifar10(root: Path, split: ClassSplit) -> Listing:
    """List cifar-10-batches-bin/."""
    base = _find(root, "cifar-10-batches-bin", "batches.meta.txt")
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return _listing(base, read_text_lines(base / "batches.meta.txt"), train, "test_batch.bin")


def list_cifar100(root: Path, split: ClassSplit) -> Listing:
    """List cifar-100-binary/; fine classes."""
    base = _find(root, "cifar-100-binary", "fine_label_names.txt")
    return _listing(base, read_text_lines(base / "fine_label_names.txt"), ["train.bin"], "test.bin")


def _find(root: Path, folder: str, names: str) -> Path:
    """Return the folder that has the archive's file of class names."""
    homes = [root / folder, root / "cifar" / folder, root]
    for home in homes:
        if (home / names).is_file():
            return home
    missing = next((home for home in homes[:2] if home.is_dir()), homes[0]) / names
    archive = folder.replace("-batches-bin", "-binary")
    raise MissingFile(f"{missing} of {archive}.tar.gz (CIFAR's Python version is a pickle and is not read)")


def _listing(base: Path, names: Sequence[str], train: Sequence[str], test: str) -> Listing:
    parts = [_part(require(base / file), len(names)) for file in train]
    whole = SplitListing([p for part in parts for p in part.path], [c for part in parts for c in part.label])
    held_out = _part(base / test, len(names)) if (base / test).is_file() else None
    return Listing(base, tuple(names), whole, held_out)


def _part(file: Path, n_classes: int) -> SplitListing:
    """Return rows "file#index" of one container."""
    try:
        label = binary_labels(file)
    except ArchiveProblem as problem:
        raise InputError(f"{problem} Get the archive again.") from problem
    return SplitListing([f"{file}#{i}" for i in range(len(label))], label)
