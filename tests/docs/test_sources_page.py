"""docs/sources.md, followed: on coloured squares, with a tiny network and k-means, and a real S3 server."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from holotype.discovery import pipeline
from holotype.results.discovery import Discovery
from tests.data.bucket import Bucket, bucket, only_here, s3_port
from tests.data.packed import images_of, write_parquet, write_tar

__all__ = ["bucket", "only_here", "s3_port"]
OWN_PROCESS = True

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.strip().splitlines()
]


@pytest.fixture
def here(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> Path:
    """The working folder with train.parquet, dataset/ and shards/; every discovery in it is small."""
    monkeypatch.chdir(tmp_path)
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        config = dataclasses.replace(
            config, k=4, method="kmeans", device="cpu", backbone=str(tiny_backbone_file)
        )
        return original(table, config, folder, **{**how, "progress": False})

    monkeypatch.setattr(pipeline, "discover_table", small)
    rows = images_of(squares_folder)
    write_parquet(tmp_path / "train.parquet", rows)
    write_parquet(tmp_path / "dataset" / "data" / "train-00000.parquet", rows[:32])
    write_parquet(tmp_path / "dataset" / "data" / "train-00001.parquet", rows[32:])
    for number in range(4):
        members = []
        for name, content, label in rows[number::4]:
            members += [(f"{name}.png", content), *([(f"{name}.cls", label.encode())] if label else [])]
        write_tar(tmp_path / "shards" / f"{number:03d}.tar", members)
    return tmp_path


def run(words: list[str], holotype, backbone: Path) -> None:
    small = ["--backbone", str(backbone)] if words[0] in ("embed", "estimate-k") else []
    outcome = holotype(*words, *small, "--device", "cpu", "--no-progress")
    assert outcome.code == 0, outcome.err


def test_the_commands_on_this_machine(here: Path, holotype, tiny_backbone_file: Path) -> None:
    local = [words for words in COMMANDS if not any("s3://" in word for word in words)]
    assert [words[0] for words in local] == ["discover", "estimate-k", "discover", "assign"]
    for words in local:
        run(words, holotype, tiny_backbone_file)
    for name in ("train.parquet", "000-003"):
        assert Discovery.load(here / "runs" / f"{name}-discover").known == ("green", "red")
    assert (here / "runs" / "dataset-estimate-k" / "count.json").is_file()
    assert len((here / "runs" / "000-003-discover" / "assigned" / "003.csv").read_text().splitlines()) == 17


def test_the_commands_on_a_bucket(
    here: Path, bucket: Bucket, squares_folder: Path, holotype, tiny_backbone_file: Path, monkeypatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    bucket.put_folder(squares_folder, "photos")
    bucket.put_folder(here / "shards", "shards")
    remote = [words for words in COMMANDS if any("s3://" in word for word in words)]
    assert [words[0] for words in remote] == ["discover", "embed"]
    for words in remote:
        run(words, holotype, tiny_backbone_file)
    found = Discovery.load(here / "runs" / "photos-discover")
    assert found.images["path"].str.startswith("s3://bucket/photos/").all()
    assert list((here / "runs" / "000-003-embeddings").glob("part-*.parquet"))


def test_what_the_page_says_of_settings_is_so() -> None:
    from holotype.data.storage import OPTIONS, STORES

    assert all(f"`{name}" in PAGE or f"{name}=" in PAGE for name in OPTIONS["s3"])
    assert all(f"{scheme}://" in PAGE for scheme in ("s3", "gs", "abfs", "hf") if scheme in STORES)
