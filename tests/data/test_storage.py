"""Files in a store: S3 on a real server on this machine, and what is said where a store refuses or is silent."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from holotype.data import storage
from holotype.data.decode import read_image
from holotype.data.exif import read_exif, upright_size
from holotype.data.hashing import file_digest, file_stamps, open_image_bytes, read_image_bytes
from holotype.data.image_files import file_of, has_own_file
from holotype.data.load import load_table
from holotype.data.paths import absolute, relative
from holotype.data.storage import (
    StorageError,
    is_address,
    list_files,
    object_address,
    read_file,
    read_part,
    remote_stamp,
    split_member,
    split_query,
    storage_error_text,
    with_query,
)
from holotype.errors import InputError
from holotype.results.discovery import Discovery

from .bucket import Bucket, bucket, only_here, s3_port
from .packed import images_of, square, write_parquet, write_shards, write_tar

__all__ = ["bucket", "only_here", "s3_port"]
OWN_PROCESS = True


@pytest.fixture(autouse=True)
def fresh() -> None:
    """What the store held for another test is not remembered."""
    storage._remote_stamps.clear()
    storage._connections.cache_clear()
    storage._remote.cache_clear()


# -- what lies there ------------------------------------------------------------------------------------


def test_objects_are_listed_and_read(bucket: Bucket) -> None:
    odd = "photos/a b/100% #1? ü.png"
    for key, content in (("photos/1.png", square()), (odd, b"0123456789"), ("other/2.png", b"")):
        bucket.put(key, content)
    files = list_files(bucket.address("photos"))
    assert len(files) == 2
    (file,) = (file for file in files if "1.png" not in file)
    assert read_file(file) == b"0123456789"
    assert read_part(file, 3, 4) == b"3456"
    stamp = remote_stamp(file)
    assert stamp.startswith("10-")
    storage._remote_stamps.clear()
    assert remote_stamp(file) == stamp
    assert remote_stamp(bucket.address("photos/absent.png")) == ""


def test_a_bucket_is_a_folder(bucket: Bucket, squares_folder: Path) -> None:
    bucket.put_folder(squares_folder, "photos")
    there, here = load_table(bucket.address("photos")), load_table(squares_folder)
    assert there.name == "photos"
    assert (there.known, list(there.label)) == (here.known, list(here.label))
    # the same names below another root: embeddings and edits find their images
    assert there.fingerprint() == here.fingerprint()
    assert file_digest(there.path[5]) == file_digest(here.path[5]) != ""
    assert np.array_equal(read_image(there.path[9])[0], read_image(here.path[9])[0])
    assert all(stamp for stamp in file_stamps(list(there.path)))


def test_an_address_counts_more_than_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
    told = storage.s3_settings("s3://bucket")
    assert (told["scheme"], told["endpoint_override"], told["anonymous"]) == ("http", "127.0.0.1:1", False)
    told = storage.s3_settings("s3://bucket?endpoint_override=127.0.0.1:2&anonymous=true")
    assert (told.get("scheme"), told["endpoint_override"], told["anonymous"]) == (None, "127.0.0.1:2", True)


def test_the_environment_may_tell_the_endpoint(bucket: Bucket, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    bucket.put("photos/fox/1.png", square((7, 8, 9)))
    table = load_table("s3://bucket/photos")
    assert list(table.path) == ["s3://bucket/photos/fox/1.png"]
    assert read_image(table.path[0])[0].getpixel((0, 0)) == (7, 8, 9)
    assert list(load_table("s3://bucket/photos/fox/1.png").path) == ["s3://bucket/photos/fox/1.png"]


def test_tars_and_parquet_files_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    rows = [(f"{i}", square((i, i, i)), "fox" if i < 3 else "") for i in range(7)]
    write_shards(tmp_path / "shards", rows, 4)
    write_parquet(tmp_path / "set" / "a.parquet", rows, group=2)
    bucket.put_folder(tmp_path, "all")
    for source in (
        "all/shards/shard-{000..001}.tar",
        "all/shards/shard-*.tar",
        "all/shards",
        "all/set/a.parquet",
    ):
        table = load_table(bucket.address(source))
        assert list(table.label) == ["fox"] * 3 + [""] * 4, source
        assert [read_image(path)[0].getpixel((0, 0))[0] for path in table.path] == list(range(7)), source
    assert table.path[6].endswith("#6")


def test_a_list_may_label_objects(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("fox/1.png", "fox/2.png"):
        bucket.put(f"photos/{name}", square())
    (tmp_path / "l.csv").write_text("path,label\nfox/2.png,owl\n")
    assert list(load_table(bucket.address("photos"), tmp_path / "l.csv").label) == ["", "owl"]


def test_a_list_may_name_objects(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("photos/1.png", square())
    (tmp_path / "l.csv").write_text(f"path,label\n{bucket.address('photos/1.png')},fox\n")
    assert list(load_table(tmp_path / "l.csv").path) == [bucket.address("photos/1.png")]
    (tmp_path / "l.csv").write_text(f"path,label\n{bucket.address('photos/2.png')},fox\n")
    with pytest.raises(InputError, match="1 of the 1 paths"):
        load_table(tmp_path / "l.csv")


def test_discover_in_a_bucket(
    bucket: Bucket, tmp_path: Path, squares_folder: Path, tiny_backbone_file, holotype
) -> None:
    for name, content, label in images_of(squares_folder):
        bucket.put(f"photos/{label or 'unlabelled'}/{name}.png", content)
    run, flags = tmp_path / "run", ("--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress")
    words = ("discover", bucket.address("photos"), "--out", run, "--k", 4, "--method", "kmeans", *flags)
    assert holotype(*words).code == 0
    found = Discovery.load(run)
    kinds = [path.partition("?")[0].rpartition("/")[2].split("-")[0] for path in found.images["path"]]
    assert len(set(zip(kinds, found.images["category_id"], strict=True))) == 4
    assert list(run.rglob("00000.jpg"))
    bucket.put("new/1.png", square((200, 40, 40), side=40))
    out = tmp_path / "new.csv"
    words = ("assign", run, bucket.address("new"), "--out", out, "--device", "cpu", "--no-progress")
    assert holotype(*words).code == 0
    assert "red" in out.read_text()
    before = (run / "discovery.json").read_bytes()
    assert holotype("report", run, "--no-progress").code == 0
    assert (run / "discovery.json").read_bytes() == before


# -- what is wrong --------------------------------------------------------------------------------------


def refused(outcome) -> str:
    """The sentence of a command that ended with exit code 2."""
    assert outcome.code == 2, outcome
    assert len(outcome.err.strip().splitlines()) == 1, outcome.err
    return outcome.err


def test_a_missing_key_and_a_missing_bucket(bucket: Bucket, tmp_path: Path, holotype) -> None:
    out = ("--out", tmp_path / "out", "--no-progress")
    assert "does not exist" in refused(holotype("embed", bucket.address("absent"), *out))
    assert "does not exist" in refused(holotype("embed", bucket.address("absent/a.tar"), *out))
    nowhere = bucket.address("a").replace("//bucket", "//no-such-bucket")
    assert "does not exist" in refused(holotype("embed", nowhere, *out))
    assert not (tmp_path / "out").exists()


def test_a_bucket_without_rights(bucket: Bucket, tmp_path: Path, holotype) -> None:
    from moto.core.responses import ActionAuthenticatorMixin

    bucket.put("photos/1.png", square())
    was = ActionAuthenticatorMixin.request_count
    ActionAuthenticatorMixin.request_count = float("inf")  # from now on, the server asks who somebody is
    try:
        said = refused(holotype("discover", bucket.address("photos"), "--out", tmp_path / "out"))
    finally:
        ActionAuthenticatorMixin.request_count = was
    assert "may not be read with the rights" in said
    assert not (tmp_path / "out").exists()


def test_an_address_that_answers_nothing(tmp_path: Path, holotype, monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setattr(storage, "READ_TIMEOUT", 0.5)
    with socket.socket() as silent:  # takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        query = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{silent.getsockname()[1]}"
        said = refused(holotype("embed", f"s3://bucket/photos?{query}", "--out", tmp_path / "out"))
    assert "does not answer" in said
    with closed_port() as closed:
        query = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{closed}"
        assert "does not answer" in refused(holotype("embed", f"s3://bucket/photos?{query}"))


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens; it is held, since a free one may be another test's the next moment."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def test_a_store_that_falls_silent_loses_nothing(bucket: Bucket, tmp_path: Path, monkeypatch) -> None:
    bucket.put("photos/1.png", square())
    (path,) = load_table(bucket.address("photos")).path
    storage._remote_stamps.clear()
    storage._connections.cache_clear()
    with closed_port() as closed, pytest.raises(InputError, match="does not answer"):
        file_stamps([path.replace(str(bucket.port), str(closed))])  # not "", which would mean that it is gone


def test_passwords_and_unknown_settings_in_addresses_are_refused() -> None:
    with pytest.raises(InputError, match="environment") as told:
        load_table("s3:" + "//me:secret@bucket/photos")
    assert "secret" not in str(told.value)
    with pytest.raises(InputError, match=r"'endpoint' in .* is no setting"):
        load_table("s3://bucket/photos?endpoint=x")
    with pytest.raises(InputError, match="ftp://host/a is in no store"):
        load_table("ftp://host/a")


# -- other stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "place", "bucket"),
    [
        ("gs", "bucket", "bucket"),
        ("abfs", "account.blob.core.windows.net/bucket", "bucket"),
        ("abfs", "bucket" + "@account.dfs.core.windows.net", "bucket"),
        ("abfs", "bucket", "bucket"),
        ("hf", "datasets", "datasets"),
    ],
)
def test_other_stores_go_the_same_way(scheme, place, bucket, tmp_path: Path, monkeypatch) -> None:
    """A folder stands in for the store: what is ours is the same for all of them."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    asked = []

    def stand_in(address: str) -> SubTreeFileSystem:
        asked.append(address)
        return SubTreeFileSystem(str(tmp_path), LocalFileSystem())

    monkeypatch.setitem(storage.STORES, scheme, stand_in)
    home = tmp_path / bucket / "owner" / "set"
    write_parquet(home / "data" / "train.parquet", [("a", square((1, 2, 3)), "fox"), ("b", square(), "")])
    table = load_table(f"{scheme}://{place}/owner/set")
    assert list(table.path) == [f"{scheme}://{place}/owner/set/data/train.parquet#{row}" for row in (0, 1)]
    assert (list(table.label), table.name) == (["fox", ""], "set")
    assert read_image(table.path[0])[0].getpixel((0, 0)) == (1, 2, 3)
    assert asked == [f"{scheme}://{place.partition('/')[0]}"]


def test_all_containers_of_an_account(tmp_path: Path, monkeypatch) -> None:
    """The address ends with the host, so that names begin where the store's own begin."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    (tmp_path / "photos" / "fox").mkdir(parents=True)
    (tmp_path / "photos" / "fox" / "1.png").write_bytes(square())
    monkeypatch.setitem(storage.STORES, "abfs", lambda _: SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    (found,) = list_files("abfs://account.dfs.core.windows.net")
    assert found == "abfs://account.dfs.core.windows.net/photos/fox/1.png"
    assert read_file(found) == square()


def test_the_file_systems_of_other_stores_open_without_asking_anybody(monkeypatch) -> None:
    google = storage.STORES["gs"]("gs://bucket?anonymous=true&scheme=http&endpoint_override=127.0.0.1:1")
    assert google.type_name == "gcs"
    hub = storage.STORES["hf"]("hf://datasets")
    assert "fsspec" in hub.type_name
    with pytest.raises(StorageError, match="'region' in gs://bucket"):
        storage._options("gs://bucket?region=eu")


def test_addresses_are_told_from_paths() -> None:
    assert is_address("s3://bucket/a.jpg")
    assert not any(
        is_address(path) for path in ("/photos/a.jpg", "C:\\photos\\a.jpg", "a://", "photos//a.jpg")
    )


def test_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    (tmp_path / "b.PARQUET").touch()
    assert split_member(f"{tmp_path}/a.tar#fox/1.left") == ("tar", f"{tmp_path}/a.tar", "fox/1.left")
    assert split_member(f"{tmp_path}/b.PARQUET#12") == ("parquet", f"{tmp_path}/b.PARQUET", "12")
    assert split_member(f"{tmp_path}/absent.tar#1") is None
    assert split_member(f"{tmp_path}/a.tar") is None
    address = "s3://bucket/a.tar?region=eu#key"
    assert split_member(address) == ("tar", "s3://bucket/a.tar?region=eu", "key")
    assert file_of(address) == "s3://bucket/a.tar?region=eu"


def test_only_a_file_of_its_own_can_be_linked_to(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    assert has_own_file(f"{tmp_path}/a.jpg#xywh=percent:0,0,50,50")
    assert not has_own_file(f"{tmp_path}/a.tar#1")
    assert not has_own_file("s3://bucket/a.jpg")


@pytest.mark.parametrize("name", ["a b/ü.jpg", "100% #1?.jpg", "x=1&y.jpg"])
def test_any_name_of_an_object_survives(name: str) -> None:
    address = object_address("s3://bucket/", name, "region=eu")
    assert split_member(address) is None
    bare, query = split_query(address)
    assert (unquote(bare.removeprefix("s3://bucket/")), query) == (name, "region=eu")
    assert with_query(bare, query) == address


@pytest.mark.parametrize("root", ["s3://bucket/photos", "s3://bucket/photos?region=eu", "/photos"])
def test_seen_from_the_root_and_back(root: str) -> None:
    for below in ("fox/1.jpg", "a.tar#key", "train.parquet#0"):
        path = absolute(below, root)
        assert relative([path], root) == [below]
    assert relative(["s3://other/1.jpg"], root) == ["s3://other/1.jpg"]


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        # a port or a name that libraries repeat is no reason
        (
            "s3://b/a?endpoint_override=h:40412",
            OSError("curlCode: 7, connect to h port 40412"),
            "does not answer",
        ),
        (
            "s3://aggregated/a",
            OSError("key 'a' in bucket 'aggregated': AWS Error NO_SUCH_KEY"),
            "does not exist",
        ),
        (
            "s3://b/404/connect.tar",
            OSError("key '404/connect.tar' in bucket 'b': SlowDown"),
            "cannot be read",
        ),
        ("hf://datasets/a/NoSuch", OSError("datasets/a/NoSuch: gated"), "may not be read"),
        ("s3://b/my%20gated/x", OSError("key 'my%20gated/x' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/my gated/x", OSError("key 'my%20gated/x' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/dir", OSError("key 'dir/aggregated/1.jpg' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/dir", OSError("key 'dir/poetry/retry.jpg' in bucket 'b': SlowDown"), "cannot be read"),
        ("hf://datasets/a/b", OSError("404 Client Error"), "does not exist"),
        ("s3://b/a", OSError("HTTP status 403"), "may not be read"),
    ],
)
def test_the_words_of_an_address_are_no_reason(address: str, error: Exception, words: str) -> None:
    said = storage_error_text(address, error)
    assert said.startswith(address)
    assert words in said


def test_what_kind_of_error_it_is_counts_too() -> None:
    assert "may not be read" in storage_error_text("s3://b/a", PermissionError("no"))
    assert "does not answer" in storage_error_text("s3://b/a", TimeoutError("no"))
    assert "does not exist" in storage_error_text(
        "hf://datasets/a/b", type("RepositoryNotFoundError", (Exception,), {})("no")
    )


def test_bytes_come_from_wherever_they_lie(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("1.png", square())])
    parquet = write_parquet(tmp_path / "a.parquet", [("1", square(), "")])
    assert read_image_bytes(f"{tar}#1") == read_image_bytes(f"{parquet}#0") == square()
    assert read_image_bytes(str(tmp_path / "1.png")) is None
    assert open_image_bytes(str(tmp_path / "1.png")) == str(tmp_path / "1.png")
    with pytest.raises(StorageError, match="no image '2'"):
        read_image_bytes(f"{tar}#2")


def test_heads_are_read_inside_a_tar(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Reconyx", "HC600", 6
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, format="JPEG", exif=exif)
    tar = write_tar(tmp_path / "a.tar", [("1.jpg", stream.getvalue())])
    assert read_exif(f"{tar}#1").camera == "Reconyx HC600"
    assert upright_size(f"{tar}#1") == (4, 6)
