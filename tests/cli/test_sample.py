"""`holotype sample`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_embeddings import write_embeddings

N = 200


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = [f"{'fox' if row < 3 else 'unlabelled'}/{row:03d}.jpg" for row in range(N)]
    return write_embeddings(tmp_path / "embeddings", path, rng.normal(size=(N, 6)), problem={9: "cut off"})


def test_a_sample_with_labels_of_folders(holotype, embeddings: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "some.parquet"
    outcome = holotype("sample", embeddings, "--n", 40, "--out", out, "--no-progress")
    assert outcome.code == 0, outcome.err
    frame = pd.read_parquet(out)
    assert list(frame.columns) == ["path", "label", "weight", "cell"]
    assert len(frame) == 40
    assert frame.weight.sum() == pytest.approx(N - 1)
    assert sorted(frame.path[frame.label == "fox"]) == [
        str(tmp_path / "fox" / f"00{i}.jpg") for i in range(3)
    ]
    assert "40 of 199 images from 4 cells" in outcome.out
    assert "3 images are labelled, which were all kept." in outcome.out
    assert "could not be read: 1 image." in outcome.out
    again = tmp_path / "again.parquet"
    assert holotype("sample", embeddings, "--n", 40, "--out", again).code == 0
    assert out.read_bytes() == again.read_bytes()


def test_labels_from_a_list_or_none(holotype, embeddings: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\nunlabelled/100.jpg,owl\n")
    out = tmp_path / "s.parquet"
    words = ("sample", embeddings, "--n", 5, "--out", out)
    assert holotype(*words, "--labels", tmp_path / "labels.csv").code == 0
    frame = pd.read_parquet(out)
    assert set(frame.label) == {"", "owl"}
    assert frame.path[frame.label == "owl"].tolist() == [str(tmp_path / "unlabelled" / "100.jpg")]
    assert holotype(*words, "--no-labels", "--overwrite").code == 0
    assert set(pd.read_parquet(out).label) == {""}


def test_more_than_there_are(holotype, embeddings: Path, tmp_path: Path) -> None:
    outcome = holotype("sample", embeddings, "--out", tmp_path / "s.parquet")
    assert outcome.code == 0
    assert "There are only 199 images, no more than the 200,000 asked for" in outcome.out
    frame = pd.read_parquet(tmp_path / "s.parquet")
    assert len(frame) == 199
    assert set(frame.weight) == {1.0}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--n", "0"], "--n must be"),
        (["--n", "many"], "--n must be"),
        (["--n", "50", "--cells", "51"], "--cells 51 does not fit"),
        (["--n", "2"], "3 images are labelled"),
        (["--out", "sample.csv"], "end in .parquet"),
        (["--labels", "absent.csv"], "absent.csv does not exist"),
        (["--labels", "wrong.csv"], "are not among the embeddings"),
        (["--labels", "wrong.csv", "--no-labels"], "contradict each other"),
        (["--out", "photo.parquet"], "--overwrite"),
    ],
)
def test_bad_input(
    holotype, embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.csv").write_text("path,label\nnowhere.jpg,owl\n")
    Path("photo.parquet").write_bytes(b"somebody's")
    outcome = holotype("sample", embeddings, *words)
    assert outcome.code == 2
    assert told in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not Path("sample.parquet").exists()
    assert Path("photo.parquet").read_bytes() == b"somebody's"


def test_no_embeddings(holotype, tmp_path: Path) -> None:
    outcome = holotype("sample", tmp_path)
    assert outcome.code == 2
    assert "no folder of embeddings" in outcome.err
