"""From images to categories: the whole way on coloured squares, stopped and gone on, corrected, and bad input."""

import csv
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import holotype.embeddings.store as embed
from holotype.cli import main
from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import BackboneConfig
from holotype.data.load import load_table
from holotype.discovery import backbone_choice
from holotype.discovery.collection import index_images
from holotype.discovery.pipeline import (
    CLAIM_FORMAT,
    claim_folder,
    discover,
    discover_table,
    find_folder,
    stored_backbone,
)
from holotype.errors import InputError, Stopped
from holotype.report.page_data import read_scores
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from holotype.runs.model_io import load_model
from holotype.runs.record import PER_CLASS_FILE, RunFolder
from holotype.training.checkpoint import save_checkpoint
from holotype.utils.locks import lock_folder
from holotype.utils.processes import Interrupted
from holotype.utils.serialization import read_json
from tests.cli.test_bad_input import pressed
from tests.conftest import write_csv
from tests.discovery.made_round import edits_file
from tests.runs.test_run import FOLDER

GREYS = [(i, i, i) for i in range(0, 200, 10)]


@pytest.fixture
def table(squares_folder):
    return load_table(squares_folder / "squares.csv")


@pytest.fixture
def go(table, small, run):
    """The same command again, in the folder of a finished discovery or in another one."""

    def command(images=table, folder: Path = run, edits: Path | None = None, **settings: object) -> Discovery:
        return discover_table(images, small(**settings), folder, progress=False, edits=edits)

    return command


@pytest.fixture
def nothing_trained(monkeypatch) -> None:
    """Another round is a failure."""
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))


def paint(folder: Path, colours: dict[str, list[tuple[int, int, int]]]) -> Path:
    for name, values in colours.items():
        (folder / name).mkdir(parents=True)
        for number, colour in enumerate(values):
            Image.new("RGB", (40, 40), colour).save(folder / name / f"{number}.png")
    return folder


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


# -- the whole way


def test_the_run_folder_holds_everything(first_run: Path, table) -> None:
    found = Discovery.load(first_run)
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
    novel = [c.id for c in found.categories if c.kind == "novel"]
    assert novel == sorted(novel)
    assert np.load(first_run / "features.npy").shape[0] == len(table)
    files = {path.name for path in first_run.iterdir()}
    assert files >= {*FOLDER, "features.npy", "report.html", "queue.csv"} - {"metrics.jsonl"}
    assert "labelled images" in found.facts.calibration  # on how many, or that there were too few


def test_a_round_is_a_run_like_any_other(first_run: Path) -> None:
    own = first_run / "rounds" / "1"
    files = {path.name for path in own.iterdir()}
    assert files >= {*FOLDER, "features.npy", "round.json", "collection.parquet"}
    assert not list(own.glob("state*"))  # it is finished
    found, model = Discovery.load(own), load_model(own, "cpu")
    assert model.run_id == found.run_id == Discovery.load(first_run).run_id
    assert load_model(first_run, "cpu").ids == model.ids
    record = RunFolder(own).finished()
    assert record is not None
    assert (record.identity.method["name"], record.identity.data["name"]) == ("rpc", "squares")
    assert (record.scores.n, 0 <= record.scores.all <= 1) == (48, True)
    assert "all" not in (first_run / "discovery.json").read_text().replace("small", "").split('"')


def test_the_same_command_goes_on_where_it_was_stopped(first_run, go, tmp_path, monkeypatch) -> None:
    """Stopped again and again; the outcome is that of a run that was never stopped, and nothing is done twice."""
    folder = tmp_path / "other"

    def stop(*_: object, **__: object) -> None:
        raise Interrupted(15)

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped, match="image 64"):
            go(folder=folder)
        patch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
        with pytest.raises(Stopped, match="epoch 1"):
            go(folder=folder)
    assert (folder / "rounds" / "1" / "trainings" / "0" / "state.json").is_file()
    monkeypatch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
    places = {"runs.run.build_discovery": "placing", "report.projection.project_tsne": "the map"}
    for name, step in places.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"holotype.{name}", stop)
            with pytest.raises(Stopped, match=step) as stopped:
                go(folder=folder)
        assert stopped.value.number == 15
        assert not (folder / "discovery.json").exists()
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    pd.testing.assert_frame_equal(go(folder=folder).images, Discovery.load(first_run).images)


def test_settings_decide_what_is_found(go, table, squares_folder, small, tmp_path) -> None:
    """Another method, an estimate of k, a sample, and nothing new, which is a legal answer."""
    auto = go(folder=tmp_path / "auto", k="auto", method="simgcd", sample=40)
    assert auto.facts.method == "simgcd"
    assert auto.count["low"] <= auto.count["best"] <= auto.count["high"]
    assert auto.facts.k == CountEstimate.from_dict(auto.count).best
    assert (tmp_path / "auto" / "count.json").is_file()
    assert 40 <= auto.facts.trained_on < len(table)
    assert (auto.images.category != "").all()
    assert np.isfinite(np.load(tmp_path / "auto" / "features.npy")).all()
    settings = asdict(small(method="kmeans", k=2))  # by name in Python; squares.csv is no image
    found = discover(squares_folder, out=tmp_path / "two", progress=False, **settings)
    assert [c.kind for c in found.categories] == ["known", "known"]
    assert len(found.images) == 64
    assert set(found.images.category) == {"green", "red"}
    with pytest.raises(InputError, match="There is no method"):
        go(folder=tmp_path / "other", method="magic")
    assert not (tmp_path / "other").exists()


# -- edits


@pytest.mark.usefixtures("nothing_trained")
def test_names_count_at_once_and_nothing_is_trained(run, go, caplog) -> None:
    novel = next(c for c in Discovery.load(run).categories if c.kind == "novel")
    file = edits_file(run, ("rename", "", novel.id, "=sky()"), ("rename", "", "new-77", "x"))
    for _ in range(2):  # the second time nothing is new
        assert go(edits=file).category(novel.id).name == "=sky()"
    assert "'new-77' is not in this run" in caplog.text
    assert "'=sky()" in (run / "assignments.csv").read_text()
    assert Discovery.load(run / "rounds" / "1").category(novel.id).name == novel.id


# -- bad input, as users produce it


@pytest.mark.parametrize(
    ("photos", "words"),
    [
        ({"a": GREYS[:1], "b": GREYS[1:2], "unlabelled": GREYS[2:3]}, "only 3 images"),
        ({"a": GREYS[:6], "b": GREYS[6:12]}, "Every usable image"),
        ({"a": [(9, 9, 9)] * 4, "b": [(9, 9, 9)] * 4, "unlabelled": [(9, 9, 9)] * 8}, "look the same"),
    ],
)
def test_collections_with_nothing_to_discover(photos, words, small, tmp_path) -> None:
    folder = paint(tmp_path / "photos", photos)
    with pytest.raises(InputError, match=words) as caught:
        discover_table(load_table(folder), small(k="auto"), tmp_path / "run", progress=False)
    assert "\n" not in str(caught.value)


def test_a_folder_of_something_else_is_refused(run, table, go, tmp_path) -> None:
    """Before anything is written."""
    before = written(run)
    colours = {"a": GREYS[:4], "b": GREYS[-4:], "unlabelled": GREYS[4:-4]}
    others = load_table(paint(tmp_path / "photos", colours))
    unlabelled = replace(table, label=np.full(64, "", dtype=object), known=())
    for given, words in (
        ({"images": others}, "a discovery of other images: none of its 64 is among those of photos"),
        ({"backbone": "embedded"}, "was begun with backbone"),
        ({"k": 1}, "smaller than the 2 known classes"),
        ({"k": 65}, "more than the 64 images"),
        ({"images": unlabelled}, r"No image of squares comes with a label, .* 16 did; .*--labels"),
    ):
        with pytest.raises(InputError, match=words):
            go(**given)
    with lock_folder(run), pytest.raises(InputError):  # two commands
        go()
    assert written(run) == before
    (run / "identity.json").write_text(json.dumps({**read_json(run / "identity.json"), "format": 0}))
    with pytest.raises(InputError, match="another kind or version"):
        go()


# -- a truth that comes with the images is scored, whenever it comes


def test_a_truth_is_scored_whenever_it_comes(
    squares_folder, small, tmp_path, tiny_backbone_file, holotype, monkeypatch
) -> None:
    """Without a truth, with that of every second image, with all of it; on the terminal, in the record."""
    with (squares_folder / "squares.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    half = [(*row[:2], row[2] if number % 2 else "") for number, row in enumerate(rows)]
    lists = {
        "none": write_csv(tmp_path / "labels.csv", "path,label", [tuple(row[:2]) for row in rows]),
        "half": write_csv(tmp_path / "half.csv", ",".join(header), half),
        "all": write_csv(tmp_path / "truth.csv", ",".join(header), [tuple(row) for row in rows]),
    }
    run, config = tmp_path / "run", small(method="kmeans")

    def scored(truth: str, folder: Path = run):
        discover_table(load_table(squares_folder, lists[truth]), config, folder, progress=False)
        return RunFolder(folder).finished()

    at_once = scored("all", tmp_path / "at once")
    scored("none")
    assert read_scores(run) == {}
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    half, whole = scored("half"), scored("all")
    assert (half.scores.n, whole.scores.n) == (24, 48)
    assert whole.scores == at_once.scores
    assert read_scores(run)["kmeans"]["all"] == at_once.scores.all
    assert (run / "rounds" / "1" / PER_CLASS_FILE).is_file()
    assert scored("none") == whole  # nobody has said that it was wrong
    words = ("--k=4", "--steps=12", "--backbone", tiny_backbone_file, "--device=cpu", "--no-progress")
    given = ("--labels", lists["all"], "--method=kmeans", "--out", run)
    outcome = holotype("discover", squares_folder, *given, *words)
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.split()[:1] == ["unlabelled"]]
    wanted = (whole.scores.all, whole.scores.old, whole.scores.new)
    assert [float(word) for word in line.split()[1:]] == [round(100 * share, 1) for share in wanted]


# -- rounds that were stopped


def test_a_round_that_was_stopped_is_not_taken_for_another(run, table, go, monkeypatch) -> None:
    """Labels were confirmed, its training was stopped, and more labels came: it stays, and the next one is trained.
    What is left of another training is refused, and told; nothing is learned from it in silence."""
    blue = [("confirm", path, "", "blue") for path in table.path if "blue" in path][:6]
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped):
            go(edits=edits_file(run, *blue[:3]))
    stopped = run / "rounds" / "2" / "trainings" / "0" / "state.json"
    state = stopped.read_bytes()
    found = go(edits=edits_file(run, *blue))
    assert (found.facts.round, found.facts.confirmed_labels) == (3, 6)
    assert stopped.read_bytes() == state
    own = run / "rounds" / "3"
    for name in ("scores.json", "identity.json"):
        (own / name).unlink()
    (own / "trainings" / "0").mkdir(parents=True)
    save_checkpoint(own / "trainings" / "0", {}, {"counter": 1, "identity": "another"})
    with pytest.raises(InputError, match="training state of another run"):
        go()
    (own / "trainings" / "0" / "state.json").unlink()
    columns = ["path", "category_id", "probability"]
    pd.testing.assert_frame_equal(go().images[columns], found.images[columns])


def test_what_only_an_unfinished_round_needs_goes_with_the_next_command(run, go) -> None:
    """A kill at the very end of a round: its result is there, and its state is too."""
    own = run / "rounds" / "1"
    for name in ("state.json", "state-00000008.safetensors", "rest/manifest.json", "trainings/5/state.json"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("left")
    before = (own / "scores.json").read_bytes()
    go()
    assert not [*own.glob("state*"), *own.glob("rest"), *own.glob("trainings")]
    assert (own / "scores.json").read_bytes() == before
    assert not (run / "rounds" / "2").exists()


# -- a run folder belongs to one discovery with one backbone


def test_the_backbone_of_the_first_time_stays(small, table, tmp_path: Path) -> None:
    config = small()
    first, chosen = claim_folder(tmp_path, table, config)
    assert chosen is not None
    assert json.loads((tmp_path / "identity.json").read_text())["format"] == CLAIM_FORMAT
    for asked in (config, small(backbone="auto"), small(k=7, seed=3)):
        again, none = claim_folder(tmp_path, table, asked)
        assert (again.backbone, none) == (first.backbone, None)
    begun = BackboneConfig("vit", image_size=224, mean=(0.5, 0.5, 0.5))
    content = {"format": CLAIM_FORMAT, "backbone": asdict(begun)}
    (tmp_path / "identity.json").write_text(json.dumps(content))
    for wanted in (BackboneConfig("vit"), BackboneConfig("auto"), begun):  # what is not said stays
        assert stored_backbone(tmp_path, wanted) == begun
    for wanted, words in (
        (BackboneConfig("auto", image_size=98), "image_size = 224, not 98"),
        (BackboneConfig("embedded"), "begun with backbone = 'vit', not 'embedded'"),
    ):
        with pytest.raises(InputError, match=words):
            stored_backbone(tmp_path, wanted)
    for text in ('{"format": 1, "backbone": {}}', "[1]", f'{{"format": {CLAIM_FORMAT}, "backbone": null}}'):
        (tmp_path / "identity.json").write_text(text)
        with pytest.raises(InputError):
            claim_folder(tmp_path, table, config)
    with pytest.raises(InputError):
        claim_folder(tmp_path / "run", table, small(backbone="nowhere.safetensors"))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_moved_and_renamed_finds_its_run(squares_folder, tmp_path, caplog) -> None:
    photos, archive = Path(shutil.copytree(squares_folder, tmp_path / "photos")), tmp_path / "archive"
    run, own = tmp_path / "runs" / "photos-discover", tmp_path / "runs" / "archive-discover"
    index_images(load_table(photos)).save(run)
    shutil.copytree(photos, archive)
    table = load_table(archive)
    assert find_folder(own, table) == own  # photos are where they were: these are others
    shutil.rmtree(photos)
    caplog.set_level("INFO", "holotype")
    assert find_folder(own, table) == run
    assert f"{run} holds a discovery of these images and is continued" in caplog.text
    assert find_folder(own, table.take(range(20))) == own  # too few of them are there
    (run / "collection.parquet").write_bytes(b"PAR1 not really")
    assert find_folder(own, table) == own
    index_images(table).save(run)
    own.mkdir()
    assert find_folder(own, table) == own


def test_a_folder_that_was_renamed_finds_its_run_every_time(squares_folder, small, tmp_path, monkeypatch):
    """With and without a new round. The second time it began a discovery of its own, without names and edits."""
    monkeypatch.chdir(tmp_path)
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    settings = asdict(small(method="kmeans"))
    first = discover(photos, progress=False, **settings)
    photos.rename(tmp_path / "archive")
    for k, number in ((4, 1), (4, 1), (5, 2), (5, 2)):
        found = discover(tmp_path / "archive", progress=False, **settings | {"k": k})
        assert found.facts.round == number
        assert first.run_id in (found.run_id, *found.facts.earlier_runs)
    assert os.listdir("runs") == ["photos-discover"]


def test_who_chose_the_backbone_is_known_in_every_round(
    small, table, tiny_backbone_file: Path, tmp_path: Path, monkeypatch
) -> None:
    """The hint at better ones is for whoever reads the report, of a later round or after a stop as well."""
    load, tiny = backbone_choice.load_backbone, BackboneConfig(str(tiny_backbone_file))
    monkeypatch.setattr(backbone_choice, "load_backbone", lambda config: load(tiny))
    monkeypatch.setattr(backbone_choice, "best_public_backbone", lambda *_: (None, False))
    run, config = tmp_path / "run", small(backbone="auto", method="kmeans")

    def stop(_: object) -> None:
        raise Stopped("the step of counting")

    with monkeypatch.context() as stopped:
        stopped.setattr("holotype.discovery.pipeline.run_round", stop)
        with pytest.raises(Stopped):
            discover_table(table, config, run, progress=False)
    for number, k in enumerate((4, 5), start=1):
        found = discover_table(table, replace(config, k=k), run, progress=False)
        assert found.facts.round == number
        assert f"--backbone {backbone_choice.PUBLIC_BACKBONE[0]}" in found.facts.choice_of_backbone


# -- from embeddings to a sample to categories


def test_the_whole_way_from_embeddings_and_a_sample(
    holotype, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path, monkeypatch
) -> None:
    """Features are taken over, weights count, and the rest is placed."""
    n, taken, run, sample = 64, 40, tmp_path / "run", tmp_path / "sample.parquet"
    words = ["--backbone", str(tiny_backbone_file), "--device", "cpu", "--no-progress"]
    assert main(["embed", str(squares_folder), *words, "--out", str(tmp_path / "e")]) == 0
    out = ["--n", str(taken), "--cells", "6", "--out", str(sample), "--no-progress"]
    assert main(["sample", str(tmp_path / "e"), *out]) == 0
    table, frame = load_table(sample), pd.read_parquet(sample)
    assert table.weights.tolist() == frame.weight.tolist()
    assert table.weights.sum() == pytest.approx(n)
    assert (table.known, int(table.labelled.sum())) == (("green", "red"), 16)
    computed = []
    rows = embed.embed_rows
    monkeypatch.setattr(embed, "embed_rows", lambda *given: (computed.append(given), rows(*given)))
    settings = ["--method", "simgcd", "--steps", "4", "--seeds", "1", "--out", run, *words]
    outcome = holotype("discover", "--embeddings", tmp_path / "e", "--table", sample, *settings)
    assert outcome.code == 0, outcome.err
    assert computed == []  # all features were there
    found = Discovery.load(run)
    assert len(found.images) == taken
    assert found.images.weight.sum() == pytest.approx(n)
    assert f"stand for about {n} of a collection" in outcome.out
    assert "weights" in read_json(run / "count.json")["of"]
    assert pd.read_csv(run / "assignments.csv").weight.sum() == pytest.approx(n)
    placed = holotype("assign", run, squares_folder, *words[2:], "--out", tmp_path / "a.csv")
    assert placed.code == 0, placed.err
    assert len(pd.read_csv(tmp_path / "a.csv")) == n
    bad = {"backbone digest": (tmp_path / "e", "--backbone=embedded"), "no folder of embeddings": (tmp_path,)}
    for said, source in bad.items():
        refused = holotype("discover", sample, "--out", tmp_path / "no", *words[2:], "--embeddings", *source)
        assert (refused.code, said in refused.err) == (2, True)
    assert not (tmp_path / "no" / "identity.json").exists()
