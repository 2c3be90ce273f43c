"""The steps of a round: bursts, times and places, classes that cannot be read, labels that follow from a merge."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL.TiffImagePlugin import IFDRational

from holotype.clustering import estimate_k
from holotype.data.exif import ExifData
from holotype.data.load import load_table
from holotype.discovery import round_runner, training_plan
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import Round
from holotype.discovery.round_runner import (
    EXIF_FILE,
    check_enough,
    draws_own_rows,
    exif_columns,
    exif_sentence,
    find_round_bursts,
    load_exif,
)
from holotype.errors import InputError
from holotype.export.results_table import write_labels
from holotype.methods import METHODS
from holotype.results.describe import LABELLED_BY_BURST as NOTE
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from holotype.results.edits import FOLLOWS_NOTE
from holotype.runs.model_io import load_model
from tests.conftest import COLOURS, KNOWN
from tests.data.cameras import photograph
from tests.data.test_bursts import looks, made, shots
from tests.discovery.made_round import edits_file

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
                taken = f"2024:05:{burst + 1:02d} {kind:02d}:00:0{frame}"
                photograph(file, pixels, taken=taken, model="HP2X", serial=serial)
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return trap_folder(tmp_path_factory.mktemp("trap") / "photos")


def grouped(round: Round, caplog, label: list[str], setting: str = "auto", group: list[str] | None = None):
    """Three images, the first two of which are alike and eight seconds apart; the table and the lines of a round."""
    caplog.clear()
    table = made(["a.jpg", "b.jpg", "c.jpg"], label, group)
    config = replace(round.config, bursts=setting)
    entries = dict(zip(table.path, list(round.images.images.values())[:3], strict=True))
    images = replace(round.images, images=entries)
    round = replace(round, source=table, table=table, config=config, images=images)
    embedded = SimpleNamespace(features=looks(0, 0, 1), note=np.array(["", "", ""], dtype=object))
    find_round_bursts(round, shots(0, 8, 900), embedded)
    return round.table, list(embedded.note), [line for line in caplog.messages if "burst" in line]


def test_bursts_are_found_told_or_not_at_all(round: Round, caplog) -> None:
    caplog.set_level("INFO")
    table, notes, (first, second) = grouped(round, caplog, ["fox", "", ""])
    assert (list(table.group), list(table.label)) == (["a.jpg", "a.jpg", ""], ["fox", "fox", ""])
    assert notes == ["", NOTE, ""]
    assert first.startswith("2 frames of 1 burst of up to 2 (one camera, at most 10 seconds apart, alike)")
    assert second.startswith("1 frame labelled like another")
    for setting in ("no", "5"):
        assert grouped(round, caplog, ["fox", "", ""], setting)[0].group is None
    table, _, lines = grouped(round, caplog, ["fox", "deer", ""], group=["x", "x", "x"])
    assert list(table.label) == ["fox", "deer", ""]
    assert "as the column group says" in lines[0]
    assert lines[-1].startswith("Frames of one burst carry different labels")
    assert grouped(round, caplog, ["", "", ""], "no", ["", "x", "x"])[0].group is None


def test_more_categories_than_bursts_are_refused() -> None:
    table = made(list("abcd"), group=["x", "x", "y", "y"])
    check_enough(table, 2)
    with pytest.raises(InputError, match="--k 3 is more than the 2 images"):
        check_enough(table, 3)
    assert [name for name in METHODS if draws_own_rows(name)] == ["dccl"]


@pytest.mark.parametrize("method", ["kmeans", "rpc"])
def test_a_discovery_of_bursts(photos: Path, tmp_path: Path, small, caplog, monkeypatch, method: str) -> None:
    caplog.set_level("INFO")
    counted, trained = [], []
    estimate, start = estimate_k.estimate_count, training_plan.begin_run

    def counting(features, *given, **how):
        counted.append(len(features))
        return estimate(features, *given, **how)

    def starting(experiment, shelf, **how):
        trained.append(start(experiment, shelf, **how))
        return trained[-1]

    monkeypatch.setattr(estimate_k, "estimate_count", counting)
    monkeypatch.setattr(training_plan, "begin_run", starting)
    run = tmp_path / "run"
    found = discover_table(load_table(photos), small(method=method, k="auto"), run, progress=False)
    assert "72 frames of 24 bursts of up to 3 (one camera, at most 10 seconds apart, alike)" in caplog.text
    assert "12 frames labelled like" in caplog.text
    assert counted == [24]
    (training,) = trained
    assert training.loop.steps == (24 // training.experiment.train.batch_size if method == "rpc" else 24)
    table = pd.read_csv(run / "assignments.csv", keep_default_na=False)
    assert (table.groupby("group").size() == FRAMES).all()
    assert ((table.label != "").groupby(table.group).nunique() == 1).all()
    assert (table.note == NOTE).sum() == 12
    burst = dict(zip(table.path, table.group, strict=True))
    asked = [burst[path] for path in pd.read_csv(run / "queue.csv").path]
    assert len(asked) == len(set(asked))
    assert not {burst[path] for path in table.path[table.label != ""]} & set(asked)
    shown = [[burst[path] for path in category.exemplars] for category in found.categories]
    assert all(len(some) == len(set(some)) for some in shown)
    again = discover_table(load_table(photos), small(method=method, k=4, bursts="no"), run, progress=False)
    assert "--bursts no (was auto)" in caplog.text
    assert ("group" in again.images, (again.images.label != "").sum()) == (False, 6)


@pytest.mark.parametrize("serial", ["7", ""])
def test_an_answer_serves_the_whole_burst(serial: str, tmp_path: Path, small) -> None:
    """Cameras without a number: folders tell them apart, and red/ is no camera."""
    photos = trap_folder(tmp_path / "photos", 5, serial)
    run, table, config = tmp_path / "run", load_table(photos), small(method="kmeans")
    discover_table(table, config, run, progress=False)
    rows = [("move", str(photos / "red" / f"red-{n}-0.jpg"), "", "Owls") for n in (0, 2, 4)]
    rows.append(("confirm", str(photos / "unlabelled" / "blue-3-1.jpg"), "", "green"))
    discover_table(table, config, run, progress=False, edits=edits_file(run, *rows))
    images = Discovery.load(run).images.set_index("path")
    assert images.group[str(photos / "red" / "red-0-0.jpg")]
    for frame in range(1, FRAMES):
        assert images.label[str(photos / "unlabelled" / f"red-0-{frame}.jpg")] == "Owls"
    for frame in range(FRAMES):
        assert images.label[str(photos / "unlabelled" / f"blue-3-{frame}.jpg")] == "green"


def test_groups_that_are_told_later_are_heard(squares_folder, small, tmp_path, caplog) -> None:
    """The column group came after the first round, and nothing had changed."""
    run, config, table = tmp_path / "run", small(method="kmeans"), load_table(squares_folder / "squares.csv")
    discover_table(table, config, run, progress=False)
    group = np.array([f"n-{row // 4}" for row in range(len(table))], dtype=object)
    caplog.set_level("INFO", "holotype")
    for told, number in ((replace(table, group=group), 2), (replace(table, group=group), 2), (table, 3)):
        found = discover_table(told, config, run, progress=False)
        assert found.facts.round == number
        assert ("group" in found.images) == (number == 2)
    assert "Settings that differ from round 1: other groups." in caplog.text


# -- classes and labels


def test_a_class_that_cannot_be_read_receives_nothing(small, squares_folder, tmp_path, caplog) -> None:
    """Its labelled images are broken: an untrained head would take in other images by chance."""
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    (photos / "kite").mkdir()
    for name in ("one.png", "two.png"):
        (photos / "kite" / name).write_bytes(b"no picture" + name.encode())
    for method in ("kmeans", "rpc"):
        caplog.clear()
        run = tmp_path / method
        found = discover_table(load_table(photos), small(method=method, k=5), run, progress=False)
        assert found.known == ("green", "red")
        assert "kite" not in {c.id for c in found.categories} | set(found.images.category_id)
        assert "kite" not in load_model(run, "cpu").ids
        assert caplog.text.count("The known class 'kite' takes no part in this round") == 1
        broken = found.images[found.images.path.str.contains("kite")]
        assert set(broken.note) == {"its label 'kite' takes no part"}


def test_labels_that_follow_from_a_merge_are_noted_and_are_not_those_of_people(
    small, squares_folder, tmp_path
) -> None:
    table, config, run = load_table(squares_folder / "squares.csv"), small(method="kmeans"), tmp_path / "run"
    found = discover_table(table, config, run, progress=False)
    one, two = (c.id for c in found.categories if c.kind == "novel")
    (image, *_) = found.images.path[found.images.category_id == one]
    file = edits_file(run, ("confirm", image, one, one), ("merge", "", two, one), ("rename", "", one, "sky"))
    images = discover_table(table, config, run, progress=False, edits=file).images
    noted = images[images.note.str.contains(FOLLOWS_NOTE, regex=False)]
    assert len(noted) > 2
    assert set(noted.label) == {one}
    assert image not in set(noted.path)
    assert write_labels(run, tmp_path / "labels.csv").by_class == {"green": 8, "red": 8, "sky": 1}


# -- what the heads of the files say: read once for each content, kept, and in the tables


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


def test_heads_are_read_once_for_each_content(trap_photos: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    table, run = load_table(trap_photos), tmp_path / "run"
    digest = [f"d{row}" for row in range(len(table))]
    first = load_exif(run, table, digest)
    assert first[0].taken.startswith("2024-05-")
    assert math.isfinite(first[1].latitude)
    content = (run / EXIF_FILE).read_bytes()
    (run / EXIF_FILE).write_bytes(content.replace(b"trap 1", b"trap 3"))
    assert str(load_exif(run, table, digest)) == str(first)  # a change is noticed, and they are read again
    assert "cannot be read, and is made again" in caplog.text
    assert (run / EXIF_FILE).read_bytes() == content
    asked = []
    read = lambda paths, _: asked.extend(paths) or [ExifData("new") for _ in paths]  # noqa: E731
    monkeypatch.setattr(round_runner, "read_exif_all", read)
    assert (str(load_exif(run, table, digest)), asked) == (str(first), [])
    again = load_exif(run, table, ["other", *digest[1:]])
    assert asked == [table.path[0]]
    assert [shot.taken for shot in again] == ["new", *(shot.taken for shot in first[1:])]


@pytest.mark.parametrize(
    ("heads", "columns", "words"),
    [
        ([ExifData()], [], ""),
        ([ExifData("2024-05-01T00:00:00"), ExifData(camera="trap")], ["taken", "camera"], "2024-05-01"),
        ([ExifData(camera="EPSON V850")], ["camera"], "with which camera 1 of 2"),
        ([ExifData(camera="a"), ExifData(camera="b")], ["camera"], "with which of 2 cameras 2 of 3"),
        ([ExifData("", 52.0, 4.0)], ["latitude", "longitude"], "where 1 of 2"),
    ],
)
def test_only_what_is_known_is_told_and_becomes_a_column(heads, columns, words) -> None:
    shots = [ExifData(), *heads]
    assert list(exif_columns(shots)) == columns
    assert words in exif_sentence(shots)
    assert bool(words) == bool(exif_sentence(shots))


def test_the_tables_of_a_discovery(trap_photos: Path, run: Path, tmp_path: Path, small, caplog) -> None:
    caplog.set_level("INFO")
    trap = tmp_path / "trap"
    found = discover_table(load_table(trap_photos), small(method="kmeans"), trap, progress=False)
    assert "when 40 of 40 images were taken (2024-05-01 to 2024-05-10), where 36 were" in caplog.text
    table = pd.read_csv(trap / "assignments.csv")
    columns = [*IMAGE_TABLE_COLUMNS, "digest"]
    assert list(table.columns) == [*columns, "taken", "latitude", "longitude", "camera"]
    blue = table[table.path.str.endswith("blue-3.jpg")].iloc[0]
    assert (blue.taken, blue.camera) == ("2024-05-04T02:00:00", "trap 1")
    assert blue.latitude == pytest.approx(52.881111)
    assert Discovery.load(trap).images.latitude.isna().sum() == 4
    assert found.images.camera.nunique() == 2
    assert list(pd.read_csv(run / "assignments.csv").columns) == columns  # without heads
