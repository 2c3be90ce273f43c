"""Discoveries of vectors: the whole way, corrected and gone on with, new rows, and what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holotype.discovery.source import Source
from holotype.embeddings.store import EmbeddingParts
from holotype.report.build import read_data
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv
from holotype.runs.model_io import load_model
from tests.cli.conftest import assert_sentence

DIM, EACH = 12, 20
QUICK = ("--k", "4", "--steps", "20", "--seeds", "1", "--no-progress", "--device", "cpu")


def write_songs(file: Path, each: int = EACH, seed: int = 0, dim: int = DIM) -> Path:
    """Four kinds of calls as points around four centres; half of owl and jay are labelled."""
    centre = np.random.default_rng(7).normal(size=(4, dim)) * 5
    noise = np.random.default_rng(seed)
    rows = [
        {
            "id": f"{kind}-{n}",
            "vector": (centre[number] + noise.normal(size=dim)).tolist(),
            "label": kind if number < 2 and n < each // 2 else "",
            "truth": kind,
            "text": f"a call of {kind}",
        }
        for number, kind in enumerate(("owl", "jay", "tit", "wren"))
        for n in range(each)
    ]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


@pytest.fixture
def songs(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_songs(tmp_path / "songs.parquet")


def test_the_whole_way(songs, holotype) -> None:
    words = ("discover", "--features", songs, *QUICK, "--method", "kmeans", "--out", "run")
    said = holotype(*words)
    assert said.code == 0, said.err
    found = Discovery.load(Path("run"))
    frame = found.images.assign(truth=[p.rpartition("#")[2].partition("-")[0] for p in found.images.path])
    assert frame.groupby("truth").category.nunique().tolist() == [1] * 4  # well parted: every kind is whole
    assert frame.category.nunique() == 4
    assert set(frame.text) == {f"a call of {kind}" for kind in ("owl", "jay", "tit", "wren")}
    data = read_data(Path("run"))
    assert min(data["thumbs"]["cell"]) >= 0  # each row has a card with its text
    assert Source.load(Path("run")).arguments() == [f"--features={songs}"]  # by which the studio goes on
    seen = holotype("discover", "--features", songs, *QUICK, "--out", "other", "--dry-run")
    assert "network" not in seen.out

    tit = str(frame.category_id[frame.truth == "tit"].iloc[0])
    image = str(frame.path[frame.truth == "tit"].iloc[0])
    edits = [Edit(found.run_id, "1", "rename", "", tit, "great tit")]
    edits.append(Edit(found.run_id, "2", "confirm", image, "", tit))
    Path("edits.csv").write_text(edits_csv(edits), encoding="utf-8")
    again = holotype(*words, "--edits", "edits.csv")
    assert again.code == 0, again.err
    now = Discovery.load(Path("run"))
    assert now.facts.round == 2
    assert now.category(tit).name == "great tit"

    new = write_songs(songs.with_name("new.parquet"), each=5, seed=1)
    assert holotype("assign", "run", new).code == 0
    placed = pd.read_csv("run/assigned/new.csv", keep_default_na=False)
    kinds = [path.rpartition("#")[2].partition("-")[0] for path in placed.path]
    assert [kind == "tit" for kind in kinds] == (placed.category == "great tit").tolist()
    assert placed.fits.mean() > 0.5


def test_new_kinds_open_categories_that_the_next_round_proposes(songs, holotype) -> None:
    """The run knows owl, jay and tit; wrens come later."""
    rows = pq.read_table(songs).to_pandas()
    old, wrens = rows[rows.truth != "wren"], rows[rows.truth == "wren"]
    old.to_parquet("old.parquet")
    pd.concat([wrens[:9], old[::10]]).to_parquet("new.parquet")
    wrens[9:].to_parquet("more.parquet")
    words = (*QUICK[2:], "--method", "kmeans", "--out", "run")
    assert holotype("discover", "--features", "old.parquet", "--k", "3", *words).code == 0
    said = holotype("assign", "run", "new.parquet", "--open")
    assert said.code == 0, said.err
    placed = pd.read_csv("run/assigned/new.csv", keep_default_na=False)
    kinds = [path.rpartition("#")[2].partition("-")[0] for path in placed.path]
    assert [kind == "wren" for kind in kinds] == (placed.category == "open-01").tolist()
    assert "9 in 1 provisional category" in said.out
    assert holotype("assign", "run", "more.parquet", "--open").code == 0
    assert set(pd.read_csv("run/assigned/more.csv").category) == {"open-01"}
    assert holotype("assign", "run", "new.parquet", "--open", "--overwrite").code == 0  # nothing counts twice
    assert pq.read_table("run/open.parquet").num_rows == EACH
    again = holotype("discover", "--features", songs, "--k", "4", *words)
    assert "open-01, which assign had opened, may be new-" in again.out + again.err
    found = Discovery.load(Path("run"))
    ids = zip(found.images.path, found.images.category_id, strict=True)
    (wren,) = {one for path, one in ids if "#wren" in path}
    assert found.category(wren).suggested == "open-01"
    assert holotype("report", "run").code == 0
    assert Discovery.load(Path("run")).category(wren).suggested == "open-01"
    assert holotype("assign", "run", "more.parquet", "--open", "--slice", "8").code == 2


def test_a_round_goes_on_where_only_the_file_has_moved(songs, holotype) -> None:
    words = (*QUICK, "--method", "kmeans", "--out", "run")
    assert holotype("discover", "--features", songs, *words).code == 0
    moved = songs.rename(songs.with_name("calls.parquet"))
    again = holotype("discover", "--features", moved, *words)
    assert "renamed" in again.out + again.err
    assert Discovery.load(Path("run")).facts.round == 1


def test_training_does_not_change_what_the_second_opinion_sees(songs, holotype) -> None:
    assert holotype("discover", "--features", songs, *QUICK, "--out", "run").code == 0
    x = np.array(pq.read_table(songs)["vector"].to_pylist(), dtype=np.float32)
    read = load_model("run", "cpu").read_vectors(x)
    assert read.frozen is not None
    assert np.array_equal(read.frozen, x)
    assert np.isfinite(read.features).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "promptcal"), "vectors"),
        (("--backbone", "embedded"), "--backbone"),
        (("--boxes", "boxes.json"), "--boxes"),
        (("photos",), "one of them"),
    ],
)
def test_what_does_not_go_with_vectors_is_refused(songs, holotype, words, said) -> None:
    refused = holotype("discover", "--features", songs, *QUICK, "--out", "run", *words)
    assert refused.code == 2
    assert said in refused.err
    assert not Path("run/report.html").exists()


def test_new_vectors_of_another_length_change_nothing(songs, holotype) -> None:
    assert holotype("discover", "--features", songs, *QUICK, "--method", "kmeans", "--out", "run").code == 0
    before = sorted(Path("run").rglob("*"))
    shorter = write_songs(songs.with_name("short.parquet"), dim=DIM - 1)
    refused = holotype("assign", "run", shorter)
    assert refused.code == 2
    assert f"{DIM - 1} numbers" in refused.err
    assert sorted(Path("run").rglob("*")) == before
    assert holotype("export", "run", "model.onnx").code == 2


def test_rows_without_images_are_not_written_as_images(songs, holotype) -> None:
    words = ("discover", "--features", songs, *QUICK, "--method", "kmeans", "--out", "run")
    assert holotype(*words).code == 0
    for flag, out in (("--folders", "a"), ("--coco", "a.json"), ("--cvat", "a.xml")):
        assert_sentence(holotype("write", "run", flag, out, "--no-progress"), "--labels")
        assert not Path(out).exists()
    refused = holotype("assign", "run", songs, "--copy-to", "copies", "--no-progress")
    assert_sentence(refused, "--copy-to")
    assert not list(Path("run").glob("assigned/*"))
    assert holotype("write", "run", "--labels", "labels.csv").code == 0
    assert_sentence(holotype("discover", songs, "--dry-run"), "--features")


def test_features_of_ones_own_lead_where_the_images_do(
    squares_folder, tiny_backbone_file, tmp_path, holotype
) -> None:
    words = ("--method", "kmeans", "--no-progress", "--device", "cpu")
    images = ("discover", squares_folder, "--backbone", tiny_backbone_file, "--out", tmp_path / "images")
    assert holotype(*images, *words).code == 0
    seen = Discovery.load(tmp_path / "images")
    feature = {
        digest: row
        for part in EmbeddingParts(tmp_path / "images" / "embeddings")
        for digest, row in zip(part.digest, part.features.tolist(), strict=True)
    }
    rows = seen.images[seen.images.problem == ""]
    vectors = [feature[digest] for digest in rows.digest]
    table = pa.table({"id": rows.path.tolist(), "vector": vectors, "label": rows.label.tolist()})
    pq.write_table(table, tmp_path / "rows.parquet")
    given = ("discover", "--features", tmp_path / "rows.parquet", "--out", tmp_path / "rows")
    assert holotype(*given, *words).code == 0
    found = Discovery.load(tmp_path / "rows")
    assert (found.facts.k, found.count["best"]) == (seen.facts.k, seen.count["best"])
    ids = zip(found.images.path, found.images.category_id, strict=True)
    placed = {path.rpartition("#")[2]: one for path, one in ids}
    assert placed == dict(zip(rows.path, rows.category_id, strict=True))
