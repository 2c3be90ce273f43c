"""Each loader reads its official layout in the official order, and says which file it misses."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.data.benchmarks import BENCHMARKS, LAYOUTS, Benchmark, check, load_benchmark, read_facts
from holotype.data.decode import read_image
from holotype.data.layouts.listing import ClassSplit
from holotype.data.protocol import gcd_split, held_out
from holotype.data.table import Table
from holotype.errors import InputError

from . import miniatures
from .miniatures import MINIATURES

PARITY = Path(__file__).parents[1] / "parity"


def mini(case: str, root: Path) -> tuple[Benchmark, ClassSplit]:
    name, build = MINIATURES[case]
    split = build(root)
    return load_benchmark(name, root, split=split), split


def rows(table: Table | None) -> list[tuple[str, str]]:
    assert table is not None
    return [(os.path.basename(p), c) for p, c in zip(table.path, table.label, strict=True)]


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
    assert message != lost.name or read_facts(benchmark.name).origin in str(caught.value)
    report = check(benchmark.name, tmp_path, split=split)
    assert not report.ok
    assert message in str(report)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "fashion-sample"])
def test_an_empty_folder_says_what_is_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is missing; the data come from") as caught:
        load_benchmark(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert not check(name, tmp_path).ok


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
    report = check(benchmark.name, tmp_path, split=split)
    assert report.ok
    assert "test images: all 2" in str(report)


def test_names_and_roots_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no benchmark called 'cubs'; there are cub, scars"):
        load_benchmark("cubs", tmp_path)
    with pytest.raises(InputError, match="give the folder"):
        load_benchmark("cub")
    with pytest.raises(InputError, match="does not exist"):
        load_benchmark("cub", tmp_path / "absent")
    with pytest.raises(InputError, match="no benchmark called"):
        check("cubs", tmp_path)


def test_report_for_a_complete_set(tmp_path: Path) -> None:
    split = miniatures.cub(tmp_path)
    report = check("cub", tmp_path, split=split)
    assert report.ok
    assert report.missing == ()
    assert report.found == ("3 classes", "4 of 4 training images", "2 of 2 test images")
    assert "ready" in str(report)
    assert report.origin in str(report)


# what is special in each


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
    assert "no list of them" in str(check("scars", tmp_path, split=split))


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


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_cifar_archives_hold_the_same(name: str, tmp_path: Path) -> None:
    binary, _ = mini(f"{name}, binary", tmp_path / "b")
    python, _ = mini(f"{name}, python", tmp_path / "p")
    assert binary.train.label.tolist() == python.train.label.tolist()
    assert binary.train.label.tolist()[:3] == ["bird", "airplane", "automobile"]
    for part in ("train", "test"):
        pairs = zip(getattr(binary, part).path, getattr(python, part).path, strict=True)
        assert all(read_image(a)[0].tobytes() == read_image(b)[0].tobytes() for a, b in pairs)
    assert binary.train.path[0].endswith(".bin#0")


def test_cifar_pixels_are_planes(tmp_path: Path) -> None:
    benchmark, _ = mini("cifar100, binary", tmp_path)
    image = np.asarray(read_image(benchmark.train.path[1])[0])
    planes = miniatures.cifar_pixels(0)[1]
    assert image[3, 7].tolist() == [planes[c * 1024 + 3 * 32 + 7] for c in range(3)]


def test_cifar_batches_that_lie(tmp_path: Path) -> None:
    split = miniatures.cifar10_python(tmp_path)
    base = tmp_path / "cifar-10-batches-py"
    pixels = miniatures.cifar_pixels(0)
    for labels, message in [
        ([0, 1], "not one label"),
        ([0, 1, 7], "outside the 3"),
        (["a"] * 3, "no list 'labels'"),
    ]:
        miniatures.batch(base / "data_batch_3", {b"data": pixels, b"labels": labels})
        with pytest.raises(InputError, match=f"data_batch_3.*{message}"):
            load_benchmark("cifar10", tmp_path, split=split)
    (base / "data_batch_3").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InputError, match="data_batch_3 was refused"):
        load_benchmark("cifar10", tmp_path, split=split)


@pytest.mark.parametrize(
    "case", ["cifar10, binary", "cifar10, python", "cifar100, binary", "cifar100, python"]
)
def test_cifar_without_its_class_names(case: str, tmp_path: Path) -> None:
    benchmark, split = mini(case, tmp_path)
    for name in ("batches.meta.txt", "batches.meta", "fine_label_names.txt", "meta"):
        Path(benchmark.train.root, name).unlink(missing_ok=True)
    with pytest.raises(InputError, match=rf"{Path(benchmark.train.root).name}/\S+ is missing"):
        load_benchmark(benchmark.name, tmp_path, split=split)


def test_cut_off_cifar_binary(tmp_path: Path) -> None:
    split = miniatures.cifar10_binary(tmp_path)
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_2.bin is not a whole number"):
        load_benchmark("cifar10", tmp_path, split=split)


# the embedded sample and the packaged splits


def test_the_sample_needs_nothing() -> None:
    benchmark = load_benchmark("fashion-sample")
    assert len(benchmark.train) == 1000
    assert benchmark.test is None
    assert benchmark.known == ("T-shirt", "Trouser", "Pullover", "Dress", "Coat")
    assert benchmark.novel == ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    assert np.bincount(benchmark.train.target).tolist() == [100] * 10
    assert read_image(benchmark.train.path[999])[0].size == (28, 28)
    report = check("fashion-sample")
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
    "fashion-sample": (5, 5),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_packaged_splits_part_all_classes(name: str) -> None:
    facts = read_facts(name)
    assert (len(facts.split.known), len(facts.split.novel)) == SIZES[name]
    assert sorted(facts.split.known + facts.split.novel) == list(range(facts.classes))


def test_imagenet100_is_the_draw_of_the_reference_code() -> None:
    import json

    import holotype.data

    file = Path(holotype.data.__file__).parent / "splits" / "imagenet100.json"
    packaged = json.loads(file.read_text())
    drawn = np.sort(np.random.RandomState(0).choice(1000, size=100, replace=False))
    assert packaged["imagenet_index"] == drawn.tolist()
    assert packaged["imagenet_index"] == np.load(PARITY / "splits.npz")["imagenet100.classes"].tolist()
    assert len(set(packaged["folders"])) == len(set(packaged["names"])) == 100
    assert packaged["folders"] == sorted(packaged["folders"])


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
