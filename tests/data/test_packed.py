"""Images in Parquet files and in tars: what is an image, which rows and keys there are, what is refused."""

import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holotype.data.decode import ImageProblem, read_image
from holotype.data.hashing import file_digest, open_image_bytes, read_image_bytes
from holotype.data.load import load_table
from holotype.data.readers import parquet, webdataset
from holotype.data.storage import StorageError
from holotype.errors import InputError

from .packed import square, write_parquet, write_shards, write_tar


def first_pixels(paths) -> list[tuple[int, int, int]]:
    return [read_image(path)[0].getpixel((0, 0)) for path in paths]


@pytest.mark.parametrize("plain", [False, True])
def test_rows_are_images_with_the_names_of_their_classes(tmp_path: Path, plain: bool) -> None:
    rows = [("a", square((1, 2, 3)), "fox"), ("b", square((4, 5, 6)), ""), ("c", square((7, 8, 9)), "owl")]
    table = load_table(write_parquet(tmp_path / "train.parquet", rows, group=2, plain=plain))
    assert list(table.path) == [f"{tmp_path}/train.parquet#{row}" for row in range(3)]
    assert list(table.label) == ["fox", "", "owl"]
    assert (table.known, table.name, table.root) == (("fox", "owl"), "train", str(tmp_path))
    assert first_pixels(table.path) == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


def test_text_that_was_written_as_bytes_is_text(tmp_path: Path) -> None:
    """Some programs write all texts so; no label is none, and no class called b''."""
    pq.write_table(pa.table({"image": [square()] * 2, "label": [b"fox", b""]}), tmp_path / "t.parquet")
    assert list(load_table(tmp_path / "t.parquet").label) == ["fox", ""]
    (tmp_path / "1.png").write_bytes(square())
    # a list, beside other bytes
    columns = {"path": [b"1.png"], "label": [b"F\xc3\xbcchse"], "hash": [b"123"]}
    pq.write_table(pa.table(columns), tmp_path / "l.parquet")
    table = load_table(tmp_path / "l.parquet")
    assert (list(table.path), list(table.label)) == ([str(tmp_path / "1.png")], ["Füchse"])
    pq.write_table(pa.table({"image": [square()], "label": [b"F\xfcchse"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="in the column label is not valid UTF-8"):
        load_table(tmp_path / "t.parquet")


def test_a_row_group_is_read_once_for_its_rows_and_few_are_kept(tmp_path: Path, monkeypatch) -> None:
    noise = np.random.default_rng(0)
    rows = [(str(i), noise.bytes(1000), "") for i in range(40)]
    file = str(write_parquet(tmp_path / "t.parquet", rows, group=10))
    monkeypatch.setattr(parquet, "CACHED_BYTES", 25_000)
    read, original = [], pq.ParquetFile.read_row_group
    spy = lambda self, n, **how: read.append(n) or original(self, n, **how)  # noqa: E731
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    assert [parquet.read_row(file, str(i)) for i in range(40)] == [content for _, content, _ in rows]
    assert read == [0, 1, 2, 3]
    assert sum(values.nbytes for values in parquet._groups.values()) <= 25_000
    write_parquet(tmp_path / "t.parquet", [("a", square((250, 3, 77), side=9), ""), ("b", square(), "")])
    assert first_pixels([f"{file}#0"]) == [(250, 3, 77)]  # one that was written anew is read anew


def test_rows_that_are_no_images_are_problems_of_these_alone(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t.parquet", [("a", square(), ""), ("b", b"hello", ""), ("c", b"", "")])
    assert len(load_table(file)) == 3
    for row, message in ((1, "#1 is not an image"), (2, "empty"), (3, "3 rows, counted from 0")):
        with pytest.raises(ImageProblem, match=message):
            read_image(f"{file}#{row}")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        load_table(file)
    pq.write_table(pa.table({"image": [square(), None]}), tmp_path / "t.parquet")
    with pytest.raises(ImageProblem, match=r"Row 1 of .* has no image"):
        read_image(f"{tmp_path}/t.parquet#1")
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="has no rows"):
        load_table(tmp_path / "t.parquet")


def test_files_without_images_are_refused_at_once(tmp_path: Path, holotype) -> None:
    pq.write_table(pa.table({"id": [1], "species": ["fox"]}), tmp_path / "t.parquet")
    words = write_parquet(tmp_path / "w.parquet", [(str(i), b"not an image", "") for i in range(20)])
    for command, said in (
        (("embed", tmp_path / "t.parquet"), "only 'id', 'species'"),
        (("estimate-k", words), "bytes that are no image"),
    ):
        outcome = holotype(*command, "--no-progress")
        assert (outcome.code, len(outcome.err.strip().splitlines())) == (2, 1)
        assert said in outcome.err


def test_labels_lie_beside_the_images_and_no_image_is_lost_to_the_key_of_another(tmp_path: Path) -> None:
    caption = b"A long sentence about what the photograph shows, which nobody would call a label at all."
    members = [("./a.jpg", square((1, 2, 3), kind="JPEG")), ("./a.cls", b"fox\n"), ("readme.md", b"hello")]
    beside = {"b.json": b'{"label": "owl", "id": 7}', "c.txt": b"hare"}
    beside |= {"d.txt": caption, "e.json": b'{"id": 8}'}
    for name, text in beside.items():
        members += [(f"{name[0]}.png", square()), (name, text)]
    table = load_table(write_tar(tmp_path / "s.tar", members))
    assert [path.rpartition("#")[2] for path in table.path] == ["a", "b", "c", "d", "e"]
    assert list(table.label) == ["fox", "owl", "hare", "", ""]
    assert (table.name, table.root) == ("s", str(tmp_path))
    with pytest.raises(InputError, match=r"a\.json is no readable label"):
        load_table(write_tar(tmp_path / "s.tar", [("a.png", square()), ("a.json", b"{")]))
    members = [("1.left.png", square((1, 1, 1))), ("1.right.png", square((2, 2, 2))), ("1.cls", b"fox")]
    members += [("2.png", square((3, 3, 3))), (".3.png", b"")]
    members.append(("2.jpg", square((200, 200, 200), kind="JPEG")))
    table = load_table(write_tar(tmp_path / "s.tar", members))
    assert [path.rpartition("#")[2] for path in table.path] == ["1.left", "1.right", "2", "2.jpg"]
    assert list(table.label) == ["fox", "fox", "", ""]
    assert [pixel[0] for pixel in first_pixels(table.path)] == [1, 2, 3, 200]


def test_braces_stars_and_folders_mean_the_same_shards(tmp_path: Path, monkeypatch) -> None:
    rows = [(f"{i:02d}", square((i, i, i)), "fox" if i % 2 else "") for i in range(10)]
    write_shards(tmp_path, rows, 4)
    opened, original = [], tarfile.open
    monkeypatch.setattr(webdataset.tarfile, "open", lambda **how: opened.append(1) or original(**how))
    table = load_table(str(tmp_path / "shard-{000..002}.tar"))
    assert [Path(path).name for path in table.path[3:5]] == ["shard-000.tar#03", "shard-001.tar#04"]
    assert table.name == "shard-000-002"
    assert len(first_pixels(table.path)) == 10
    assert opened == [1] * 3  # each is gone through once
    for other in (str(tmp_path / "shard-*.tar"), tmp_path):
        assert load_table(other).fingerprint() == table.fingerprint()
    with pytest.raises(InputError, match=r"2 of 5 files .* are missing, as .*shard-003\.tar is"):
        load_table(str(tmp_path / "shard-{000..004}.tar"))


def test_a_list_gives_labels_truth_and_bursts_by_key(tmp_path: Path) -> None:
    """As it does to pictures in a folder; what it does not speak of stays as it is."""
    file = write_tar(tmp_path / "tars" / "photos.tar", [(f"{n}.png", square()) for n in "abc"])
    labels = tmp_path / "l.csv"
    labels.write_text("path,label,truth,group\nphotos.tar#a,fox,fox,b1\nphotos.tar#b,,owl,b1\n")
    for source in (file, file.parent):
        table = load_table(source, labels)
        assert list(table.label) == ["fox", "", ""]
        assert list(table.truth) == ["fox", "owl", ""]
        assert list(table.group) == ["b1", "b1", ""]
    labels.write_text('path,label,box\nphotos.tar#a,fox,"0.1,0.1,0.5,0.5"\n')
    with pytest.raises(InputError, match=r"l\.csv has boxes, which take pictures in a folder"):
        load_table(file, labels)


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


def test_what_is_no_tar_and_keys_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"hello" * 500)
    with pytest.raises(InputError, match=r"a\.tar is no tar"):
        load_table(tmp_path / "a.tar")
    with pytest.raises(InputError, match="no image in"):
        load_table(write_tar(tmp_path / "b.tar", [("a.cls", b"1")]))
    (file,) = write_shards(tmp_path, [("a.png", square((9, 9, 9)), ""), ("b", b"hello", "")], 2)
    for key, message in (("z", "has no image 'z'"), ("b", "#b is not an image")):
        with pytest.raises(ImageProblem, match=message):
            read_image(f"{file}#{key}")
    Path(f"{file}#a.png").write_bytes(square((5, 5, 5)))  # a real file wins over a key
    assert first_pixels([f"{file}#a.png"]) == [(5, 5, 5)]


def test_the_same_bytes_are_the_same_image_wherever_they_lie(tmp_path: Path) -> None:
    file = tmp_path / "1.png"
    file.write_bytes(square())
    tar = write_tar(tmp_path / "a.tar", [("1.png", square())])
    table = write_parquet(tmp_path / "a.parquet", [("1", square(), "")])
    assert file_digest(f"{tar}#1") == file_digest(f"{table}#0") == file_digest(str(file)) != ""
    assert read_image_bytes(f"{tar}#1") == read_image_bytes(f"{table}#0") == square()
    assert (read_image_bytes(str(file)), open_image_bytes(str(file))) == (None, str(file))
    with pytest.raises(StorageError, match="no image '2'"):
        read_image_bytes(f"{tar}#2")
