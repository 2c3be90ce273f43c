"""Labels of a stream of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.data.boxes import Box, with_box
from holotype.embeddings.coreset import FileLabels, FolderLabels, NoLabels
from holotype.errors import InputError

PATHS = ["fox/1.jpg", "unlabelled/2.jpg", "3.jpg", "hare/deep/4.jpg", "Unlabeled/5.jpg"]


def test_none_and_folders() -> None:
    assert [NoLabels().of(path) for path in PATHS] == [""] * 5
    assert [FolderLabels("/photos").of(path) for path in PATHS] == ["fox", "", "", "hare", ""]


@pytest.mark.parametrize(
    "path",
    [
        "../photos/fox/1.jpg",
        "/photos/fox/1.jpg",
        "s3://bucket/fox/1.jpg",
        "000.tar#fox/1.jpg",
        "a/train.parquet#12",
        "a/set.npz#12",
    ],
)
def test_what_is_in_no_folder_below_the_root_has_no_label(path: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("000.tar", "a/train.parquet", "a/set.npz"):
        (tmp_path / name).touch()
    assert FolderLabels(str(tmp_path)).of(path) == ""


def test_parts_of_pictures_and_objects_of_a_bucket_have_their_folder(tmp_path: Path) -> None:
    box = Box(0.1, 0.2, 0.3, 0.4)
    assert FolderLabels(str(tmp_path)).of(with_box("fox/1.jpg", box)) == "fox"
    assert FolderLabels("s3://bucket/photos").of("fox/1.jpg") == "fox"


def test_a_list_decides_and_folders_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "labels" / "labels.csv"
    file.parent.mkdir()
    file.write_text(f"path,label\n3.jpg,owl\n{tmp_path}/photos/fox/1.jpg,badger\nunlabelled/2.jpg,\n")
    labels = FileLabels(file, str(tmp_path / "photos"))
    for path in PATHS:
        labels.see([path])
    labels.settle()
    assert [labels.of(path) for path in PATHS] == ["badger", "", "owl", "", ""]


def test_paths_start_at_the_list_as_well(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\nphotos/3.jpg,owl\n")
    labels = FileLabels(file, str(tmp_path / "photos"))
    labels.see(PATHS)
    labels.settle()
    assert labels.of("3.jpg") == "owl"


def test_labels_of_images_that_are_not_there(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\n3.jpg,owl\n9.jpg,owl\nfox/8.jpg,fox\n")
    labels = FileLabels(file, str(tmp_path))
    labels.see(PATHS)
    with pytest.raises(InputError, match=r"^2 of the 3 images .* '9.jpg' \(line 3\)"):
        labels.settle()


def test_two_labels_of_one_image(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\n3.jpg,owl\n./3.jpg,fox\n")
    labels = FileLabels(file, str(tmp_path))
    labels.see(PATHS)
    with pytest.raises(InputError, match="more than once with different labels"):
        labels.settle()


def test_a_list_labels_boxes_and_all_boxes_of_a_picture(tmp_path: Path) -> None:
    """A picture's label is that of its boxes, unless one of them has a row of its own."""
    left, right = Box(0.1, 0.2, 0.3, 0.4), Box(0.5, 0.2, 0.3, 0.4)
    (tmp_path / "labels.csv").write_text(
        f'path,label,box\n3.jpg,owl,\n"{with_box("fox/1.jpg", left)}",fox,\nhare/4.jpg,hare,"0.5,0.2,0.3,0.4"\n'
    )
    labels = FileLabels(tmp_path / "labels.csv", str(tmp_path))
    paths = [with_box(path, box) for path in ("3.jpg", "fox/1.jpg", "hare/4.jpg") for box in (left, right)]
    labels.see(paths)
    labels.settle()
    assert [labels.of(path) for path in paths] == ["owl", "owl", "fox", "", "", "hare"]


def test_a_box_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text('path,label,box\n3.jpg,owl,"0.5,0.2,0.3,0.4"\n')
    labels = FileLabels(tmp_path / "labels.csv", str(tmp_path))
    labels.see([with_box("3.jpg", Box(0.1, 0.2, 0.3, 0.4)), "3.jpg"])
    with pytest.raises(InputError, match=r"^1 of the 1 images .* '3.jpg' \(line 2\)"):
        labels.settle()
