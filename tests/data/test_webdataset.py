"""Tars as WebDataset packs them: keys, labels, tars that are cut, and a discovery from end to end."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from holotype.data.decode import ImageProblem, read_image
from holotype.data.hashing import file_digest
from holotype.data.load import load_table
from holotype.data.readers import webdataset
from holotype.errors import InputError
from holotype.results.discovery import Discovery

from .packed import images_of, square, write_shards, write_tar


def test_labels_lie_beside_the_images(tmp_path: Path) -> None:
    members = [
        ("./a.jpg", square((1, 2, 3), kind="JPEG")),
        ("./a.cls", b"fox\n"),
        ("b.png", square()),
        ("b.json", b'{"label": "owl", "id": 7}'),
        ("c.png", square()),
        ("c.txt", b"hare"),
        ("d.png", square()),
        (
            "d.txt",
            b"A long sentence about what the photograph shows, which nobody would call a label at all.",
        ),
        ("e.png", square()),
        ("e.json", b'{"id": 8}'),
        ("readme.md", b"hello"),
    ]
    table = load_table(write_tar(tmp_path / "s.tar", members))
    assert [path.rpartition("#")[2] for path in table.path] == ["a", "b", "c", "d", "e"]
    assert list(table.label) == ["fox", "owl", "hare", "", ""]
    assert (table.name, table.root) == ("s", str(tmp_path))


def test_no_image_is_lost_to_the_key_of_another(tmp_path: Path) -> None:
    members = [("1.left.png", square((1, 1, 1))), ("1.right.png", square((2, 2, 2))), ("1.cls", b"fox")]
    members += [("2.png", square((3, 3, 3))), ("2.jpg", square((200, 200, 200), kind="JPEG"))]
    table = load_table(write_tar(tmp_path / "s.tar", members))
    assert [path.rpartition("#")[2] for path in table.path] == ["1.left", "1.right", "2", "2.jpg"]
    assert list(table.label) == ["fox", "fox", "", ""]
    assert [read_image(path)[0].getpixel((0, 0))[0] for path in table.path] == [1, 2, 3, 200]


def test_braces_stars_and_folders_mean_the_same_shards(tmp_path: Path) -> None:
    rows = [(f"{i:02d}", square((i, i, i)), "fox" if i % 2 else "") for i in range(10)]
    write_shards(tmp_path, rows, 4)
    table = load_table(str(tmp_path / "shard-{000..002}.tar"))
    assert [Path(path).name for path in table.path[3:5]] == ["shard-000.tar#03", "shard-001.tar#04"]
    assert table.name == "shard-000-002"
    for other in (str(tmp_path / "shard-*.tar"), tmp_path):
        assert list(load_table(other).path) == list(table.path)
        assert load_table(other).fingerprint() == table.fingerprint()
    with pytest.raises(InputError, match=r"2 of the 5 files .* are missing, as .*shard-003\.tar is"):
        load_table(str(tmp_path / "shard-{000..004}.tar"))


def test_a_tar_is_gone_through_once(tmp_path: Path, monkeypatch) -> None:
    (file,) = write_shards(tmp_path, [(str(i), square(), "") for i in range(6)], 6)
    opened = []
    original = tarfile.open
    monkeypatch.setattr(webdataset.tarfile, "open", lambda **how: opened.append(1) or original(**how))
    table = load_table(file)
    assert len({read_image(path)[0].size for path in table.path}) == 1
    assert opened == [1]


def test_the_same_bytes_are_the_same_image_in_a_file_and_in_a_tar(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(square())
    (file,) = write_shards(tmp_path, [("b", square(), "")], 1)
    assert file_digest(f"{file}#b") == file_digest(str(tmp_path / "a.png")) != ""


def test_a_list_gives_labels_by_key(tmp_path: Path) -> None:
    (file,) = write_shards(tmp_path, [("a", square(), "fox"), ("b", square(), "")], 2)
    (tmp_path / "l.csv").write_text("path,label\nshard-000.tar#b,owl\n")
    assert list(load_table(file, tmp_path / "l.csv").label) == ["", "owl"]


def test_a_list_gives_truth_and_bursts_by_key(tmp_path: Path) -> None:
    """As it does to pictures in a folder; what it does not speak of stays as it is."""
    file = write_tar(tmp_path / "photos.tar", [(f"{n}.png", square()) for n in "abc"])
    labels = tmp_path / "l.csv"
    labels.write_text("path,label,truth,group\nphotos.tar#a,fox,fox,b1\nphotos.tar#b,,owl,b1\n")
    table = load_table(file, labels)
    assert list(table.label) == ["fox", "", ""]
    assert list(table.truth) == ["fox", "owl", ""]
    assert list(table.group) == ["b1", "b1", ""]


# -- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["middle of an image", "middle of a head", "between two", "before the end"])
def test_a_tar_that_is_cut_is_refused_in_a_sentence(tmp_path: Path, holotype, at: str) -> None:
    (file,) = write_shards(tmp_path, [(f"{i}", square(side=64), "") for i in range(10)], 10)
    content = file.read_bytes()
    with tarfile.open(file) as tar:
        heads = [member.offset for member in tar]
        end = tar.offset
    cut = {"middle of an image": heads[5] + 600, "middle of a head": heads[5] + 100, "between two": heads[5]}
    file.write_bytes(content[: cut.get(at, end)])
    outcome = holotype("embed", file, "--out", tmp_path / "out", "--no-progress")
    assert (outcome.code, len(outcome.err.strip().splitlines())) == (2, 1)
    assert "shard-000.tar" in outcome.err
    assert "cut off" in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_list_with_boxes_of_images_in_a_tar_is_refused(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "photos.tar", [("a.png", square())])
    labels = tmp_path / "l.csv"
    labels.write_text('path,label,box\nphotos.tar#a,fox,"0.1,0.1,0.5,0.5"\n')
    with pytest.raises(InputError, match=r"l\.csv has boxes, which take pictures in a folder"):
        load_table(file, labels)


def test_what_is_no_tar_or_compressed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"hello" * 500)
    with pytest.raises(InputError, match=r"a\.tar is no tar"):
        load_table(tmp_path / "a.tar")
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match="compressed"):
        load_table(tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="no image in"):
        load_table(write_tar(tmp_path / "b.tar", [("a.cls", b"1")]))


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    (file,) = write_shards(tmp_path, [("a", square(), ""), ("b", b"hello", "")], 2)
    with pytest.raises(ImageProblem, match="has no image 'z'"):
        read_image(f"{file}#z")
    with pytest.raises(ImageProblem, match="#b is not an image"):
        read_image(f"{file}#b")


def test_a_real_file_wins_over_a_key(tmp_path: Path) -> None:
    write_shards(tmp_path, [("a.png", square((9, 9, 9)), "")], 1)
    (tmp_path / "shard-000.tar#a.png").write_bytes(square((5, 5, 5)))
    assert read_image(str(tmp_path / "shard-000.tar#a.png"))[0].getpixel((0, 0)) == (5, 5, 5)


# -- from end to end ------------------------------------------------------------------------------------


def test_discover_and_assign(tmp_path: Path, squares_folder: Path, tiny_backbone_file, holotype) -> None:
    rows = images_of(squares_folder)
    write_shards(tmp_path / "shards", rows, 20)
    flags = ("--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress")
    run, source = tmp_path / "run", tmp_path / "shards" / "shard-{000..003}.tar"
    assert holotype("discover", source, "--out", run, "--k", 4, "--method", "kmeans", *flags).code == 0
    found = Discovery.load(run)
    kinds = [path.rpartition("#")[2].split("-")[0] for path in found.images["path"]]
    assert len(set(zip(kinds, found.images["category_id"], strict=True))) == 4
    assert found.known == ("green", "red")
    # repacked into other shards, these are the same images: nothing is trained again
    for shard in (tmp_path / "shards").iterdir():
        shard.unlink()
    write_shards(tmp_path / "shards", rows, 32)
    again = holotype(
        *("discover", tmp_path / "shards" / "shard-{000..001}.tar", "--out", run, "--k", 4),
        *("--method", "kmeans", *flags),
    )
    assert again.code == 0
    assert Discovery.load(run).facts.round == 1
    out = tmp_path / "new.csv"
    new = tmp_path / "shards" / "shard-001.tar"
    assert holotype("assign", run, new, "--out", out, "--device", "cpu", "--no-progress").code == 0
    assert len(out.read_text().splitlines()) == 33
    sorted_to = tmp_path / "sorted"
    words = ("assign", run, new, "--out", out, "--device", "cpu", "--no-progress")
    words = (*words, "--overwrite", "--copy-to", sorted_to)
    assert holotype(*words).code == 0
    assert len(list(sorted_to.rglob("*.png"))) == 32


def test_a_list_labels_a_folder_of_tars(tmp_path: Path) -> None:
    write_tar(tmp_path / "shards" / "a.tar", [("1.png", square()), ("2.png", square())])
    (tmp_path / "labels.csv").write_text("path,label\na.tar#2,fox\n")
    assert list(load_table(tmp_path / "shards", tmp_path / "labels.csv").label) == ["", "fox"]
