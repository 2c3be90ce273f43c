"""From images to categories: the whole way on coloured squares, stopped and gone on, corrected, and bad input."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import holotype.embeddings.store as embed
from holotype.clustering.estimate_k import pick_k
from holotype.clustering.k_curve import CountEstimate
from holotype.data.load import load_table
from holotype.discovery.pipeline import discover, discover_table
from holotype.errors import InputError, Stopped
from holotype.report.page_data import read_scores
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from holotype.runs.model_io import load_model
from holotype.runs.record import PER_CLASS_FILE, RunFolder
from holotype.training.checkpoint import save_checkpoint
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import read_json
from tests.cli.test_bad_input import pressed
from tests.conftest import write_csv
from tests.discovery.made_round import edits_file
from tests.runs.test_run import FOLDER


@pytest.fixture
def nothing_trained(monkeypatch) -> None:
    """Another round is a failure."""
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))


def test_the_run_folder_holds_everything(first_run: Path, squares_folder: Path) -> None:
    found = Discovery.load(first_run)
    table = load_table(squares_folder / "squares.csv")
    assert list(found.images.path) == list(table.path)
    assert list(found.images.columns) == [*IMAGE_TABLE_COLUMNS, "digest"]
    assert found.known == ("green", "red")
    assert {c.kind for c in found.categories[:2]} == {"known"}
    assert sum(c.n for c in found.categories) == len(table)
    assert found.count is None  # --k was given
    labelled = found.images[found.images.label != ""]
    assert (labelled.category == labelled.label).all()  # a label has the last word
    assert found.images.probability.between(0, 1).all()
    assert np.isfinite(found.images[["x", "y", "typicality"]]).all().all()
    novel = [c for c in found.categories if c.kind == "novel"]
    assert [c.id for c in novel] == sorted(c.id for c in novel)
    features = np.load(first_run / "features.npy")
    assert features.shape[0] == len(table)
    there = {path.name for path in first_run.iterdir()}
    assert there >= {*FOLDER, "features.npy", "report.html", "queue.csv"} - {"metrics.jsonl"}
    assert "labelled images" in found.facts.calibration  # on how many, or that there were too few


def test_a_round_is_a_run_like_any_other(first_run: Path, squares_folder: Path) -> None:
    own = first_run / "rounds" / "1"
    assert {path.name for path in own.iterdir()} >= {
        *FOLDER,
        "features.npy",
        "round.json",
        "collection.parquet",
    }
    assert not list(own.glob("state*"))  # it is finished
    found, model = Discovery.load(own), load_model(own, "cpu")
    assert model.run_id == found.run_id == Discovery.load(first_run).run_id
    assert load_model(first_run, "cpu").ids == model.ids
    record = RunFolder(own).finished()
    assert record is not None
    told = (record.identity.method["name"], record.scores.n, record.identity.data["name"])
    assert told == ("rpc", 48, "squares")
    assert record.scores.all is not None
    assert 0 <= record.scores.all <= 1
    assert "all" not in (first_run / "discovery.json").read_text().replace("small", "").split('"')


@pytest.mark.parametrize("method", ["kmeans", "simgcd"])
def test_other_methods_discover_as_well(method, squares_folder, small, tmp_path) -> None:
    table = load_table(squares_folder / "squares.csv")
    found = discover_table(table, small(method=method), tmp_path / "run", progress=False)
    assert found.facts.method == method
    assert (found.images.category != "").all()
    with pytest.raises(InputError, match="There is no method"):
        discover_table(table, small(method="magic"), tmp_path / "other", progress=False)
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("nothing_trained")
def test_a_finished_discovery_is_not_made_again(run, first_run, squares_folder, small) -> None:
    found = discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)
    assert found.run_id == Discovery.load(first_run).run_id


def test_the_same_command_goes_on_where_it_was_stopped(
    first_run, squares_folder, small, tmp_path, monkeypatch
) -> None:
    """Stopped again and again; the outcome is that of a run that was never stopped, and nothing is done twice."""
    table, run = load_table(squares_folder / "squares.csv"), tmp_path / "run"

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped, match="image 64"):
            discover_table(table, small(), run, progress=False)
        patch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
        with pytest.raises(Stopped, match="epoch 1"):
            discover_table(table, small(), run, progress=False)
    assert (run / "rounds" / "1" / "state.json").is_file()
    monkeypatch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
    for module, name, step in (
        ("holotype.runs.run", "build_discovery", "placing"),
        ("holotype.report.projection", "project_tsne", "the map"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.{name}", stop)
            with pytest.raises(Stopped, match=step):
                discover_table(table, small(), run, progress=False)
        assert not (run / "discovery.json").exists()
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    found = discover_table(table, small(), run, progress=False)
    pd.testing.assert_frame_equal(found.images, Discovery.load(first_run).images)


def test_k_is_estimated_where_it_is_not_given(squares_folder, small, tmp_path) -> None:
    table = load_table(squares_folder / "squares.csv")
    found = discover_table(table, small(k="auto"), tmp_path / "run", progress=False)
    assert found.count is not None
    assert found.count["low"] <= found.count["best"] <= found.count["high"]
    assert found.facts.k == pick_k(CountEstimate.from_dict(found.count))
    assert (tmp_path / "run" / "count.json").is_file()


def test_nothing_new_is_a_legal_answer(squares_folder, small, tmp_path) -> None:
    table = load_table(squares_folder / "squares.csv")
    found = discover_table(table, small(k=2), tmp_path / "run", progress=False)
    assert [c.kind for c in found.categories] == ["known", "known"]
    assert set(found.images.category) == {"green", "red"}


def test_beyond_the_budget_a_sample_is_trained_on_and_the_rest_is_placed(
    squares_folder, small, tmp_path
) -> None:
    table = load_table(squares_folder / "squares.csv")
    found = discover_table(table, small(sample=40), tmp_path / "run", progress=False)
    assert 40 <= found.facts.trained_on < len(table)
    assert (found.images.category != "").all()
    assert np.isfinite(np.load(tmp_path / "run" / "features.npy")).all()


def test_settings_by_name_in_python(squares_folder, tiny_backbone_file, tmp_path) -> None:
    settings = {"k": 4, "steps": 4, "backbone": str(tiny_backbone_file), "device": "cpu", "progress": False}
    found = discover(squares_folder, out=tmp_path / "run", **settings)
    assert len(found.images) == 64  # squares.csv is no image


def test_images_that_cannot_be_read_are_told(squares_folder, small, tmp_path) -> None:
    shutil.copytree(squares_folder, tmp_path / "photos")
    broken = tmp_path / "photos" / "unlabelled" / "broken.png"
    broken.write_bytes(b"no picture")
    found = discover_table(load_table(tmp_path / "photos"), small(), tmp_path / "run", progress=False)
    row = found.images[found.images.path == str(broken)].iloc[0]
    assert (row.category, row.kind, row.category_id) == ("", "", "")
    assert "not an image" in row.problem


def test_names_may_be_anything(small, tmp_path) -> None:
    """Spaces, quotes, HTML, Unicode and formulas, in folders and files: taken as they are, guarded in the CSV."""
    colours = {"=cmd()": GREYS[:4], "<b>'Käfer'\" &amp;": GREYS[-4:], "unlabelled": GREYS[4:-4]}
    folder = paint(tmp_path / "my photos #1", colours)
    (folder / "unlabelled" / "0.png").rename(folder / "unlabelled" / "a 'b' <i>ü %20 100%.png")
    found = discover_table(load_table(folder), small(), tmp_path / "run", progress=False)
    assert found.known == tuple(sorted(set(colours) - {"unlabelled"}))
    assert set(found.images.label) == {"", *found.known}
    assert all(Path(path).is_file() for path in found.images.path)
    sheet = pd.read_csv(tmp_path / "run" / "assignments.csv", keep_default_na=False)
    assert {"'=cmd()", "<b>'Käfer'\" &amp;"} <= set(sheet.category)
    assert "<b>'Käfer'" not in (tmp_path / "run" / "report.html").read_text()


# -- edits --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_trained")
def test_names_count_at_once_and_nothing_is_trained(run, squares_folder, small) -> None:
    novel = next(c for c in Discovery.load(run).categories if c.kind == "novel")
    file = edits_file(run, ("rename", "", novel.id, "=sky()"))
    table = load_table(squares_folder / "squares.csv")
    for _ in range(2):  # the second time nothing is new
        found = discover_table(table, small(), run, progress=False, edits=file)
        assert found.category(novel.id).name == "=sky()"
    assert "'=sky()" in (run / "assignments.csv").read_text()
    assert Discovery.load(run / "rounds" / "1").category(novel.id).name == novel.id


def test_confirmed_labels_lead_to_another_round(run, squares_folder, small) -> None:
    before = Discovery.load(run)
    table = load_table(squares_folder / "squares.csv")
    blue = [path for path in table.path if "blue" in path][:6]
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    found = discover_table(table, small(), run, progress=False, edits=file)
    assert found.known == ("green", "red", "blue")
    assert (found.facts.round, found.facts.confirmed_labels) == (2, 6)
    assert found.facts.earlier_runs == (before.run_id,)
    assert found.run_id != before.run_id
    assert set(found.images.label[found.images.path.isin(blue)]) == {"blue"}
    assert Discovery.load(run / "rounds" / "1").run_id == before.run_id  # nothing is lost
    again = discover_table(table, small(), run, progress=False)
    assert again.run_id == found.run_id


def test_more_known_classes_than_k_raise_it(run, squares_folder, small) -> None:
    table = load_table(squares_folder / "squares.csv")
    names = [
        ("confirm", path, "", f"kind {i % 3}")
        for i, path in enumerate(p for p in table.path if "yellow" in p)
    ]
    found = discover_table(table, small(), run, progress=False, edits=edits_file(run, *names))
    assert found.facts.k == len(found.known) == 5


# -- bad input, as users produce it ---------------------------------------------------------------------------


def paint(folder: Path, colours: dict[str, list[tuple[int, int, int]]]) -> Path:
    for name, values in colours.items():
        (folder / name).mkdir(parents=True)
        for number, colour in enumerate(values):
            Image.new("RGB", (40, 40), colour).save(folder / name / f"{number}.png")
    return folder


GREYS = [(i, i, i) for i in range(0, 200, 10)]


@pytest.mark.parametrize(
    ("photos", "said"),
    [
        ({"a": GREYS[:1], "b": GREYS[1:2], "unlabelled": GREYS[2:3]}, "only 3 images"),
        ({"a": GREYS[:6], "b": GREYS[6:12]}, "Every usable image"),
        ({"unlabelled": GREYS}, "No usable image"),
        ({"a": GREYS[:4], "unlabelled": GREYS[4:]}, "Only one known class"),
        ({"a": [(9, 9, 9)] * 4, "b": [(9, 9, 9)] * 4, "unlabelled": [(9, 9, 9)] * 8}, "look the same"),
    ],
)
def test_collections_with_nothing_to_discover(photos, said, small, tmp_path) -> None:
    folder = paint(tmp_path / "photos", photos)
    with pytest.raises(InputError, match=said) as caught:
        discover_table(load_table(folder), small(k="auto"), tmp_path / "run", progress=False)
    assert "\n" not in str(caught.value)


def test_one_labelled_image_per_class_is_enough(small, tmp_path) -> None:
    folder = paint(tmp_path / "photos", {"a": GREYS[:1], "b": GREYS[-1:], "unlabelled": GREYS[1:-1]})
    found = discover_table(load_table(folder), small(k="auto"), tmp_path / "run", progress=False)
    assert (found.images.category != "").all()


def test_settings_that_cannot_be(squares_folder, small, tmp_path) -> None:
    table = load_table(squares_folder / "squares.csv")
    with pytest.raises(InputError, match="smaller than the 2 known classes"):
        discover_table(table, small(k=1), tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="more than the 64 images"):
        discover_table(table, small(k=65), tmp_path / "run", progress=False)


def test_a_folder_of_something_else_is_refused(run, squares_folder, small, tmp_path) -> None:
    """Before anything is written."""
    table = load_table(squares_folder / "squares.csv")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    others = load_table(
        paint(tmp_path / "photos", {"a": GREYS[:4], "b": GREYS[-4:], "unlabelled": GREYS[4:-4]})
    )
    with pytest.raises(
        InputError, match="a discovery of other images: none of its 64 is among those of photos"
    ):
        discover_table(others, small(), run, progress=False)
    with pytest.raises(InputError, match="was begun with backbone"):
        discover_table(table, small(backbone="embedded"), run, progress=False)
    unlabelled = dataclasses.replace(table, label=np.full(64, "", dtype=object), known=())
    with pytest.raises(InputError, match="No image of squares comes with a label"):
        discover_table(unlabelled, small(), run, progress=False)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before
    (run / "identity.json").write_text(json.dumps({**read_json(run / "identity.json"), "format": 0}))
    with pytest.raises(InputError, match="another kind or version"):
        discover_table(table, small(), run, progress=False)


# -- A truth that comes with the images is scored, whenever it comes: on the terminal, in the record


@pytest.fixture
def lists(squares_folder: Path, tmp_path: Path) -> dict[str, Path]:
    """Lists of the squares: without a truth, with that of every second image, with all of it."""
    with (squares_folder / "squares.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    half = [(*row[:2], row[2] if number % 2 else "") for number, row in enumerate(rows)]
    return {
        "none": write_csv(tmp_path / "labels.csv", "path,label", [tuple(row[:2]) for row in rows]),
        "half": write_csv(tmp_path / "half.csv", ",".join(header), half),
        "all": write_csv(tmp_path / "truth.csv", ",".join(header), [tuple(row) for row in rows]),
    }


def test_a_truth_that_comes_after_the_training_is_scored(
    squares_folder, small, lists, tmp_path, monkeypatch
) -> None:
    run, config = tmp_path / "run", small(method="kmeans")
    discover_table(load_table(squares_folder, lists["all"]), config, tmp_path / "at once", progress=False)
    at_once = RunFolder(tmp_path / "at once").finished()
    discover_table(load_table(squares_folder, lists["none"]), config, run, progress=False)
    assert read_scores(run) == {}
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    discover_table(load_table(squares_folder, lists["half"]), config, run, progress=False)
    half = RunFolder(run).finished()
    discover_table(load_table(squares_folder, lists["all"]), config, run, progress=False)
    whole = RunFolder(run).finished()
    assert at_once is not None
    assert half is not None
    assert whole is not None
    assert (half.scores.n, whole.scores.n) == (24, 48)
    assert whole.scores == at_once.scores
    assert read_scores(run)["kmeans"]["all"] == at_once.scores.all
    assert (run / "rounds" / "1" / PER_CLASS_FILE).is_file()
    discover_table(load_table(squares_folder, lists["none"]), config, run, progress=False)
    assert RunFolder(run).finished() == whole  # nobody has said that it was wrong


def test_the_terminal_tells_the_scores(
    holotype, run, squares_folder, tiny_backbone_file, lists, tmp_path
) -> None:
    settings = ("--k", 4, "--steps", 12, "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress")
    for_run = ("--out", run, *settings)
    record = RunFolder(run).finished()
    assert record is not None
    assert record.scores.all is not None
    outcome = holotype("discover", squares_folder, "--labels", lists["all"], *for_run)
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.split()[:1] == ["unlabelled"]]
    wanted = (record.scores.all, record.scores.old, record.scores.new)
    assert [float(word) for word in line.split()[1:]] == [round(100 * share, 1) for share in wanted]
    plain = holotype(
        "discover", squares_folder, "--labels", lists["none"], "--method", "kmeans", *settings, "--out", tmp_path / "r"
    )  # fmt: skip
    assert plain.code == 0, plain.err
    assert "unlabelled  " not in plain.out


# -- A discovery whose rounds were stopped: it goes on, or says why not


def test_a_round_that_was_stopped_is_not_taken_for_another(run, squares_folder, small, monkeypatch) -> None:
    """Labels were confirmed, its training was stopped, and more labels came: it stays, and the next one is trained."""
    table = load_table(squares_folder / "squares.csv")
    blue = [path for path in table.path if "blue" in path][:6]
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        file = edits_file(run, *[("confirm", path, "", "blue") for path in blue[:3]])
        with pytest.raises(Stopped):
            discover_table(table, small(), run, progress=False, edits=file)
    state = (run / "rounds" / "2" / "state.json").read_bytes()
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    found = discover_table(table, small(), run, progress=False, edits=file)
    assert (found.facts.round, found.facts.confirmed_labels) == (3, 6)
    assert (run / "rounds" / "2" / "state.json").read_bytes() == state


def test_a_half_deleted_round_does_not_go_on_with_old_weights(run, squares_folder, small) -> None:
    """What is left of another training is refused, and told; nothing is learned from it in silence."""
    table = load_table(squares_folder / "squares.csv")
    blue = [path for path in table.path if "blue" in path][:6]
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    found = discover_table(table, small(), run, progress=False, edits=file)
    own = run / "rounds" / "2"
    for name in ("scores.json", "identity.json"):
        (own / name).unlink()
    save_checkpoint(own, {}, {"counter": 1, "identity": "another"})
    with pytest.raises(InputError, match="training state of another run"):
        discover_table(table, small(), run, progress=False)
    (own / "state.json").unlink()
    again = discover_table(table, small(), run, progress=False)
    columns = ["path", "category_id", "probability"]
    pd.testing.assert_frame_equal(again.images[columns], found.images[columns])


def test_two_commands_do_not_work_in_one_folder(run, squares_folder, small) -> None:
    with lock_folder(run), pytest.raises(InputError):
        discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)


def test_what_only_an_unfinished_round_needs_goes_with_the_next_command(run, squares_folder, small) -> None:
    """A kill at the very end of a round: its result is there, and its state is too."""
    own = run / "rounds" / "1"
    for name in ("state.json", "state-00000008.safetensors", "rest/manifest.json", "trainings/5/state.json"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("left")
    before = (own / "scores.json").read_bytes()
    discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)
    left = [name for name in ("state.json", "rest", "trainings") if (own / name).exists()]
    assert left + [file.name for file in own.glob("state-*")] == []
    assert (own / "scores.json").read_bytes() == before
    assert not (run / "rounds" / "2").exists()


# -- From embeddings to a sample to categories: features are taken over, weights count, and the rest


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
