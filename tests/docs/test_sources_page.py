"""docs/sources.md, followed: on coloured squares, with a tiny network and k-means, and a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.results.discovery import Discovery
from tests.data.bucket import Bucket, bucket, only_here, s3_port
from tests.data.packed import images_of, write_parquet, write_tar

from .conftest import commands, page

__all__ = ["bucket", "only_here", "s3_port"]
OWN_PROCESS = True
REMOTE, LOCAL = (
    [words for words in commands(page("sources")) if any("s3://" in word for word in words) == remote]
    for remote in (True, False)
)


@pytest.fixture
def here(small: Path, squares_folder) -> Path:
    """The working folder with train.parquet, dataset/ and shards/."""
    rows = images_of(squares_folder)
    write_parquet(small / "train.parquet", rows)
    write_parquet(small / "dataset" / "data" / "train-00000.parquet", rows[:32])
    write_parquet(small / "dataset" / "data" / "train-00001.parquet", rows[32:])
    for number in range(4):
        members = []
        for name, content, label in rows[number::4]:
            members += [(f"{name}.png", content), *([(f"{name}.cls", label.encode())] if label else [])]
        write_tar(small / "shards" / f"{number:03d}.tar", members)
    return small


@pytest.fixture
def run(follow, tiny_backbone_file):
    """Run commands with a tiny network."""

    def call(lines: list[list[str]]) -> None:
        for words in lines:
            tiny = ["--backbone", tiny_backbone_file] if words[0] in ("embed", "estimate-k") else []
            follow(*words, *tiny, "--device", "cpu", "--no-progress")

    return call


def test_the_commands_on_this_machine(here: Path, run) -> None:
    assert [words[0] for words in LOCAL] == ["discover", "estimate-k", "discover", "assign"]
    run(LOCAL)
    for name in ("train.parquet", "000-003"):
        assert Discovery.load(here / "runs" / f"{name}-discover").known == ("green", "red")
    assert (here / "runs" / "dataset-estimate-k" / "count.json").is_file()
    assert len((here / "runs" / "000-003-discover" / "assigned" / "003.csv").read_text().splitlines()) == 17


def test_the_commands_on_a_bucket(here: Path, bucket: Bucket, squares_folder: Path, run, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    bucket.put_folder(squares_folder, "photos")
    bucket.put_folder(here / "shards", "shards")
    assert [words[0] for words in REMOTE] == ["discover", "embed"]
    run(REMOTE)
    found = Discovery.load(here / "runs" / "photos-discover")
    assert found.images["path"].str.startswith("s3://bucket/photos/").all()
    assert list((here / "runs" / "000-003-embeddings").glob("part-*.parquet"))
