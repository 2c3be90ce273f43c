"""Bursts in a discovery: found before training, counted once everywhere, and labelled together."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL.TiffImagePlugin import IFDRational

from holotype.clustering import estimate_k
from holotype.data.exif import ExifData
from holotype.data.load import load_table
from holotype.discovery import ensemble_training, round_runner
from holotype.discovery.pipeline import discover_table
from holotype.discovery.round_runner import (
    EXIF_FILE,
    ExifTable,
    Round,
    check_enough,
    draws_own_rows,
    find_round_bursts,
    load_exif_table,
    make_experiment,
)
from holotype.errors import InputError
from holotype.export.results_table import write_labels
from holotype.methods import METHODS
from holotype.results.apply_edits import FOLLOWS_NOTE
from holotype.results.describe import LABELLED as NOTE
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from holotype.results.edits import Edit, edits_csv
from holotype.runs.model_io import load_model
from tests.conftest import COLOURS, KNOWN
from tests.data.cameras import photograph
from tests.data.test_bursts import looks, made, shots
from tests.discovery.made_round import edits_file
from tests.training.stubs import STUBS

FRAMES = 3


def trap_folder(root: Path, each: int = 6, serial: str = "7") -> Path:
    """Bursts of three frames, `each` of every colour; of known colours the first frame of every other burst is
    labelled. serial: number of the camera, "" = the files do not tell it."""
    noise = np.random.default_rng(0)
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for burst in range(each):
            scene = np.array(colour) + noise.integers(-30, 30, (40, 40, 3))
            for frame in range(FRAMES):
                pixels = np.clip(scene + noise.integers(-3, 3, scene.shape), 0, 255).astype(np.uint8)
                labelled = name in KNOWN and burst % 2 == 0 and frame == 0
                file = root / (name if labelled else "unlabelled") / f"{name}-{burst}-{frame}.jpg"
                photograph(
                    file,
                    pixels,
                    taken=f"2024:05:{burst + 1:02d} {kind:02d}:00:0{frame}",
                    model="HP2X",
                    serial=serial,
                )
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return trap_folder(tmp_path_factory.mktemp("trap") / "photos")


def test_found_told_or_not_at_all() -> None:
    table, out = made(["a.jpg", "b.jpg", "c.jpg"], ["fox", "", ""]), np.zeros(3, dtype=bool)
    taken, features = shots(0, 8, 900), looks(0, 0, 1)
    found, lines = find_round_bursts(table, "auto", taken, features, out)
    assert list(found.table.group) == ["a.jpg", "a.jpg", ""]
    assert list(found.table.label) == ["fox", "fox", ""]
    assert lines == [
        "2 frames of 1 burst of up to 2 (one camera, at most 10 seconds apart, alike); a burst counts once. "
        "--bursts no counts each image.",
        "1 frame labelled like another frame of the same burst.",
    ]
    for setting in ("no", "5"):
        found, lines = find_round_bursts(table, setting, taken, features, out)
        assert found.table.group is None
        assert lines == []
    told = dataclasses.replace(table, group=np.array(["", "x", "x"], dtype=object))
    found, lines = find_round_bursts(told, "auto", taken, features, out)
    assert list(found.table.group) == ["", "x", "x"]
    assert "as the column group says" in lines[0]
    assert find_round_bursts(told, "no", taken, features, out)[0].table.group is None


def test_groups_of_different_labels_are_told() -> None:
    table = made(list("abc"), ["fox", "deer", ""], ["x", "x", "x"])
    found, lines = find_round_bursts(table, "auto", shots(0, 1, 2), looks(0, 0, 0), np.zeros(3, dtype=bool))
    assert list(found.table.label) == ["fox", "deer", ""]
    assert lines[-1] == "Frames of one burst carry different labels, so its other frames take none: x."


def test_more_categories_than_bursts_are_refused() -> None:
    table = made(list("abcd"), group=["x", "x", "y", "y"])
    check_enough(table, 2)
    with pytest.raises(InputError, match="--k 3 is more than the 2 images"):
        check_enough(table, 3)


def test_methods_that_draw_their_images_themselves() -> None:
    assert [name for name in METHODS if draws_own_rows(name)] == ["dccl"]


@pytest.mark.parametrize("method", ["kmeans", "rpc"])
def test_a_discovery_of_bursts(photos: Path, tmp_path: Path, small, caplog, monkeypatch, method: str) -> None:
    caplog.set_level("INFO")
    counted, trained = [], []
    estimate, start = estimate_k.estimate_count, ensemble_training.begin_run

    def counting(features, *given, **how):
        counted.append(len(features))
        return estimate(features, *given, **how)

    def starting(experiment, shelf):
        trained.append(start(experiment, shelf))
        return trained[-1]

    monkeypatch.setattr(estimate_k, "estimate_count", counting)
    monkeypatch.setattr(ensemble_training, "begin_run", starting)
    found = discover_table(
        load_table(photos), small(method=method, k="auto"), tmp_path / "run", progress=False
    )
    assert "72 frames of 24 bursts of up to 3 (one camera, at most 10 seconds apart, alike)" in caplog.text
    assert "12 frames labelled like" in caplog.text
    assert counted == [24]
    (run,) = trained
    assert run.loop.steps == (24 // run.experiment.train.batch_size if method == "rpc" else 24)
    table = pd.read_csv(tmp_path / "run" / "assignments.csv", keep_default_na=False)
    assert table.group.nunique() == 24
    assert (table.groupby("group").size() == FRAMES).all()
    assert ((table.label != "").groupby(table.group).nunique() == 1).all()
    assert (table.note == NOTE).sum() == 12
    queue = pd.read_csv(tmp_path / "run" / "queue.csv")
    burst = dict(zip(table.path, table.group, strict=True))
    asked = [burst[path] for path in queue.path]
    assert len(asked) == len(set(asked))
    assert not {burst[path] for path in table.path[table.label != ""]} & set(asked)
    shown = [[burst[path] for path in category.exemplars] for category in found.categories]
    assert all(len(some) == len(set(some)) for some in shown)


def test_an_answer_serves_the_whole_burst(photos: Path, tmp_path: Path, small) -> None:
    run, table = tmp_path / "run", load_table(photos)
    found = discover_table(table, small(method="kmeans"), run, progress=False)
    image = str(photos / "unlabelled" / "blue-3-1.jpg")
    edits = tmp_path / "edits.csv"
    edits.write_text(edits_csv([Edit(found.run_id, "t", "confirm", image, "", "red")]), encoding="utf-8")
    discover_table(table, small(method="kmeans"), run, progress=False, edits=edits)
    images = Discovery.load(run).images.set_index("path")
    for frame in range(FRAMES):
        assert images.category_id[str(photos / "unlabelled" / f"blue-3-{frame}.jpg")] == "red"
    assert images.label[str(photos / "unlabelled" / "blue-3-0.jpg")] == "red"


def test_the_whole_burst_follows_a_frame_that_is_moved_out_of_the_folder_of_its_label(
    tmp_path, small, caplog
) -> None:
    """Cameras without a number: folders tell them apart, and red/ is no camera."""
    photos = trap_folder(tmp_path / "photos", serial="")
    run, table = tmp_path / "run", load_table(photos)
    found = discover_table(table, small(method="kmeans"), run, progress=False)
    edits = tmp_path / "edits.csv"
    rows = [
        Edit(found.run_id, "t", "move", str(photos / "red" / f"red-{n}-0.jpg"), "", "Owls") for n in (0, 2, 4)
    ]
    edits.write_text(edits_csv(rows), encoding="utf-8")
    discover_table(table, small(method="kmeans"), run, progress=False, edits=edits)
    images = Discovery.load(run).images.set_index("path")
    assert images.group[str(photos / "red" / "red-0-0.jpg")]
    for frame in range(1, FRAMES):
        assert images.label[str(photos / "unlabelled" / f"red-0-{frame}.jpg")] == "Owls"


def test_another_setting_is_another_round(photos, tmp_path, small, caplog) -> None:
    caplog.set_level("INFO")
    run, table = tmp_path / "run", load_table(photos)
    discover_table(table, small(method="kmeans"), run, progress=False)
    found = discover_table(table, small(method="kmeans", bursts="no"), run, progress=False)
    assert "Settings that differ from round 1: --bursts no (was auto)." in caplog.text
    assert "group" not in found.images
    assert (found.images.label != "").sum() == 6


def test_groups_that_are_told_later_are_heard(squares_folder, small, tmp_path, caplog) -> None:
    """The column group came after the first round, and nothing had changed."""
    run, asked = tmp_path / "run", small(method="kmeans")
    table = load_table(squares_folder / "squares.csv")
    discover_table(table, asked, run, progress=False)
    told = dataclasses.replace(
        table, group=np.array([f"n-{row // 4}" for row in range(len(table))], dtype=object)
    )
    caplog.set_level("INFO", "holotype")
    found = discover_table(told, asked, run, progress=False)
    assert "Settings that differ from round 1: other groups." in caplog.text
    assert found.facts.round == 2
    assert found.images.group.nunique() == len(table) // 4
    assert discover_table(told, asked, run, progress=False).facts.round == 2
    assert discover_table(table, asked, run, progress=False).facts.round == 3


# -- The steps of a round, one by one


def test_a_class_that_cannot_be_read_receives_nothing(small, squares_folder, tmp_path, caplog) -> None:
    """Its labelled images are broken: an untrained head would take in other images by chance."""
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    (photos / "kite").mkdir()
    for name in ("one.png", "two.png"):
        (photos / "kite" / name).write_bytes(b"no picture")
    for method in ("kmeans", "rpc"):
        run = tmp_path / method
        found = discover_table(load_table(photos), small(method=method, k=5), run, progress=False)
        assert found.known == ("green", "red")
        assert "kite" not in {c.id for c in found.categories} | set(found.images.category_id)
        assert "kite" not in load_model(run, "cpu").ids
        assert caplog.text.count("The known class 'kite' takes no part in this round") == 1
        broken = found.images[found.images.path.str.contains("kite")]
        assert set(broken.note) == {"its label 'kite' takes no part"}
        caplog.clear()


def test_training_is_what_the_settings_say(round: Round) -> None:
    experiment = make_experiment(round, round.table, 4, "rpc")
    assert (experiment.method_name, experiment.k, experiment.cache_views) == ("rpc", 4, "4+2")
    assert experiment.folder == round.own
    steps = experiment.train.epochs * (64 // experiment.train.batch_size)
    assert 100 <= steps < 110
    assert experiment.method.memax_target == "uniform"
    uneven = dataclasses.replace(round, long_tail=True)
    assert make_experiment(uneven, round.table, 4, "rpc").method.memax_target == "estimated"


def test_a_method_that_takes_images_alone_gets_no_token_cache(round: Round, monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    assert make_experiment(round, round.table, 4, "pictures").cache_views == "off"
    assert make_experiment(round, round.table, 4, "both").cache_views == "4+2"


@pytest.mark.parametrize("method", ["rpc", "debgcd", "simgcd"])
def test_a_folder_with_the_name_of_a_benchmark_gets_no_recipe(round: Round, method: str) -> None:
    usual = make_experiment(round, round.table, 4, method)
    named = make_experiment(round, dataclasses.replace(round.table, name="aircraft"), 4, method)
    assert named.dataset == "aircraft"
    assert (named.method, named.train, named.backbone) == (usual.method, usual.train, usual.backbone)


def test_labels_that_follow_from_a_merge_are_noted_and_are_not_those_of_people(
    small, squares_folder, tmp_path
) -> None:
    table, asked, run = load_table(squares_folder / "squares.csv"), small(method="kmeans"), tmp_path / "run"
    found = discover_table(table, asked, run, progress=False)
    one, two = (c.id for c in found.categories if c.kind == "novel")
    (image, *_) = found.images.path[found.images.category_id == one]
    file = edits_file(run, ("confirm", image, one, one), ("merge", "", two, one), ("rename", "", one, "sky"))
    images = discover_table(table, asked, run, progress=False, edits=file).images
    noted = images[images.note.str.contains(FOLLOWS_NOTE, regex=False)]
    assert len(noted) > 2
    assert set(noted.label) == {one}
    assert image not in set(noted.path)
    done = write_labels(run, tmp_path / "labels.csv")
    assert done.by_class == {"green": 8, "red": 8, "sky": 1}


# -- Time, place and camera of a collection: read once for each content, kept, and in the tables of


@pytest.fixture
def trap_photos(tmp_path: Path) -> Path:
    """Ten coloured squares of each kind, half of those of known kinds labelled, as two cameras take them."""
    noise = np.random.default_rng(0)
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for number in range(10):
            pixels = np.clip(np.array(colour) + noise.integers(-30, 30, (40, 40, 3)), 0, 255).astype(np.uint8)
            folder = name if name in KNOWN and number < 5 else "unlabelled"
            photograph(
                tmp_path / "photos" / folder / f"{name}-{number}.jpg", pixels,
                taken=f"2024:05:{number + 1:02d} 0{kind}:00:00", model=f"trap {number % 2}",
                gps={1: "N", 2: (IFDRational(52),) * 3, 3: "E", 4: (IFDRational(4),) * 3} if number else None,
            )  # fmt: skip
    return tmp_path / "photos"


def test_heads_are_read_once_for_each_content(trap_photos: Path, tmp_path: Path, monkeypatch) -> None:
    table = load_table(trap_photos)
    digest = [f"d{row}" for row in range(len(table))]
    first = load_exif_table(tmp_path / "run", table, digest)
    assert first.each[0].taken.startswith("2024-05-")
    assert math.isfinite(first.each[1].latitude)
    asked = []
    monkeypatch.setattr(
        round_runner,
        "read_exif_all",
        lambda paths, _: [asked.append(path) or ExifData("new") for path in paths],
    )
    assert load_exif_table(tmp_path / "run", table, digest) is not None
    assert asked == []
    again = load_exif_table(tmp_path / "run", table, ["other", *digest[1:]])
    assert asked == [table.path[0]]
    assert [shot.taken for shot in again.each] == ["new", *(shot.taken for shot in first.each[1:])]
    (tmp_path / "run" / EXIF_FILE).write_bytes(b"no")
    load_exif_table(tmp_path / "run", table, digest)
    assert len(asked) == 1 + len(table)


def test_a_changed_camera_is_noticed_and_read_again(trap_photos: Path, tmp_path: Path, caplog) -> None:
    table, file = load_table(trap_photos), tmp_path / "run" / EXIF_FILE
    digest = [f"d{row}" for row in range(len(table))]
    first = load_exif_table(tmp_path / "run", table, digest)
    content = file.read_bytes()
    assert content.count(b"trap 1") >= 1
    file.write_bytes(content.replace(b"trap 1", b"trap 3"))
    assert load_exif_table(tmp_path / "run", table, digest) == first
    assert "cannot be read, and is made again" in caplog.text
    assert file.read_bytes() == content


def test_only_what_is_known_becomes_a_column() -> None:
    assert ExifTable([ExifData(), ExifData()]).columns() == {}
    assert ExifTable([ExifData(), ExifData()]).words() == ""
    found = ExifTable([ExifData("2024-05-01T00:00:00"), ExifData(camera="trap")])
    assert list(found.columns()) == ["taken", "camera"]
    assert list(found.columns()["taken"]) == ["2024-05-01T00:00:00", ""]
    assert "2024-05-01" in found.words()


@pytest.mark.parametrize(
    ("head", "column", "words"),
    [
        (ExifData(camera="EPSON V850"), "camera", "camera 1 of 2"),
        (ExifData("", 52.0, 4.0), "latitude", "where 1 of 2"),
    ],
)
def test_a_head_without_a_time_is_told_of_as_well(head: ExifData, column: str, words: str) -> None:
    found = ExifTable([ExifData(), head])
    assert column in found.columns()
    assert words in found.words()
    assert "when" not in found.words()


def test_the_tables_of_a_discovery(trap_photos: Path, tmp_path: Path, small, caplog) -> None:
    caplog.set_level("INFO")
    found = discover_table(load_table(trap_photos), small(method="kmeans"), tmp_path / "run", progress=False)
    assert "when 40 of 40 images were taken (2024-05-01 to 2024-05-10), where 36 were" in caplog.text
    table = pd.read_csv(tmp_path / "run" / "assignments.csv")
    assert list(table.columns) == [*IMAGE_TABLE_COLUMNS, "digest", "taken", "latitude", "longitude", "camera"]
    blue = table[table.path.str.endswith("blue-3.jpg")].iloc[0]
    assert (blue.taken, blue.camera) == ("2024-05-04T02:00:00", "trap 1")
    assert blue.latitude == pytest.approx(52.881111)
    assert Discovery.load(tmp_path / "run").images.latitude.isna().sum() == 4
    assert found.images.camera.nunique() == 2


def test_without_heads_the_table_is_as_it_was(run: Path) -> None:
    assert list(pd.read_csv(run / "assignments.csv").columns) == [*IMAGE_TABLE_COLUMNS, "digest"]
