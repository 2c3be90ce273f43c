"""From embeddings to a sample to categories: features are taken over, weights count, and the rest is placed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import holotype.embeddings.store as embed
from holotype.data.load import load_table
from holotype.results.discovery import Discovery
from holotype.utils.serialization import read_json

N, TAKEN = 64, 40


@pytest.fixture(scope="module")
def sampled(squares_folder: Path, tiny_backbone_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with e/ and sample.parquet."""
    from holotype.cli import main

    folder = tmp_path_factory.mktemp("sampled")
    backbone = ["--backbone", str(tiny_backbone_file), "--device", "cpu", "--no-progress"]
    assert main(["embed", str(squares_folder), *backbone, "--out", str(folder / "e")]) == 0
    out = ["--n", str(TAKEN), "--cells", "6", "--out", str(folder / "sample.parquet")]
    assert main(["sample", str(folder / "e"), *out, "--no-progress"]) == 0
    return folder


def test_the_table_has_the_weights(sampled: Path) -> None:
    table = load_table(sampled / "sample.parquet")
    frame = pd.read_parquet(sampled / "sample.parquet")
    assert table.weights.tolist() == frame.weight.tolist()
    assert table.weights.sum() == pytest.approx(N)
    assert (table.known, int(table.labelled.sum())) == (("green", "red"), 16)
    assert table.take([3, 1]).weights.tolist() == frame.weight[[3, 1]].tolist()


def test_the_whole_way(
    holotype, sampled: Path, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path, monkeypatch
) -> None:
    run = tmp_path / "run"
    computed = []
    rows = embed.embed_rows
    monkeypatch.setattr(embed, "embed_rows", lambda *given: (computed.append(given), rows(*given)))
    words = ["--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
    asked = ["--method", "simgcd", "--steps", "4", "--seeds", "1", "--out", run]
    outcome = holotype(
        "discover", "--embeddings", sampled / "e", "--table", sampled / "sample.parquet", *words, *asked
    )
    assert outcome.code == 0, outcome.err
    assert computed == []  # all features were there
    found = Discovery.load(run)
    assert len(found.images) == TAKEN
    assert found.images.weight.sum() == pytest.approx(N)
    assert f"stand for about {N} of a collection" in outcome.out
    assert "in the collection" in outcome.out
    assert "weights" in read_json(run / "count.json")["of"]
    assert pd.read_csv(run / "assignments.csv").weight.sum() == pytest.approx(N)
    assert '"whole"' in (run / "report.html").read_text(encoding="utf-8")
    placed = holotype(
        "assign", run, squares_folder, "--device", "cpu", "--no-progress", "--out", tmp_path / "a.csv"
    )
    assert placed.code == 0, placed.err
    assert len(pd.read_csv(tmp_path / "a.csv")) == N


def test_embeddings_of_another_network_claim_no_folder(holotype, sampled: Path, tmp_path: Path) -> None:
    outcome = holotype(
        *("discover", sampled / "sample.parquet", "--embeddings", sampled / "e", "--out", tmp_path / "run"),
        *("--backbone", "embedded", "--device", "cpu", "--no-progress"),
    )
    assert outcome.code == 2
    assert "backbone digest" in outcome.err
    assert not (tmp_path / "run" / "identity.json").exists()


def test_a_folder_without_embeddings(holotype, sampled: Path, tmp_path: Path) -> None:
    outcome = holotype("discover", sampled / "sample.parquet", "--embeddings", tmp_path)
    assert outcome.code == 2
    assert "no folder of embeddings" in outcome.err
