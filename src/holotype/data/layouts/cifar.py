"""CIFAR-10 and CIFAR-100 from the binary archive, or from the Python archive without trusting it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holotype.data.containers import ContainerProblem, binary_labels, cifar_images, read_cifar_pickle
from holotype.data.layouts.listing import ClassSplit, Listing, MissingFile, Part, read_lines, require
from holotype.errors import InputError

BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))


def list_cifar10(root: Path, split: ClassSplit) -> Listing:
    """cifar-10-batches-bin/ or cifar-10-batches-py/; the binary one where both are there."""
    base = _find(root, {"cifar-10-batches-bin": "batches.meta.txt", "cifar-10-batches-py": "batches.meta"})
    if (base / "batches.meta.txt").is_file():
        names = read_lines(base / "batches.meta.txt")
        train = [f"{batch}.bin" for batch in BATCHES]
        return _listing(base, names, train, "test_batch.bin", binary_labels)
    names = _names(base / "batches.meta", "label_names")
    return _listing(base, names, BATCHES, "test_batch", lambda file: _pickled_labels(file, "labels"))


def list_cifar100(root: Path, split: ClassSplit) -> Listing:
    """cifar-100-binary/ or cifar-100-python/; the binary one where both are there. Fine classes."""
    base = _find(root, {"cifar-100-binary": "fine_label_names.txt", "cifar-100-python": "meta"})
    if (base / "fine_label_names.txt").is_file():
        names = read_lines(base / "fine_label_names.txt")
        return _listing(base, names, ("train.bin",), "test.bin", binary_labels)
    names = _names(base / "meta", "fine_label_names")
    return _listing(base, names, ("train",), "test", lambda file: _pickled_labels(file, "fine_labels"))


def _find(root: Path, meta: dict[str, str]) -> Path:
    """The first folder, of the archives' names in `meta`, that has the archive's file of class names."""
    homes = [
        (home, file) for name, file in meta.items() for home in (root / name, root / "cifar" / name, root)
    ]
    for home, file in homes:
        if (home / file).is_file():
            return home
    folder, file = next(((home, file) for home, file in homes if home.is_dir() and home != root), homes[0])
    raise MissingFile(folder / file)


def _listing(
    base: Path,
    names: Sequence[str],
    train: Sequence[str],
    test: str,
    labels: Callable[[Path], list[int]],
) -> Listing:
    parts = [_part(require(base / file), len(names), labels) for file in train]
    whole = Part([p for part in parts for p in part.path], [c for part in parts for c in part.label])
    held_out = _part(base / test, len(names), labels) if (base / test).is_file() else None
    return Listing(base, tuple(names), whole, held_out)


def _part(file: Path, n_classes: int, labels: Callable[[Path], list[int]]) -> Part:
    """Rows "file#index" of one container."""
    try:
        label = labels(file)
    except ContainerProblem as problem:
        raise InputError(f"{problem} Get the archive again.") from problem
    if label and not 0 <= min(label) <= max(label) < n_classes:
        raise InputError(
            f"{file} has a class outside the {n_classes} names beside it; get the archive again."
        )
    return Part([f"{file}#{i}" for i in range(len(label))], label)


def _pickled_labels(file: Path, key: str) -> list[int]:
    content = read_cifar_pickle(file)
    label = _list_of(content, key, int, file)
    if len(label) != len(cifar_images(content, str(file))):
        raise ContainerProblem(f"{file} has not one label for each image.")
    return label


def _names(file: Path, key: str) -> list[str]:
    try:
        return _list_of(read_cifar_pickle(require(file)), key, str, file)
    except ContainerProblem as problem:
        raise InputError(f"{problem} Get the archive again.") from problem


def _list_of(content: dict[str, Any], key: str, kind: type, file: Path) -> list:
    values = content.get(key)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ContainerProblem(f"{file} is not CIFAR's: it holds no list {key!r} of {kind.__name__}.")
    return values
