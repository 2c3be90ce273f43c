"""A messy folder, as people have it, at a first look: every line that is due, and none that is not."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from PIL import Image

from holotype.config.schema import DiscoverConfig
from holotype.data.load import load_table
from holotype.discovery.dry_run import inspect_collection, log_report
from holotype.discovery.pipeline import discover_table
from holotype.discovery.round_runner import Round
from tests.data.test_duplicates import picture
from tests.discovery.made_round import edits_file

CLASSES = {"Canna Lily": 4, "canna_lily": 3, "red kite": 6, "unsorted": 5, "unlabelled": 9}


def paint(root: Path, classes: dict[str, int]) -> Path:
    """Pictures that are all different, in folders of these names and numbers."""
    seed = 0
    for name, n in classes.items():
        for number in range(n):
            seed += 1
            file = root / name / f"{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            picture(seed).save(file)
    return root


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    root = paint(tmp_path / "photos", CLASSES)
    (root / "hedgehog").mkdir()
    (root / "hedgehog" / "1.jpg").write_bytes(b"no image")
    (root / "red kite" / "5.jpg").write_bytes(b"")
    shutil.copy(root / "red kite" / "0.jpg", root / "unlabelled" / "copy.jpg")
    shutil.copy(root / "red kite" / "1.jpg", root / "Canna Lily" / "kite.jpg")
    shutil.copy(root / "unlabelled" / "1.jpg", root / "unlabelled" / "again.jpg")
    with Image.open(root / "red kite" / "2.jpg") as image:
        image.resize((80, 60)).save(root / "canna_lily" / "small.jpg", quality=70)
    (root / "labels.csv").write_text("path;label\nC:\\me\\red kite\\0.jpg;buzzard\nred kite/1.jpg;red kite\n")
    (root / "Thumbs.db").write_bytes(b"x")
    (root / "@eaDir").mkdir()
    picture(0).save(root / "@eaDir" / "preview.jpg")
    return root


def test_every_line_that_is_due(messy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(messy.parent)
    seen = inspect_collection(load_table(messy), DiscoverConfig(k=9))
    assert seen.lines == [
        "32 images: 21 labelled in 5 classes, 11 unlabelled. --k 9 leaves room for 5 new categories.",
        "Classes by labelled images: red kite 6, Canna Lily 5, unsorted 5, canna_lily 4, hedgehog 1.",
        "Probably one class under 2 names, but treated as 2 classes: Canna Lily (5), canna_lily (4).",
        "Is unsorted a class, or a folder of unsorted images? --unlabelled unsorted treats its 5 images as unlabelled.",
        "photos/labels.csv says otherwise of the labels of 1 image; --labels photos/labels.csv takes what it says.",
        "The same file under different labels: 1 pair, Canna Lily/kite.jpg and red kite/1.jpg; "
        "check these labels first.",
        "The same file both labelled and unlabelled: 1 pair, unlabelled/copy.jpg and red kite/0.jpg.",
        "The same file twice in a class or among the unlabelled: 1 pair, unlabelled/1.jpg and unlabelled/again.jpg.",
        "Nearly the same picture under different labels: 1 pair, canna_lily/small.jpg and red kite/2.jpg; "
        "check these labels first.",
    ]
    assert [line.partition(":")[0] for line in seen.unread] == [
        "2 images cannot be read",
        "No labelled image of hedgehog can be read, so it is no class here.",
    ]
    assert "red kite/5.jpg is empty (0 bytes)." in seen.unread[0]
    assert seen.table.known == ("Canna Lily", "canna_lily", "red kite", "unsorted")
    assert int((~seen.table.usable).sum()) == 2


def test_a_tidy_folder_has_no_further_lines(squares_folder: Path) -> None:
    """squares.csv lies in it and says the same."""
    seen = inspect_collection(load_table(squares_folder), DiscoverConfig())
    assert seen.lines == [
        "64 images: 16 labelled in 2 classes, 48 unlabelled. How many categories there are is estimated (--k sets it).",
        "Classes by labelled images: green 8, red 8.",
    ]
    assert seen.unread == []


def test_a_list_that_is_used_is_no_news(messy: Path) -> None:
    seen = inspect_collection(load_table(messy, messy / "labels.csv"), DiscoverConfig())
    assert "32 images: 2 labelled in 2 classes, 30 unlabelled." in seen.lines[0]
    assert not any("labels.csv" in line for line in seen.lines)


def test_a_list_of_labels_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    root = paint(tmp_path / "photos", {"a": 3, "b": 3})
    (root / "labels.txt").write_text("1.jpg is a fox\n")
    (root / "readme.txt").write_text("hello\n")
    (root / "prices.csv").write_text("item,price\nfilm,3\n")
    told = [
        line for line in inspect_collection(load_table(root), DiscoverConfig()).lines if "not used" in line
    ]
    assert len(told) == 1
    assert "labels.txt has no column 'path'" in told[0]


def test_examples_are_few(tmp_path: Path) -> None:
    names = {
        f"{name}{sign}{number:02d}": 1 for number in range(8) for name in ("finch", "Finch") for sign in "-_"
    }
    root = paint(tmp_path / "photos", names | {"unlabelled": 1})
    for number in range(5):
        shutil.copy(root / "finch-00" / "0.jpg", root / "unlabelled" / f"copy {number}.jpg")
    result, classes, *groups, copies, rest = inspect_collection(load_table(root), DiscoverConfig()).lines
    assert "32 labelled in 32 classes, 6 unlabelled" in result
    assert classes.endswith("and 20 more of 1 image.")
    assert len(groups) == 4
    assert groups[3].startswith("5 more groups of names like these: Finch-03, Finch_03")
    assert copies.startswith("The same file both labelled and unlabelled: 1 pair")
    assert "4 pairs, for example unlabelled/copy 0.jpg and unlabelled/copy 1.jpg;" in rest


def test_a_collection_of_nothing_readable(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(name.encode())
    seen = inspect_collection(load_table(tmp_path), DiscoverConfig())
    assert seen.table.known == ()
    assert "No labelled image of a, b can be read, so they are no classes here." in seen.unread


def test_a_discovery_begins_with_the_same_lines(
    messy: Path, round: Round, caplog: pytest.LogCaptureFixture
) -> None:
    table = load_table(messy)
    with caplog.at_level(logging.INFO, "holotype"):
        log_report(round, table)
    *lines, time = caplog.messages
    assert lines == inspect_collection(table, round.config).lines
    assert time.startswith("Time on this CPU, roughly: ")


def test_a_class_that_cannot_be_read_is_none(squares_folder, small, tmp_path, caplog) -> None:
    shutil.copytree(squares_folder, tmp_path / "photos")
    (tmp_path / "photos" / "hedgehog").mkdir()
    (tmp_path / "photos" / "hedgehog" / "1.png").write_bytes(b"no picture")
    with caplog.at_level("INFO", "holotype"):
        found = discover_table(load_table(tmp_path / "photos"), small(), tmp_path / "run", progress=False)
    assert found.known == ("green", "red")
    assert "hedgehog" not in [category.name for category in found.categories]
    told = "The known class 'hedgehog' takes no part in this round: its one labelled image cannot be read."
    assert caplog.messages.count(told) == 1
    assert any(line.startswith("65 images: 17 labelled in 3 classes") for line in caplog.messages)


def test_a_later_round_begins_with_a_look_too(squares_folder, small, tmp_path, caplog) -> None:
    """Classes with the labels and the names that edits gave, near-equal names, lists that lie there, the time."""
    photos, run, asked = tmp_path / "photos", tmp_path / "run", small(method="kmeans")
    shutil.copytree(squares_folder, photos)
    (photos / "squares.csv").unlink()
    found = discover_table(load_table(photos), asked, run, progress=False)
    new = next(category for category in found.categories if category.kind == "novel")
    image = found.images.path[found.images.category_id == new.id].iloc[0]
    file = edits_file(run, ("rename", "", new.id, "Sky"), ("confirm", image, new.id, new.id))
    (photos / "sky").mkdir()
    for number in range(2):
        picture(number).save(photos / "sky" / f"{number}.jpg")
    (photos / "labels.csv").write_text("path,label\nunlabelled/red-15.png,red\n")
    with caplog.at_level("INFO", "holotype"):
        discover_table(load_table(photos), asked, run, progress=False, edits=file)
    told = caplog.messages
    first = "66 images: 19 labelled in 4 classes, 47 unlabelled. --k 4 leaves room for 0 new categories."
    assert told.index("Another round is needed.") < told.index(first)
    assert "Classes by labelled images: green 8, red 8, sky 2, Sky 1." in told
    assert "Probably one class under 2 names, but treated as 2 classes: Sky (1), sky (2)." in told
    assert any("labels.csv says otherwise of the labels of 1 image" in line for line in told)
    assert any(line.startswith("Time on this CPU, roughly: ") for line in told)
