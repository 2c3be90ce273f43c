"""Files in a store: S3 on a real server on this machine, and what is said where a store refuses or is silent."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from holotype.data import storage
from holotype.data.decode import read_image
from holotype.data.hashing import file_digest, file_stamps
from holotype.data.image_files import file_of, has_own_file
from holotype.data.load import load_table
from holotype.data.paths import (
    absolute,
    is_address,
    object_address,
    relative,
    split_member,
    split_query,
    with_query,
)
from holotype.data.storage import StorageError, list_files, read_object, read_part, remote_stamp
from holotype.errors import InputError

from .bucket import Bucket, bucket, only_here, s3_port
from .packed import square, write_parquet, write_shards

__all__ = ["bucket", "only_here", "s3_port"]
OWN_PROCESS = True


@pytest.fixture(autouse=True)
def fresh() -> None:
    """What the store held for another test is not remembered."""
    storage._remote_stamps.clear()
    storage._connections.cache_clear()
    storage._remote.cache_clear()


def test_objects_are_listed_and_read(bucket: Bucket) -> None:
    odd = "photos/a b/100% #1? ü.png"
    for key, content in (("photos/1.png", square()), (odd, b"0123456789"), ("other/2.png", b"")):
        bucket.put(key, content)
    files = list_files(bucket.address("photos"))
    assert len(files) == 2
    (file,) = (file for file in files if "1.png" not in file)
    assert (read_object(file), read_part(file, 3, 4)) == (b"0123456789", b"3456")
    stamp = remote_stamp(file)
    assert stamp.startswith("10-")
    storage._remote_stamps.clear()
    assert remote_stamp(file) == stamp
    assert remote_stamp(bucket.address("photos/absent.png")) == ""


def test_a_bucket_is_a_folder(bucket: Bucket, squares_folder: Path, tmp_path: Path) -> None:
    bucket.put_folder(squares_folder, "photos")
    there, here = load_table(bucket.address("photos")), load_table(squares_folder)
    assert there.name == "photos"
    assert (there.known, list(there.label)) == (here.known, list(here.label))
    # the same names below another root: embeddings and edits find their images
    assert there.fingerprint() == here.fingerprint()
    assert file_digest(there.path[5]) == file_digest(here.path[5]) != ""
    assert np.array_equal(read_image(there.path[9])[0], read_image(here.path[9])[0])
    assert all(file_stamps(list(there.path)))
    below, labels = relative(there.path, there.root)[3], tmp_path / "l.csv"
    labels.write_text(f"path,label\n{below},owl\n")
    assert [label for label in load_table(bucket.address("photos"), labels).label if label] == ["owl"]
    labels.write_text(f"path,label\n{there.path[3]},fox\n")
    assert list(load_table(labels).path) == [there.path[3]]
    labels.write_text(f"path,label\n{bucket.address('photos/absent.png')},fox\n")
    with pytest.raises(InputError, match="1 of the 1 paths"):
        load_table(labels)


def test_the_environment_may_tell_the_endpoint_and_an_address_counts_more(bucket, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}/")
    told = storage.s3_settings("s3://bucket")
    place = (told["scheme"], told["endpoint_override"], told["anonymous"])
    assert place == ("http", f"127.0.0.1:{bucket.port}", False)
    told = storage.s3_settings("s3://bucket?endpoint_override=127.0.0.1:2&anonymous=true")
    assert (told.get("scheme"), told["endpoint_override"], told["anonymous"]) == (None, "127.0.0.1:2", True)
    bucket.put("photos/fox/1.png", square((7, 8, 9)))
    for source in ("s3://bucket/photos", "s3://bucket/photos/fox/1.png"):
        table = load_table(source)
        assert list(table.path) == ["s3://bucket/photos/fox/1.png"]
    assert read_image(table.path[0])[0].getpixel((0, 0)) == (7, 8, 9)


def test_tars_and_parquet_files_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    rows = [(f"{i}", square((i, i, i)), "fox" if i < 3 else "") for i in range(7)]
    write_shards(tmp_path / "shards", rows, 4)
    write_parquet(tmp_path / "set" / "a.parquet", rows, group=2)
    bucket.put_folder(tmp_path, "all")
    tars = ("all/shards/shard-{000..001}.tar", "all/shards/shard-*.tar", "all/shards")
    for source in (*tars, "all/set/a.parquet"):
        table = load_table(bucket.address(source))
        assert list(table.label) == ["fox"] * 3 + [""] * 4, source
        assert [read_image(path)[0].getpixel((0, 0))[0] for path in table.path] == list(range(7)), source


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens; it is held, since a free one may be another test's the next moment."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def refused(holotype, address: str, out: Path) -> str:
    """The sentence of a command that ended with exit code 2."""
    outcome = holotype("embed", address, "--out", out, "--no-progress")
    assert outcome.code == 2, outcome
    assert len(outcome.err.strip().splitlines()) == 1, outcome.err
    assert not out.exists()
    return outcome.err


def test_missing_objects_and_missing_rights(bucket: Bucket, tmp_path: Path, holotype) -> None:
    from moto.core.responses import ActionAuthenticatorMixin

    nowhere = bucket.address("a").replace("//bucket", "//no-such-bucket")
    for address in (bucket.address("absent"), bucket.address("absent/a.tar"), nowhere):
        assert "does not exist" in refused(holotype, address, tmp_path / "out")
    bucket.put("photos/1.png", square())
    was = ActionAuthenticatorMixin.request_count
    ActionAuthenticatorMixin.request_count = float("inf")  # from now on, the server asks who somebody is
    try:
        assert "cannot be read (" in refused(holotype, bucket.address("photos"), tmp_path / "out")
    finally:
        ActionAuthenticatorMixin.request_count = was


def test_a_store_that_is_silent_loses_nothing(bucket: Bucket, tmp_path: Path, holotype, monkeypatch) -> None:
    bucket.put("photos/1.png", square())
    (path,) = load_table(bucket.address("photos")).path
    monkeypatch.setattr(storage, "READ_TIMEOUT", 0.5)
    storage._connections.cache_clear()
    storage._remote_stamps.clear()
    with socket.socket() as silent, closed_port() as closed:  # one takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (silent.getsockname()[1], closed):
            elsewhere = path.replace(str(bucket.port), str(port))
            assert "cannot be read" in refused(holotype, elsewhere.replace("/1.png", ""), tmp_path / "out")
        with pytest.raises(StorageError):
            file_stamps([elsewhere])  # not "", which would mean that it is gone


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3:" + "//me:secret@bucket/photos", "environment"),
        ("s3://bucket/photos?endpoint=x", r"'endpoint' in .* is no setting"),
        ("ftp://host/a", "ftp://host/a is in no store"),
    ],
)
def test_passwords_and_unknown_settings_in_addresses_are_refused(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        load_table(address)
    assert "secret" not in str(told.value)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch):
    """A folder that stands in for a store: what is ours is the same for all of them."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    asked: list[str] = []

    def install(scheme: str) -> list[str]:
        system = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
        monkeypatch.setitem(storage.STORES, scheme, lambda address: asked.append(address) or system)
        return asked

    return install


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
def test_other_stores_go_the_same_way(scheme, place, bucket, tmp_path: Path, stand_in) -> None:
    asked = stand_in(scheme)
    home = tmp_path / bucket / "owner" / "set"
    write_parquet(home / "data" / "train.parquet", [("a", square((1, 2, 3)), "fox"), ("b", square(), "")])
    table = load_table(f"{scheme}://{place}/owner/set")
    assert list(table.path) == [f"{scheme}://{place}/owner/set/data/train.parquet#{row}" for row in (0, 1)]
    assert (list(table.label), table.name) == (["fox", ""], "set")
    assert read_image(table.path[0])[0].getpixel((0, 0)) == (1, 2, 3)
    assert asked == [f"{scheme}://{place.partition('/')[0]}"]
    if place.startswith("account"):  # all containers: names begin where the store's own begin
        (found,) = list_files("abfs://account.blob.core.windows.net")
        assert found == f"abfs://{place}/owner/set/data/train.parquet"
        assert read_object(found) == (home / "data" / "train.parquet").read_bytes()


def test_the_file_systems_of_other_stores_open_without_asking_anybody() -> None:
    google = storage.STORES["gs"]("gs://bucket?anonymous=true&scheme=http&endpoint_override=127.0.0.1:1")
    assert google.type_name == "gcs"
    assert "fsspec" in storage.STORES["hf"]("hf://datasets").type_name
    with pytest.raises(StorageError, match="'region' in gs://bucket"):
        storage.STORES["gs"]("gs://bucket?region=eu")
    with pytest.raises(StorageError, match="cannot be read"):
        remote_stamp("ftp://host/a")


def test_addresses_and_members_are_told_from_paths(tmp_path: Path) -> None:
    assert is_address("s3://bucket/a.jpg")
    assert not any(map(is_address, ("/photos/a.jpg", "C:\\photos\\a.jpg", "a://", "photos//a.jpg")))
    for name in ("a.tar", "b.PARQUET"):
        (tmp_path / name).touch()
    assert split_member(f"{tmp_path}/a.tar#fox/1.left") == ("tar", f"{tmp_path}/a.tar", "fox/1.left")
    assert split_member(f"{tmp_path}/b.PARQUET#12") == ("parquet", f"{tmp_path}/b.PARQUET", "12")
    assert split_member(f"{tmp_path}/absent.tar#1") is split_member(f"{tmp_path}/a.tar") is None
    address = "s3://bucket/a.tar?region=eu#key"
    assert split_member(address) == ("tar", "s3://bucket/a.tar?region=eu", "key")
    assert file_of(address) == "s3://bucket/a.tar?region=eu"
    own = (f"{tmp_path}/a.jpg#xywh=percent:0,0,50,50", f"{tmp_path}/a.tar#1", "s3://bucket/a.jpg")
    assert [has_own_file(path) for path in own] == [True, False, False]


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
        assert relative([absolute(below, root)], root) == [below]
    assert relative(["s3://other/1.jpg"], root) == ["s3://other/1.jpg"]
    assert absolute("s3://other/1.jpg", root) == "s3://other/1.jpg"
