"""What is special in the layout of each data set, and what a damaged copy of it says."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.data.datasets.registry import check_benchmark, load_benchmark
from holotype.data.decode import read_image
from holotype.errors import InputError

from . import miniatures
from .miniatures import mini, rows


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


def test_links_that_lead_back_up_are_followed_once(tmp_path: Path) -> None:
    benchmark, split = mini("cifar100-200", tmp_path)
    folder = Path(benchmark.train.path[0]).parent
    (folder / "up").symlink_to(folder)
    again = load_benchmark("cifar100-200", tmp_path, split=split)
    assert again.train.path.tolist() == benchmark.train.path.tolist()


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


def test_cifar_pixels_are_planes(tmp_path: Path) -> None:
    benchmark, _ = mini("cifar100, binary", tmp_path)
    image = np.asarray(read_image(benchmark.train.path[1])[0])
    planes = miniatures.cifar_pixels(0)[1]
    assert image[3, 7].tolist() == [planes[c * 1024 + 3 * 32 + 7] for c in range(3)]


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
