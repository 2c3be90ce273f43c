"""Each loader reads its official layout in the official order, and says which file it misses."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import savemat

from holotype.data.datasets import registry
from holotype.data.datasets.registry import (
    BENCHMARKS,
    LAYOUTS,
    Benchmark,
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


def test_cub_keeps_the_order_of_images_txt(tmp_path: Path) -> None:
    benchmark, _ = mini("cub", tmp_path)
    assert rows(benchmark.train) == [
        ("Black_Footed_Albatross_0046_18.jpg", "001.Black_footed_Albatross"),
        ("Black_Footed_Albatross_0009_34.jpg", "001.Black_footed_Albatross"),
        ("Laysan_Albatross_0001_545.jpg", "002.Laysan_Albatross"),
        ("Sooty_Albatross_0048_1130.jpg", "003.Sooty_Albatross"),
    ]
    assert benchmark.known == ("003.Sooty_Albatross", "001.Black_footed_Albatross")
    assert [name for name, _ in rows(benchmark.test)] == [
        "Laysan_Albatross_0002_1027.jpg",
        "Sooty_Albatross_0040_796375.jpg",
    ]


def test_cub_with_torn_metadata(tmp_path: Path) -> None:
    split = miniatures.cub(tmp_path)
    miniatures.write(tmp_path / "CUB_200_2011" / "image_class_labels.txt", ["1 1"])
    with pytest.raises(InputError, match=r"Image 2 of .* has no class"):
        load_benchmark("cub", tmp_path, split=split)


def test_metadata_that_are_no_text_or_no_numbers(tmp_path: Path) -> None:
    split = miniatures.cub(tmp_path)
    classes = tmp_path / "CUB_200_2011" / "classes.txt"
    miniatures.write(classes, ["one 001.Black_footed_Albatross"])
    with pytest.raises(InputError, match=r"classes\.txt does not number its classes"):
        load_benchmark("cub", tmp_path, split=split)
    classes.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"classes\.txt is not UTF-8 text"):
        load_benchmark("cub", tmp_path, split=split)


def test_cars_classes_count_from_one_and_keep_the_annotations_order(tmp_path: Path) -> None:
    benchmark, _ = mini("scars", tmp_path)
    acura, ram, hummer = "Acura RL Sedan 2012", "Ram C/V Cargo Van Minivan 2012", "AM General Hummer SUV 2000"
    assert rows(benchmark.train) == [
        ("00002.jpg", acura),
        ("00001.jpg", hummer),
        ("00003.jpg", ram),
        ("00004.jpg", acura),
    ]
    assert rows(benchmark.test) == [("00001.jpg", ram), ("00002.jpg", hummer)]
    assert benchmark.known == (acura, ram)


def test_cars_in_other_arrangements(tmp_path: Path) -> None:
    benchmark, split = mini("scars", tmp_path / "a")
    # annotations of the test images beside the devkit, the devkit beside the root, nested image folders
    annotations = tmp_path / "a" / "devkit" / "cars_test_annos_withlabels.mat"
    shutil.move(annotations, tmp_path / "a" / annotations.name)
    shutil.move(tmp_path / "a" / "devkit", tmp_path / "devkit")
    shutil.move(tmp_path / "a" / "cars_train", tmp_path / "moved")
    shutil.move(tmp_path / "moved", tmp_path / "a" / "cars_train" / "cars_train")
    again = load_benchmark("scars", tmp_path / "a", split=split)
    assert (rows(again.train), rows(again.test)) == (rows(benchmark.train), rows(benchmark.test))


def test_cars_without_test_annotations(tmp_path: Path) -> None:
    split = miniatures.scars(tmp_path)
    (tmp_path / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    assert load_benchmark("scars", tmp_path, split=split).test is None
    assert "no list of them" in str(check_benchmark("scars", tmp_path, split=split))


def test_cars_with_a_broken_devkit(tmp_path: Path) -> None:
    split = miniatures.scars(tmp_path)
    (tmp_path / "devkit" / "cars_train_annos.mat").write_bytes(b"no MATLAB file" * 20)
    with pytest.raises(InputError, match=r"cars_train_annos.mat is not a readable MATLAB file"):
        load_benchmark("scars", tmp_path, split=split)
    miniatures.annotations(tmp_path / "devkit" / "cars_train_annos.mat", [("00001.jpg", 4), ("00002.jpg", 1)])
    with pytest.raises(InputError, match="class outside the 3"):
        load_benchmark("scars", tmp_path, split=split)


def test_aircraft_classes_are_sorted_by_name(tmp_path: Path) -> None:
    benchmark, _ = mini("aircraft", tmp_path)
    assert benchmark.known == ("707-320", "F-16A/B")
    assert benchmark.novel == ("Boeing 717",)
    assert rows(benchmark.train)[:2] == [("1025794.jpg", "Boeing 717"), ("0056978.jpg", "F-16A/B")]


def test_imagenet_reads_only_the_classes_of_the_split(tmp_path: Path) -> None:
    benchmark, split = mini("imagenet100", tmp_path)
    assert rows(benchmark.train)[:2] == [
        ("n01443537_10026.JPEG", "goldfish"),
        ("n01443537_3.JPEG", "goldfish"),
    ]
    assert len(benchmark.train) == 6
    shutil.rmtree(tmp_path / "val")
    assert load_benchmark("imagenet100", tmp_path, split=split).test is None


def test_herbarium_counts_folders_as_text(tmp_path: Path) -> None:
    benchmark, _ = mini("herbarium19", tmp_path)
    assert benchmark.known == ("10", "0")  # sorted as text: 0, 1, 10, 2
    assert benchmark.novel == ("1", "2")
    assert [label for _, label in rows(benchmark.test)] == ["0", "1", "10", "2"]


@pytest.mark.parametrize("case", ["cifar10, binary", "cifar100, binary"])
def test_cifar_labels_are_those_of_its_records(case: str, tmp_path: Path) -> None:
    benchmark, _ = mini(case, tmp_path)
    assert benchmark.train.label.tolist()[:3] == ["bird", "airplane", "automobile"]
    assert benchmark.train.path[0].endswith(".bin#0")


@pytest.mark.parametrize("home", ["", "cifar/"])
@pytest.mark.parametrize(
    ("name", "names", "archive"),
    [
        ("cifar10", "cifar-10-batches-py/batches.meta", "cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-python/meta", "cifar-100-binary.tar.gz"),
    ],
)
def test_of_the_python_archive_alone_it_says_what_to_download(
    name: str, names: str, archive: str, home: str, tmp_path: Path
) -> None:
    miniatures.write(tmp_path / f"{home}{names}", ["a pickle"])
    with pytest.raises(InputError, match=re.escape(archive)):
        load_benchmark(name, tmp_path)


def test_the_python_archive_may_lie_beside_the_binary_one(tmp_path: Path) -> None:
    miniatures.write(tmp_path / "cifar-100-python" / "meta", ["a pickle"])
    assert len(mini("cifar100, binary", tmp_path)[0].train) == 3


def test_cifar_labels_outside_its_class_names(tmp_path: Path) -> None:
    split = miniatures.cifar10_binary(tmp_path)
    miniatures.binary(tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin", 0, [(0,), (1,), (7,)])
    with pytest.raises(InputError, match=r"data_batch_3.*outside the 3"):
        load_benchmark("cifar10", tmp_path, split=split)


@pytest.mark.parametrize("case", ["cifar10, binary", "cifar100, binary"])
def test_cifar_without_its_class_names(case: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path)
    for name in ("batches.meta.txt", "fine_label_names.txt"):
        Path(benchmark.train.root, name).unlink(missing_ok=True)
    with pytest.raises(InputError, match=rf"{Path(benchmark.train.root).name}/\S+ is missing"):
        load_benchmark(benchmark.name, tmp_path, split=split)


def test_cut_off_cifar_binary(tmp_path: Path) -> None:
    split = miniatures.cifar10_binary(tmp_path)
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_2.bin is not a whole number"):
        load_benchmark("cifar10", tmp_path, split=split)


GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "splits.npz")


def benchmark(label: list[str], known: tuple[str, ...], test: list[str] | None = None) -> Benchmark:
    novel = tuple(sorted(set(label) - set(known)))

    def table(values: list[str], name: str) -> Table:
        path = np.array([f"{name}{i}" for i in range(len(values))], dtype=object)
        return Table(path, np.array(values, dtype=object), known + novel, name=name)

    return Benchmark(
        "made", table(label, "made"), None if test is None else table(test, "made-test"), known, novel
    )


@pytest.mark.parametrize("key", [key for key in GOLDEN.files if key.startswith("n")])
def test_golden_draws(key: str) -> None:
    n = int(key[1:].partition(".")[0])
    # novel images in between must not shift the draw, which counts known-class images only
    label = [name for i in range(n) for name in (["new"] * (i % 3) + ["old"])]
    table = gcd_split(benchmark(label, ("old",)))
    position = np.cumsum(np.array(label) == "old") - 1
    assert sorted(position[table.labelled].tolist()) == sorted(GOLDEN[key].tolist())


@given(
    label=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40),
    n_known=st.integers(1, 6),
    share=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**32 - 1),
    stratified=st.booleans(),
)
def test_split_is_sound(label: list[str], n_known: int, share: float, seed: int, stratified: bool) -> None:
    known = tuple(reversed("abcdef"[:n_known]))
    made = benchmark(label, known)
    table = gcd_split(made, share=share, seed=seed, stratified=stratified)
    true = made.train.label
    assert table.path.tolist() == made.train.path.tolist()
    assert table.known == known
    assert table.to_frame()["truth"].tolist() == label
    assert set(table.label[table.labelled]) <= set(known)
    assert (table.label[table.labelled] == true[table.labelled]).all()
    counts = [sum(c == name for c in label) for name in known]
    if stratified:
        per_class = [int((table.label == name).sum()) for name in known]
        assert per_class == [min(n, max(1, int(share * n))) for n in counts]
    else:
        assert table.labelled.sum() == int(share * sum(counts))
    again = gcd_split(made, share=share, seed=seed, stratified=stratified)
    assert again.fingerprint() == table.fingerprint()


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    sample = load_benchmark("fashion-sample")
    first = gcd_split(sample)
    np.random.seed(3)
    assert gcd_split(sample).fingerprint() == first.fingerprint()
    assert gcd_split(sample, seed=1).fingerprint() != first.fingerprint()
    assert (len(first), int(first.labelled.sum())) == (1000, 250)


def test_splitting_leaves_the_global_generator_alone() -> None:
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    gcd_split(load_benchmark("fashion-sample"))
    assert np.random.rand() == expected


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="share"):
        gcd_split(benchmark(["a", "b"], ("a",)), share=share)


def test_held_out_hides_the_labels() -> None:
    table = held_out(benchmark(["a", "b"], ("a",), test=["b", "a", "a"]))
    assert table is not None
    assert not table.labelled.any()
    assert table.known == ("a",)
    assert table.to_frame()["truth"].tolist() == ["b", "a", "a"]
    assert table.name == "made-test"
    assert held_out(benchmark(["a", "b"], ("a",))) is None
