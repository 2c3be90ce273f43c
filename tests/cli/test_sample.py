"""`holotype sample`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_embeddings import write_embeddings

from .conftest import assert_sentence

N = 200


@pytest.fixture
def embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = [f"{'fox' if row < 3 else 'unlabelled'}/{row:03d}.jpg" for row in range(N)]
    features = np.random.default_rng(0).normal(size=(N, 6))
    return write_embeddings(tmp_path / "embeddings", path, features, problem={9: "cut off"})


def test_a_sample_with_labels_of_folders(holotype, embeddings: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "some.parquet"
    outcome = holotype("sample", embeddings, "--n", 40, "--out", out, "--no-progress")
    assert outcome.code == 0, outcome.err
    frame = pd.read_parquet(out)
    assert list(frame.columns) == ["path", "label", "weight", "cell"]
    assert len(frame) == 40
    assert frame.weight.sum() == pytest.approx(N - 1)
    foxes = [str(tmp_path / "fox" / f"00{i}.jpg") for i in range(3)]
    assert sorted(frame.path[frame.label == "fox"]) == foxes
    for part in ("40 of 199 images from 4 cells", "3 images are labelled", "could not be read: 1 image."):
        assert part in outcome.out
    assert holotype("sample", embeddings, "--n", 40, "--out", "again.parquet").code == 0
    assert out.read_bytes() == Path("again.parquet").read_bytes()


def test_labels_from_a_list_or_none(holotype, embeddings: Path, tmp_path: Path) -> None:
    Path("labels.csv").write_text("path,label\nunlabelled/100.jpg,owl\n")
    words = ("sample", embeddings, "--n", 5, "--out", "s.parquet")
    assert holotype(*words, "--labels", "labels.csv").code == 0
    frame = pd.read_parquet("s.parquet")
    assert set(frame.label) == {"", "owl"}
    assert frame.path[frame.label == "owl"].tolist() == [str(tmp_path / "unlabelled" / "100.jpg")]
    assert holotype(*words, "--no-labels", "--overwrite").code == 0
    assert set(pd.read_parquet("s.parquet").label) == {""}


def test_more_than_there_are_and_none(holotype, embeddings: Path, tmp_path: Path) -> None:
    outcome = holotype("sample", embeddings, "--out", "s.parquet")
    assert "There are only 199 images, no more than the 200,000 asked for" in outcome.out
    assert set(pd.read_parquet("s.parquet").weight) == {1.0}
    assert_sentence(holotype("sample", tmp_path), "no folder of embeddings")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--n 0", "--n must be"),
        ("--n 50 --cells 51", "--cells 51 does not fit"),
        ("--n 2", "3 images are labelled"),
        ("--out sample.csv", ".parquet"),
        ("--labels absent.csv", "absent.csv does not exist"),
        ("--labels wrong.csv", "are not among the embeddings"),
        ("--labels wrong.csv --no-labels", "contradict each other"),
        ("--out photo.parquet", "--overwrite"),
    ],
)
def test_bad_input(holotype, embeddings: Path, words: str, told: str) -> None:
    Path("wrong.csv").write_text("path,label\nnowhere.jpg,owl\n")
    Path("photo.parquet").write_bytes(b"somebody's")
    assert_sentence(holotype("sample", embeddings, *words.split()), told)
    assert not Path("sample.parquet").exists()
    assert Path("photo.parquet").read_bytes() == b"somebody's"
