"""Each loader reads its official layout in its order, and says which file it misses; the GCD split; samplers."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
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
from holotype.data.samplers import balanced_rows, keyed_generator, keyed_uniforms, uniform_rows
from holotype.data.table import Table
from holotype.errors import InputError

from . import miniatures
from .miniatures import MINIATURES, mini, rows

__all__ = ["mini"]

GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "splits.npz")
BY_FOLDER = ("imagenet100", "cifar100-200", "herbarium19")


@pytest.mark.parametrize("name", MINIATURES)
def test_every_layout_gives_a_complete_benchmark(name: str, tmp_path: Path, mini, monkeypatch) -> None:
    root = tmp_path / "sets #1"  # a hash in its name means nothing
    benchmark = mini(name, root)
    assert not set(benchmark.known) & set(benchmark.novel)
    for table in filter(None, (benchmark.train, benchmark.test)):
        assert set(table.label) <= set(benchmark.known + benchmark.novel)
        assert table.labelled.all()
        assert all(read_image(path)[0].size in ((5, 4), (32, 32)) for path in table.path)
    assert (benchmark.test is None) == (name == "cifar100-200")
    assert check_benchmark(name, root).ok
    itself = load_benchmark(name, benchmark.train.root)  # the folder itself or the one above
    assert itself.train.fingerprint() == benchmark.train.fingerprint()
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"classes were found|is missing"):
        load_benchmark(name, root)  # a miniature is not taken for the benchmark


@pytest.mark.parametrize("name", MINIATURES)
def test_a_missing_training_file_is_named(name: str, tmp_path: Path, mini) -> None:
    benchmark = mini(name, tmp_path)
    # where folders are the list a lost file leaves no trace, so a class folder goes
    last = Path(benchmark.train.path[-1].partition("#")[0])
    lost = last.parent if name in BY_FOLDER else last
    shutil.rmtree(lost) if name in BY_FOLDER else lost.unlink()
    message = "classes were found" if name in ("cifar100-200", "herbarium19") else lost.name
    with pytest.raises(InputError, match=message) as caught:
        load_benchmark(name, tmp_path)
    assert message != lost.name or read_dataset_info(name).origin in str(caught.value)
    report = check_benchmark(name, tmp_path)
    assert not report.ok
    assert message in str(report)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "fashion-sample"])
def test_an_empty_folder_says_what_is_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="; the data come from") as caught:
        load_benchmark(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    if name.startswith("cifar1") and name != "cifar100-200":
        assert f"{name.replace('cifar', 'cifar-')}-binary.tar.gz" in str(caught.value)
    assert not check_benchmark(name, tmp_path).ok


@pytest.mark.parametrize("name", ["cub", "scars", "aircraft"])
def test_test_images_may_be_absent_but_not_in_part(name: str, tmp_path: Path, mini) -> None:
    benchmark = mini(name, tmp_path)
    report = check_benchmark(name, tmp_path)
    assert report.found == ("3 classes", "4 of 4 training images", "2 of 2 test images")
    assert "ready" in str(report)
    first, *others = benchmark.test.path
    os.remove(first)
    with pytest.raises(InputError, match=rf"{os.path.basename(first)} is missing, with 1 of 2 test images"):
        load_benchmark(name, tmp_path)
    for path in others:
        os.remove(path)
    assert load_benchmark(name, tmp_path).test is None
    report = check_benchmark(name, tmp_path)
    assert report.ok
    assert "test images: all 2" in str(report)


def test_names_and_roots_are_checked(tmp_path: Path) -> None:
    for check in (load_benchmark, check_benchmark):
        with pytest.raises(InputError, match=r"no benchmark called 'cubs' \(did you mean cub\?\); there are"):
            check("cubs", tmp_path)
        for root in (None, tmp_path / "absent"):
            with pytest.raises(InputError, match="give the folder"):
                check("cub", root)


def test_the_sample_needs_nothing() -> None:
    benchmark = load_benchmark("fashion-sample")
    assert (len(benchmark.train), benchmark.test) == (1000, None)
    assert benchmark.known == ("T-shirt", "Trouser", "Pullover", "Dress", "Coat")
    assert benchmark.novel == ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    assert np.bincount(benchmark.train.target).tolist() == [100] * 10
    assert read_image(benchmark.train.path[999])[0].size == (28, 28)
    report = check_benchmark("fashion-sample")
    assert (report.ok, report.missing) == (True, ())
    # the path of the installation is not in it
    assert gcd_split(benchmark).fingerprint().startswith("7053323a5a8da8ea")


def test_packaged_splits_part_all_classes_and_imagenet100_is_the_draw_of_the_reference_code() -> None:
    sizes = {}
    for name in BENCHMARKS:
        facts = read_dataset_info(name)
        sizes[name] = (len(facts.split.known), len(facts.split.novel))
        assert sorted(facts.split.known + facts.split.novel) == list(range(facts.classes))
    assert sizes.pop("herbarium19") == (341, 342)
    assert {name for name, (known, novel) in sizes.items() if known != novel} == {"cifar100", "cifar100-200"}
    packaged = json.loads((registry.HERE / "splits" / "imagenet100.json").read_text())
    drawn = np.sort(np.random.RandomState(0).choice(1000, size=100, replace=False))
    assert packaged["imagenet_index"] == drawn.tolist() == GOLDEN["imagenet100.classes"].tolist()
    assert len(set(packaged["folders"])) == len(set(packaged["names"])) == 100
    assert packaged["folders"] == sorted(packaged["folders"])


def test_scars_8137_has_the_counts_of_the_protocol_and_is_not_taken_for_scars(tmp_path: Path) -> None:
    """The layout of all 196 classes, with images in the order of their names."""
    split = read_dataset_info("scars").split
    classes = [split.known[i % 98] for i in range(3999)] + [split.novel[i % 98] for i in range(4138)]
    images = [(f"{i:06d}.jpg", label + 1) for i, label in enumerate(classes)]
    train, devkit = (tmp_path / "stanford_cars" / name for name in ("cars_train", "devkit"))
    train.mkdir(parents=True)
    devkit.mkdir()
    for name, _ in images:
        (train / name).touch()
    names = np.array([[f"car {i}" for i in range(196)]], dtype=object)
    savemat(devkit / "cars_meta.mat", {"class_names": names})
    miniatures.annotations(devkit / "cars_train_annos.mat", images)
    benchmark = load_benchmark("scars-8137", tmp_path)
    assert (benchmark.name, len(benchmark.novel), benchmark.test) == ("scars-8137", 98, None)
    assert benchmark.known == tuple(f"car {i}" for i in split.known)
    names = [name for name, _ in rows(benchmark.train)]
    assert names == sorted(names)
    table = gcd_split(benchmark)
    old = np.isin(table.truth, benchmark.known) & ~table.labelled
    assert (len(table), table.labelled.sum(), old.sum(), (~table.labelled).sum()) == (8137, 1999, 2000, 6138)
    with pytest.raises(InputError, match=r"scars: 8,137 training images are listed .* has 8,144"):
        load_benchmark("scars", tmp_path)


def refused(name: str, root: Path) -> str:
    with pytest.raises(InputError) as error:
        load_benchmark(name, root)
    return str(error.value)


def test_cub_keeps_the_order_of_images_txt(tmp_path: Path, mini) -> None:
    benchmark = mini("cub", tmp_path)
    parts = [[], []]
    for file, _, train in miniatures.CUB_IMAGES:
        parts[1 - train].append((os.path.basename(file), file.partition("/")[0]))
    assert [rows(benchmark.train), rows(benchmark.test)] == parts
    assert benchmark.known == ("003.Sooty_Albatross", "001.Black_footed_Albatross")
    labels, classes = (tmp_path / "CUB_200_2011" / f"{x}.txt" for x in ("image_class_labels", "classes"))
    miniatures.write(labels, ["1 1"])
    assert "Image 2 of" in refused("cub", tmp_path)
    miniatures.write(classes, ["one 001.Black_footed_Albatross"])
    assert "does not number its classes" in refused("cub", tmp_path)
    classes.write_bytes(b"\xff\xfe\x00")
    assert "classes.txt is not UTF-8 text" in refused("cub", tmp_path)


def test_cars_count_from_one_and_keep_the_annotations_order(tmp_path: Path, mini) -> None:
    home = tmp_path / "a"
    benchmark = mini("scars", home)
    acura, ram, hummer = "Acura RL Sedan 2012", "Ram C/V Cargo Van Minivan 2012", "AM General Hummer SUV 2000"
    train = [("00002.jpg", acura), ("00001.jpg", hummer), ("00003.jpg", ram), ("00004.jpg", acura)]
    assert rows(benchmark.train) == train
    assert rows(benchmark.test) == [("00001.jpg", ram), ("00002.jpg", hummer)]
    assert benchmark.known == (acura, ram)
    # annotations of the test images beside the devkit, the devkit beside the root, nested image folders
    test = home / "cars_test_annos_withlabels.mat"
    shutil.move(home / "devkit" / test.name, test)
    shutil.move(home / "devkit", tmp_path / "devkit")
    shutil.move(home / "cars_train", tmp_path / "moved")
    shutil.move(tmp_path / "moved", home / "cars_train" / "cars_train")
    again = load_benchmark("scars", home)
    assert (rows(again.train), rows(again.test)) == (rows(benchmark.train), rows(benchmark.test))
    test.unlink()
    assert load_benchmark("scars", home).test is None
    assert "no list of them" in str(check_benchmark("scars", home))
    file, both = tmp_path / "devkit" / "cars_train_annos.mat", [("class", object), ("fname", object)]
    for content, message in (
        ([("00001.jpg", 4), ("00002.jpg", 1)], "class outside the 3"),
        ({"other": [1]}, "has no variable annotations"),
        ({"annotations": np.array([(1,)], dtype=[("fname", object)])}, "lists no class"),
        ({"annotations": np.array([("x", "1.jpg")], dtype=both)}, "no number"),
    ):
        miniatures.annotations(file, content) if isinstance(content, list) else savemat(file, content)
        assert message in refused("scars", home)
    file.write_bytes(b"no MATLAB file" * 20)
    assert "is not a readable MATLAB file" in refused("scars", home)
    shutil.rmtree(tmp_path / "devkit")
    assert "devkit is missing" in refused("scars", home)


def test_aircraft_classes_are_sorted_and_folders_are_classes_as_the_split_counts_them(tmp_path: Path, mini):
    benchmark = mini("aircraft", tmp_path)
    assert (benchmark.known, benchmark.novel) == (("707-320", "F-16A/B"), ("Boeing 717",))
    assert rows(benchmark.train)[:2] == [("1025794.jpg", "Boeing 717"), ("0056978.jpg", "F-16A/B")]
    miniatures.write(Path(benchmark.train.root) / "variants.txt", ["F-16A/B", "707-320", "Spitfire"])
    assert "which variants.txt lacks" in refused("aircraft", tmp_path)
    benchmark = mini("imagenet100", tmp_path)  # only the classes of the split are read
    fish = [("n01443537_10026.JPEG", "goldfish"), ("n01443537_3.JPEG", "goldfish")]
    assert (rows(benchmark.train)[:2], len(benchmark.train)) == (fish, 6)
    shutil.rmtree(tmp_path / "val")
    assert load_benchmark("imagenet100", tmp_path).test is None
    benchmark = mini("herbarium19", tmp_path)
    assert (benchmark.known, benchmark.novel) == (("10", "0"), ("1", "2"))  # sorted as text: 0, 1, 10, 2
    assert [label for _, label in rows(benchmark.test)] == ["0", "1", "10", "2"]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_labels_are_those_of_its_records(name: str, tmp_path: Path, mini) -> None:
    benchmark = mini(name, tmp_path)
    base, file = Path(benchmark.train.root), Path(benchmark.train.path[0].partition("#")[0])
    assert benchmark.train.label.tolist()[:3] == ["bird", "airplane", "automobile"]
    miniatures.binary(file, 0, [(7,), (0,), (1,)] if name == "cifar10" else [(7, 7), (0, 0), (0, 1)])
    assert "outside the 3" in refused(name, tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    assert "is not a whole number" in refused(name, tmp_path)
    for names in ("batches.meta.txt", "fine_label_names.txt"):
        (base / names).unlink(missing_ok=True)
    said = refused(name, tmp_path)
    assert f"{base.name}/" in said
    assert "a pickle and is not read" in said


def benchmark(label: list[str], known: tuple[str, ...], test: list[str] | None = None) -> Benchmark:
    novel = tuple(sorted(set(label) - set(known)))

    def table(values: list[str], name: str) -> Table:
        path = np.array([f"{name}{i}" for i in range(len(values))], dtype=object)
        return Table(path, np.array(values, dtype=object), known + novel, name=name)

    tested = None if test is None else table(test, "made-test")
    return Benchmark("made", table(label, "made"), tested, known, novel)


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
)
def test_split_is_sound(label: list[str], n_known: int, share: float, seed: int) -> None:
    known = tuple(reversed("abcdef"[:n_known]))
    made = benchmark(label, known)
    table = gcd_split(made, share=share, seed=seed)
    true = made.train.label
    assert table.path.tolist() == made.train.path.tolist()
    assert table.known == known
    assert table.to_frame()["truth"].tolist() == label
    assert set(table.label[table.labelled]) <= set(known)
    assert (table.label[table.labelled] == true[table.labelled]).all()
    assert table.labelled.sum() == int(share * sum(name in known for name in label))
    assert gcd_split(made, share=share, seed=seed).fingerprint() == table.fingerprint()


def test_the_seed_decides_the_draw_and_held_out_images_hide_their_labels() -> None:
    sample = load_benchmark("fashion-sample")
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    first = gcd_split(sample)
    assert np.random.rand() == expected  # the global generator is left alone
    assert gcd_split(sample).fingerprint() == first.fingerprint() != gcd_split(sample, seed=1).fingerprint()
    assert (len(first), int(first.labelled.sum())) == (1000, 250)
    for share in (0.0, -0.5, 1.5, float("nan")):
        with pytest.raises(InputError, match="share"):
            gcd_split(sample, share=share)
    table = held_out(benchmark(["a", "b"], ("a",), test=["b", "a", "a"]))
    assert table is not None
    assert not table.labelled.any()
    assert (table.known, table.name) == (("a",), "made-test")
    assert table.to_frame()["truth"].tolist() == ["b", "a", "a"]
    assert held_out(sample) is None


LABELLED, UNLABELLED = torch.arange(0, 30), torch.arange(30, 120)


def test_a_key_decides_the_numbers_and_rows_are_balanced_or_uniform() -> None:
    first = torch.rand(4, generator=keyed_generator(0, 1, "rows"))
    torch.manual_seed(99)
    assert torch.equal(first, torch.rand(4, generator=keyed_generator(0, 1, "rows")))
    for key in [(0, 1, "crop"), (0, 2, "rows"), (1, 1, "rows"), (0, "1", "rows"), (0, 1, "rows", 0)]:
        assert not torch.equal(first, torch.rand(4, generator=keyed_generator(*key)))
    rows = balanced_rows(LABELLED, UNLABELLED, 60_000, keyed_generator("test"))
    assert abs((rows < 30).double().mean() - 0.5) < 0.01  # 5 standard deviations of a fair coin
    counts = torch.bincount(rows, minlength=120).double()
    assert (counts[:30] / 1000 - 1).abs().max() < 0.2
    assert (counts[30:] / (30_000 / 90) - 1).abs().max() < 0.3
    none = torch.empty(0, dtype=torch.long)
    assert balanced_rows(LABELLED, none, 50, keyed_generator("test")).max() < 30
    assert balanced_rows(none, UNLABELLED, 50, keyed_generator("test")).min() >= 30
    # uniform rows take every image at most once
    rows = uniform_rows(LABELLED, UNLABELLED, 120, keyed_generator("test"))
    assert sorted(rows.tolist()) == list(range(120))
    assert len(set(uniform_rows(LABELLED, UNLABELLED, 50, keyed_generator("test")).tolist())) == 50


def test_keyed_uniforms_belong_to_their_own_keys() -> None:
    keys = [bytes([i]) * 16 for i in range(200)]
    some, all_ = keyed_uniforms(keys[50:], 3, "a", 1), keyed_uniforms(keys, 3, "a", 1)
    assert torch.equal(some, all_[:, 50:])
    assert not torch.equal(all_, keyed_uniforms(keys, 3, "a", 2))
    assert float(all_.min()) >= 0
    assert float(all_.max()) < 1
    assert abs(float(all_.mean()) - 0.5) < 0.05
    assert abs(float(torch.corrcoef(all_)[0, 1])) < 0.2
