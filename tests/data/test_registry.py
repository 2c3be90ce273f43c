"""Each loader reads its official layout in the official order, and says which file it misses."""

import dataclasses
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from holotype.data.datasets import registry
from holotype.data.datasets.registry import (
    BENCHMARKS,
    LAYOUTS,
    check_benchmark,
    load_benchmark,
    read_dataset_info,
)
from holotype.data.decode import read_image
from holotype.data.gcd_split import gcd_split, held_out
from holotype.data.table import Table
from holotype.errors import InputError

from . import miniatures
from .miniatures import MINIATURES, mini, rows

PARITY = Path(__file__).parents[1] / "parity"


# every layout


@pytest.mark.parametrize("case", MINIATURES)
def test_every_layout_gives_a_complete_benchmark(case: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path)
    assert len(benchmark.known) == len(split.known)
    assert len(benchmark.novel) == len(split.novel)
    assert not set(benchmark.known) & set(benchmark.novel)
    tables = [t for t in (benchmark.train, benchmark.test) if t is not None]
    for table in tables:
        assert set(table.label) <= set(benchmark.known + benchmark.novel)
        assert table.labelled.all()
        for path in table.path:
            assert read_image(path)[0].size in ((5, 4), (32, 32))
    assert (benchmark.test is None) == (benchmark.name == "cifar100-200")


@pytest.mark.parametrize("case", MINIATURES)
def test_the_folder_itself_or_the_one_above(case: str, tmp_path: Path) -> None:
    above, split = mini(case, tmp_path / "data")
    itself = load_benchmark(above.name, above.train.root, split=split)
    assert itself.train.fingerprint() == above.train.fingerprint()


@pytest.mark.parametrize("root", ["sets #1", "a#b", "train#3"])
@pytest.mark.parametrize("case", MINIATURES)
def test_a_root_with_a_hash_in_its_name(case: str, root: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path / root)
    assert all(read_image(path)[0].size in ((5, 4), (32, 32)) for path in benchmark.train.path)
    assert check_benchmark(benchmark.name, tmp_path / root, split=split).ok


@pytest.mark.parametrize("case", MINIATURES)
def test_a_missing_training_file_is_named(case: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path)
    # where folders are the list a lost file leaves no trace, so a class folder goes
    by_folder = benchmark.name in ("imagenet100", "cifar100-200", "herbarium19")
    last = Path(benchmark.train.path[-1].partition("#")[0])
    lost = last.parent if by_folder else last
    shutil.rmtree(lost) if by_folder else lost.unlink()
    message = "classes were found" if benchmark.name in ("cifar100-200", "herbarium19") else lost.name
    with pytest.raises(InputError, match=message) as caught:
        load_benchmark(benchmark.name, tmp_path, split=split)
    assert message != lost.name or read_dataset_info(benchmark.name).origin in str(caught.value)
    report = check_benchmark(benchmark.name, tmp_path, split=split)
    assert not report.ok
    assert message in str(report)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "fashion-sample"])
def test_an_empty_folder_says_what_is_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is missing; the data come from") as caught:
        load_benchmark(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert not check_benchmark(name, tmp_path).ok


@pytest.mark.parametrize("case", MINIATURES)
def test_a_miniature_is_not_taken_for_the_benchmark(case: str, tmp_path: Path) -> None:
    name, build = MINIATURES[case]
    build(tmp_path)
    with pytest.raises(InputError, match=r"classes were found|is missing"):
        load_benchmark(name, tmp_path)


@pytest.mark.parametrize("case", ["cub", "scars", "aircraft"])
def test_test_images_may_be_absent_but_not_in_part(case: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path)
    assert benchmark.test is not None
    first, *others = benchmark.test.path
    os.remove(first)
    with pytest.raises(InputError, match=rf"{os.path.basename(first)} is missing, with 1 of 2 test images"):
        load_benchmark(benchmark.name, tmp_path, split=split)
    for path in others:
        os.remove(path)
    assert load_benchmark(benchmark.name, tmp_path, split=split).test is None
    report = check_benchmark(benchmark.name, tmp_path, split=split)
    assert report.ok
    assert "test images: all 2" in str(report)


def test_names_and_roots_are_checked(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no benchmark called 'cubs' \(did you mean cub\?\); there are cub, scars"
    ):
        load_benchmark("cubs", tmp_path)
    with pytest.raises(InputError, match="give the folder"):
        load_benchmark("cub")
    with pytest.raises(InputError, match="does not exist"):
        load_benchmark("cub", tmp_path / "absent")
    with pytest.raises(InputError, match="no benchmark called"):
        check_benchmark("cubs", tmp_path)


def test_report_for_a_complete_set(tmp_path: Path) -> None:
    split = miniatures.cub(tmp_path)
    report = check_benchmark("cub", tmp_path, split=split)
    assert report.ok
    assert report.missing == ()
    assert report.found == ("3 classes", "4 of 4 training images", "2 of 2 test images")
    assert "ready" in str(report)
    assert report.origin in str(report)


# the embedded sample and the packaged splits


def test_the_sample_needs_nothing() -> None:
    benchmark = load_benchmark("fashion-sample")
    assert len(benchmark.train) == 1000
    assert benchmark.test is None
    assert benchmark.known == ("T-shirt", "Trouser", "Pullover", "Dress", "Coat")
    assert benchmark.novel == ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    assert np.bincount(benchmark.train.target).tolist() == [100] * 10
    assert read_image(benchmark.train.path[999])[0].size == (28, 28)
    report = check_benchmark("fashion-sample")
    assert (report.ok, report.missing) == (True, ())
    # the path of the installation is not in it
    assert gcd_split(benchmark).fingerprint().startswith("7053323a5a8da8ea")


SIZES = {
    "cub": (100, 100),
    "scars": (98, 98),
    "aircraft": (50, 50),
    "cifar10": (5, 5),
    "cifar100": (80, 20),
    "imagenet100": (50, 50),
    "herbarium19": (341, 342),
    "cifar100-200": (80, 20),
    "scars-8137": (98, 98),
    "fashion-sample": (5, 5),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_packaged_splits_part_all_classes(name: str) -> None:
    facts = read_dataset_info(name)
    assert (len(facts.split.known), len(facts.split.novel)) == SIZES[name]
    assert sorted(facts.split.known + facts.split.novel) == list(range(facts.classes))


def test_imagenet100_is_the_draw_of_the_reference_code() -> None:
    import json

    import holotype.data

    file = Path(holotype.data.__file__).parent / "datasets" / "splits" / "imagenet100.json"
    packaged = json.loads(file.read_text())
    drawn = np.sort(np.random.RandomState(0).choice(1000, size=100, replace=False))
    assert packaged["imagenet_index"] == drawn.tolist()
    assert packaged["imagenet_index"] == np.load(PARITY / "splits.npz")["imagenet100.classes"].tolist()
    assert len(set(packaged["folders"])) == len(set(packaged["names"])) == 100
    assert packaged["folders"] == sorted(packaged["folders"])


# Stanford Cars, whole and in part


def cars_of(root: Path, n_known: int, n_novel: int) -> None:
    """The layout of all 196 classes with so many images of known and of novel ones, in the order of their names."""
    split = read_dataset_info("scars").split
    classes = [split.known[i % 98] for i in range(n_known)] + [split.novel[i % 98] for i in range(n_novel)]
    images = [(f"{i:06d}.jpg", label + 1) for i, label in enumerate(classes)]
    for folder in ("cars_train", "devkit"):
        (root / "stanford_cars" / folder).mkdir(parents=True, exist_ok=True)
    for name, _ in images:
        (root / "stanford_cars" / "cars_train" / name).touch()
    devkit = root / "stanford_cars" / "devkit"
    names = np.array([[f"car {i}" for i in range(196)]], dtype=object)
    savemat(devkit / "cars_meta.mat", {"class_names": names})
    miniatures.annotations(devkit / "cars_train_annos.mat", images)


def test_scars_8137_has_the_counts_of_the_protocol_and_is_not_taken_for_scars(tmp_path: Path) -> None:
    cars_of(tmp_path, 3999, 4138)
    benchmark = load_benchmark("scars-8137", tmp_path)
    assert (benchmark.name, len(benchmark.known), len(benchmark.novel)) == ("scars-8137", 98, 98)
    assert benchmark.known == load_split_names("scars", "known")
    assert benchmark.test is None
    names = [name for name, _ in rows(benchmark.train)]
    assert names == sorted(names)
    table = gcd_split(benchmark)
    old = np.isin(table.truth, benchmark.known) & ~table.labelled
    assert (len(table), table.labelled.sum(), old.sum()) == (8137, 1999, 2000)
    assert (~table.labelled).sum() == 6138
    with pytest.raises(InputError, match=r"scars: 8,137 training images are listed .* data set has 8,144"):
        load_benchmark("scars", tmp_path)


def load_split_names(name: str, part: str) -> tuple[str, ...]:
    return tuple(f"car {i}" for i in getattr(read_dataset_info(name).split, part))


@pytest.mark.parametrize(
    ("name", "listed"), [("scars", 6), ("scars", 8), ("scars-8137", 6), ("scars-8137", 8)]
)
def test_cars_of_another_number_are_refused(name: str, listed: int, tmp_path: Path, monkeypatch) -> None:
    """Were the data set of seven images: one less and one more are another data set."""
    facts = read_dataset_info(name)
    assert facts.train == {"scars": 8144, "scars-8137": 8137}[name]
    monkeypatch.setattr(registry, "read_dataset_info", lambda _: dataclasses.replace(facts, train=7))
    cars_of(tmp_path / "whole", 4, 3)
    assert len(load_benchmark(name, tmp_path / "whole").train) == 7
    cars_of(tmp_path / "other", 4, listed - 4)
    with pytest.raises(InputError, match=f"{name}: {listed} training images are listed .* data set has 7"):
        load_benchmark(name, tmp_path / "other")
    assert not check_benchmark(name, tmp_path / "other").ok


# against the real metadata, where they are at hand

SHARED = os.environ.get("HOLOTYPE_SHARED")
needs_shared = pytest.mark.skipif(not SHARED, reason="HOLOTYPE_SHARED names no folder with the real metadata")


def labelled_hash(table: Table, below: str) -> str:
    root = Path(table.root) / below
    lines = [Path(p).relative_to(root).as_posix() + "\n" for p in table.path[table.labelled]]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@needs_shared
def test_cub_labels_the_images_of_the_reference_code(tmp_path: Path) -> None:
    base = tmp_path / "CUB_200_2011"
    shutil.copytree(Path(str(SHARED), "data", "cub"), base, ignore=shutil.ignore_patterns("*.npz"))
    in_train = [line.split()[1] for line in (base / "train_test_split.txt").read_text().splitlines()]
    for line, use in zip((base / "images.txt").read_text().splitlines(), in_train, strict=True):
        if use == "1":
            file = base / "images" / line.split()[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    benchmark = load_benchmark("cub", tmp_path)
    table = gcd_split(benchmark)
    assert held_out(benchmark) is None
    assert (len(table), table.labelled.sum()) == (5994, 1498)
    assert benchmark.known[0] == "151.Black_capped_Vireo"
    expected = "767986f99f66dae6e68441ba1ffc6c064fc68c0508f68d756913c61308914414"
    assert labelled_hash(table, "images") == expected


@needs_shared
def test_cifar100_200_labels_the_stated_images(tmp_path: Path) -> None:
    pack = np.load(Path(str(SHARED), "data", "cifar100", "train200_webp_lossless.npz"))
    for name in pack["names"]:
        file = tmp_path / "cifar100-200" / name.decode()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    table = gcd_split(load_benchmark("cifar100-200", tmp_path))
    assert (len(table), table.labelled.sum()) == (20000, 8000)
    assert labelled_hash(table, "") == "8994820d8908c653b07386af3f4381b27697991f12eda13bc3fe5e1c01bc278e"
