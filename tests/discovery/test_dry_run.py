"""A look at what a discovery would go on with tells what the discovery then does, and writes nothing."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.config.schema import BackboneConfig, DiscoverConfig, vector_config
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.collection import index_images
from holotype.discovery.dry_run import (
    DryRunReport,
    Throughput,
    embedding_seconds,
    estimate_seconds,
    estimate_time,
    exif_summary,
    inspect_collection,
    log_report,
    measure_throughput,
    preview_plan,
    step_seconds,
)
from holotype.discovery.pipeline import discover_table, stored_backbone
from holotype.discovery.plan import Round, plan_round
from holotype.discovery.training_plan import draw_sample, plan_training
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.models.backbone import Backbone, load_backbone
from holotype.models.zoo import fastest_pass
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv, read_log
from holotype.runs.experiment import stages_of
from holotype.runs.resources import RunData
from holotype.utils.device import Device
from tests.data.cameras import photograph
from tests.data.test_duplicates import picture
from tests.discovery.made_round import edits_file


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


@pytest.fixture
def found(photos, small, tmp_path) -> Discovery:
    return discover_table(load_table(photos), small(method="kmeans"), tmp_path / "run", progress=False)


@pytest.fixture
def preview(photos, small, tmp_path):
    """Says what the next round would do, with these settings and edits."""

    def lines(edits: Path | None = None, **settings: object) -> list[str]:
        config = small(**{"method": "kmeans", **settings})
        return preview_plan(plan_round(tmp_path / "run", load_table(photos), config, edits))

    return lines


def new_image(found: Discovery) -> tuple[str, str]:
    """Path and id of an image of a new category."""
    return tuple(found.images[found.images.kind == "novel"][["path", "category_id"]].iloc[0])


def state(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.rglob("*")}


# -- the next round


def test_edits_and_settings_are_told_as_they_then_take_part(found, photos, small, tmp_path, caplog) -> None:
    """Also where images were renamed and the folder was moved since: edits go with the content."""
    run, (_, id) = tmp_path / "run", new_image(found)
    one, two, three = found.images.path[(found.images.category_id == id)][:3]
    rows = [("confirm", one, id, id), ("reject", two, id, ""), ("move", three, "", "red")]
    file = edits_file(run, *rows, ("merge", "", "new-77", id))
    Path(one).rename(Path(one).with_name("renamed.png"))
    Path(three).unlink()
    photos.rename(tmp_path / "archive")
    table, config, before = load_table(tmp_path / "archive"), small(method="kmeans", k=5), state(run)
    plan = plan_round(run, table, config, file)
    lines = preview_plan(plan)
    assert (plan.trains, plan.to_embed, state(run)) == (True, 0, before)
    assert "Since round 1: 1 image gone, 1 renamed." in lines
    assert "Settings that differ from round 1: --k 5 (was 4)." in lines
    caplog.set_level("INFO", "holotype")
    discover_table(table, config, run, progress=False, edits=file)
    edits = [line for line in lines if line.startswith(("Edits that", "1 edit of", "Merge of"))]
    assert len(edits) == 3
    assert "1 rejected, 1 confirmed. They give 1 label and keep 1 image out." in edits[0]
    assert set(edits) <= set(caplog.messages)


def test_what_would_be_refused_is(found, photos, preview, small, tmp_path) -> None:
    with pytest.raises(InputError, match="features of two networks"):
        stored_backbone(tmp_path / "run", small(image_size=48).network)
    foreign = tmp_path / "foreign.csv"
    foreign.write_text(edits_csv([Edit("somebody-1", "t", "rename", "", "new-01", "Boots")]))
    with pytest.raises(InputError, match="somebody-1"):
        preview(foreign)
    with pytest.raises(InputError, match="without --edits first"):
        plan_round(tmp_path / "other", load_table(photos), small(), foreign)
    assert read_log(tmp_path / "run") == []


def test_the_classes_of_edits_take_room_and_names_alone_train_nothing(
    found, photos, preview, small, tmp_path
) -> None:
    image, id = new_image(found)
    file = edits_file(tmp_path / "run", ("confirm", image, id, id))
    assert "there are 3 known classes, so --k 5 leaves room for 2" in preview(file, k=5)[-1]
    assert "there are 3 known classes, so --k 2 becomes 3" in preview(file, k=2)[-1]
    assert "known classes" not in preview(k=5)[-1]
    file = edits_file(tmp_path / "run", ("rename", "", found.categories[-1].id, "sky"))
    assert "its result stands" in preview(file)[-1]
    plan = plan_round(tmp_path / "new", load_table(photos), small())  # a first round embeds all
    assert (plan.trains, plan.to_embed, plan.lines()) == (True, None, [])
    assert not (tmp_path / "new").exists()


def test_how_many_categories_corrections_have_left_is_foreseen(
    found, photos, preview, small, tmp_path, caplog
) -> None:
    """Nobody is told of an estimate that does not decide; renamed images are the same ones."""
    run, config, (image, id) = tmp_path / "run", small(method="kmeans", k="auto"), new_image(found)
    Path(image).rename(Path(image).with_name("renamed.png"))
    edits = edits_file(run, ("confirm", image, id, id))
    assert preview(edits, k="auto")[-1].startswith("Corrections have left 4 categories, and as many would")
    caplog.set_level("INFO", "holotype")
    discover_table(load_table(photos), config, run, progress=False, edits=edits)
    assert "Corrections have left 4 categories. Training with 4." in caplog.text
    assert "How many categories there are follows from corrections (--k sets it)." in caplog.text
    next(photos.glob("unlabelled/*.png")).unlink()
    assert "images that have come or gone may change that number" in preview(k="auto")[-1]


def test_a_dry_run_numbers_the_round_as_training_then_does(
    found, photos, preview, small, tmp_path, monkeypatch
) -> None:
    """A round that was stopped is gone on with, and another number follows it where something has changed since."""
    run, table = tmp_path / "run", load_table(photos)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    edits = edits_file(run, ("reject", new_image(found)[0], "", ""))
    with monkeypatch.context() as patch:
        patch.setattr("holotype.discovery.pipeline.run_round", stop)
        with pytest.raises(KeyboardInterrupt):
            discover_table(table, small(method="kmeans", k=5), run, progress=False, edits=edits)
    for k, number in ((5, 2), (6, 3)):
        assert any(f"take part in round {number}:" in line for line in preview(k=k))
    assert discover_table(table, small(method="kmeans", k=6), run, progress=False).facts.round == 3


# -- a messy folder, as people have it: every line that is due, and no other

CLASSES = {"Canna Lily": 4, "canna_lily": 3, "red kite": 6, "unsorted": 5, "unlabelled": 9}


def paint(root: Path, classes: dict[str, int]) -> Path:
    """Pictures that are all different, in folders of these names and numbers."""
    seed = 0
    for name, n in classes.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(n):
            seed += 1
            picture(seed).save(root / name / f"{number}.jpg")
    return root


def inspected(table: Table, config: DiscoverConfig | None = None) -> DryRunReport:
    return inspect_collection(table, config or DiscoverConfig(), index_images(table))


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    root = paint(tmp_path / "messy", CLASSES)
    (root / "hedgehog").mkdir()
    (root / "hedgehog" / "1.jpg").write_bytes(b"no image")
    (root / "red kite" / "5.jpg").write_bytes(b"")
    shutil.copy(root / "red kite" / "0.jpg", root / "unlabelled" / "copy.jpg")
    shutil.copy(root / "red kite" / "1.jpg", root / "Canna Lily" / "kite.jpg")
    shutil.copy(root / "unlabelled" / "1.jpg", root / "unlabelled" / "again.jpg")
    with Image.open(root / "red kite" / "2.jpg") as image:
        image.resize((80, 60)).save(root / "canna_lily" / "small.jpg", quality=70)
    (root / "labels.csv").write_text("path;label\nC:\\me\\red kite\\0.jpg;buzzard\nred kite/1.jpg;red kite\n")
    (root / "Thumbs.db").write_bytes(b"x")
    (root / "@eaDir").mkdir()
    picture(0).save(root / "@eaDir" / "preview.jpg")
    return root


DUE = (
    ("32 images: 21 labelled in 5 classes, 11 unlabelled.", "--k 9 leaves room for 5 new categories."),
    ("Classes by labelled images", "red kite 6, Canna Lily 5, unsorted 5, canna_lily 4, hedgehog 1."),
    ("Probably one class under 2 names", "Canna Lily (5), canna_lily (4)."),
    ("Is unsorted a class", "--unlabelled unsorted treats its 5 images as unlabelled."),
    ("messy/labels.csv says otherwise of the labels of 1 image", "--labels messy/labels.csv takes"),
    ("The same file under different labels: 1 pair", "Canna Lily/kite.jpg and red kite/1.jpg;"),
    ("The same file both labelled and unlabelled: 1 pair", "unlabelled/copy.jpg and red kite/0.jpg."),
    ("The same file twice", "1 pair, unlabelled/1.jpg and unlabelled/again.jpg."),
    ("Nearly the same picture under different labels: 1 pair", "canna_lily/small.jpg and red kite/2.jpg;"),
)


def test_every_line_that_is_due(messy: Path, round: Round, tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.chdir(messy.parent)
    table = load_table(messy)
    seen = inspected(table, DiscoverConfig(k=9))
    for line, (start, part) in zip(seen.lines, DUE, strict=True):
        assert line.startswith(start)
        assert part in line
    first, second = seen.unread
    assert first.startswith("2 images cannot be read: ")
    assert "red kite/5.jpg is empty (0 bytes)." in first
    assert second == "No labelled image of hedgehog can be read, so it is no class here."
    assert seen.table.known == ("Canna Lily", "canna_lily", "red kite", "unsorted")
    assert int((~seen.table.usable).sum()) == 2
    config = round.config
    with caplog.at_level("INFO", "holotype"):  # a discovery begins with the same lines
        log_report(Round.of(plan_round(tmp_path / "run", table, config), round.chosen), table)
    assert caplog.messages[:-1] == inspected(table, config).lines
    assert caplog.messages[-1].startswith("Time on this CPU, roughly: ")


def test_a_tidy_folder_has_no_further_lines(squares_folder: Path, messy: Path) -> None:
    """squares.csv lies in it and says the same; a list that is used is no news."""
    seen = inspected(load_table(squares_folder))
    assert [len(seen.lines), seen.lines[0].endswith("is estimated (--k sets it).")] == [2, True]
    assert seen.unread == []
    listed = inspected(load_table(messy, messy / "labels.csv")).lines
    assert "32 images: 2 labelled in 2 classes, 30 unlabelled." in listed[0]
    assert not any("labels.csv" in line for line in listed)


def test_a_list_that_cannot_be_used_and_a_collection_of_nothing_readable_are_told(tmp_path: Path) -> None:
    root = paint(tmp_path / "photos", {"a": 3, "b": 3})
    (root / "labels.txt").write_text("1.jpg is a fox\n")
    (root / "readme.txt").write_text("hello\n")
    (root / "prices.csv").write_text("item,price\nfilm,3\n")
    (line,) = [line for line in inspected(load_table(root)).lines if "not used" in line]
    assert "labels.txt has no column 'path'" in line
    for file in root.rglob("*.jpg"):
        file.write_bytes(str(file).encode())
    seen = inspected(load_table(root))
    assert seen.table.known == ()
    assert seen.unread[1].endswith("a, b can be read, so they are no classes here.")


def test_examples_are_few(tmp_path: Path) -> None:
    names = {f"{name}{sign}{n:02d}": 1 for n in range(8) for name in ("finch", "Finch") for sign in "-_"}
    names |= {f"2023-0{n}": 1 for n in range(1, 6)}
    root = paint(tmp_path / "photos", names | {"unlabelled": 1})
    for number in range(5):
        shutil.copy(root / "finch-00" / "0.jpg", root / "unlabelled" / f"copy {number}.jpg")
    result, classes, *names, copies, rest = inspected(load_table(root)).lines
    assert "37 labelled in 37 classes, 6 unlabelled" in result
    assert classes.endswith("and 25 more of 1 image.")
    assert len(names) == 8
    assert names[3].startswith("5 more groups of names like these: Finch-03, Finch_03")
    assert names[7] == "The same question for 2023-04, 2023-05."
    assert copies.startswith("The same file both labelled and unlabelled: 1 pair")
    assert "4 pairs, for example unlabelled/copy 0.jpg and unlabelled/copy 1.jpg;" in rest


def test_a_later_round_begins_with_a_look_too(photos, found, small, tmp_path, caplog) -> None:
    """Classes with the labels and the names that edits gave, near-equal names, lists that lie there, the time."""
    image, id = new_image(found)
    file = edits_file(tmp_path / "run", ("rename", "", id, "Sky"), ("confirm", image, id, id))
    (photos / "sky").mkdir()
    for number in range(2):
        picture(number).save(photos / "sky" / f"{number}.jpg")
    (photos / "labels.csv").write_text("path,label\nunlabelled/red-15.png,red\n")
    with caplog.at_level("INFO", "holotype"):
        table, config = load_table(photos), small(method="kmeans")
        discover_table(table, config, tmp_path / "run", progress=False, edits=file)
    lines = iter(caplog.messages)
    for start in (
        "Another round is needed.",
        "66 images: 19 labelled in 4 classes, 47 unlabelled. --k 4 leaves room for 0 new categories.",
        "Classes by labelled images: green 8, red 8, sky 2, Sky 1.",
        "Probably one class under 2 names, but treated as 2 classes: Sky (1), sky (2).",
        f"{photos / 'labels.csv'} says otherwise of the labels of 1 image",
        "Time on this CPU, roughly: ",
    ):  # in this order
        assert any(line.startswith(start) for line in lines), start


# -- times and bursts before anything is embedded: what the heads of the files tell


def test_times_and_bursts_are_told(tmp_path: Path) -> None:
    """Three frames two seconds apart, one half a minute later, one of another camera at the same time."""
    frames = {"a": (0, 1), "b": (2, 1), "c": (4, 1), "d": (34, 1), "e": (4, 2)}
    for name, (second, camera) in frames.items():
        photograph(tmp_path / f"{name}.jpg", taken=f"2024:05:01 08:00:{second:02d}", model=f"trap {camera}")

    def lines(source: Path = tmp_path, **settings: object) -> list[str]:
        table, config = load_table(source), DiscoverConfig(**settings)
        return exif_summary(table, config, inspected(table, config).shots)

    times, bursts = lines()
    assert times.startswith("The files say when 5 of 5 images were taken (2024-05-01 to 2024-05-01)")
    assert bursts.startswith("3 frames of 1 burst of up to 3 (one camera, at most 10 seconds apart;")
    assert lines(bursts="30")[1].startswith("4 frames of 1 burst of up to 4")
    assert [len(lines(bursts=setting)) for setting in ("1", "no")] == [1, 1]
    (tmp_path / "list.csv").write_text("path,label,group\na.jpg,,x\nd.jpg,,x\ne.jpg,,\n")
    assert "burst of up to 2 (as the column group says)." in lines(tmp_path / "list.csv")[-1]
    for name in "ab":
        photograph(tmp_path / "silent" / f"{name}.jpg")
    assert lines(tmp_path / "silent") == []


# -- how long it will take: more for more images, more steps and slower networks

PACE = Throughput(reading=0.01, trunk=0.1)
STEP = {"rpc": 0.2, "uno": 0.3, "simgcd": 0.1, "sptnet": 0.1}
"""Seconds of a training step."""


def rows_of_files(n: int) -> Table:
    """(n,) images of files that are not there, of which every fourth has a label of five."""
    label = [f"class {i % 5}" if i % 4 == 0 else "" for i in range(n)]
    return Table.from_columns({"path": [f"{i}.png" for i in range(n)], "label": label})


@pytest.fixture(scope="module")
def tiny(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def seconds(tiny: Backbone, monkeypatch):
    """Of embedding and training, on a machine of the pace above."""
    monkeypatch.setattr("holotype.discovery.dry_run.measure_throughput", lambda *_: PACE)
    monkeypatch.setattr("holotype.discovery.dry_run.step_seconds", lambda one, *_: STEP[one.method_name])

    def estimate(n: int = 1_000, trainings: int = 1, to_embed: int | None = None, **settings: object):
        config = DiscoverConfig(device="cpu", **settings)
        return estimate_seconds(rows_of_files(n), config, tiny, trainings, to_embed)

    return estimate


def test_the_parts_of_the_time(seconds) -> None:
    """1,000 images are read once, and seven views of each are kept; 15 steps are an epoch, the least there is."""
    assert embedding_seconds(100, PACE, "cpu") == pytest.approx(11)
    assert embedding_seconds(100, PACE, "cuda") == pytest.approx(10)  # one behind the other
    assert seconds(steps=10, method="rpc") == pytest.approx((110, 700 + 15 * 0.2))
    assert seconds(steps=150, method="rpc") == pytest.approx((110, 700 + 150 * 0.2))
    assert seconds(steps=10, method="simgcd") == pytest.approx((110, 500 + 15 * 0.1))  # no strong views
    assert seconds(method="kmeans") == pytest.approx((110, 0))  # nothing is trained
    assert seconds(steps=1_000, method="sptnet")[1] > 3 * seconds(steps=1_000)[1]  # learns as a whole
    sample = 5_000 * (0.01 + 0.7) + 78 * 0.2
    assert seconds(20_000, steps=10) == pytest.approx((2_200, sample))


def test_only_what_trains_counts(seconds) -> None:
    """Methods take turns, and where labels can be hidden the first one rehearses once more."""
    training, shared = functools.partial(seconds, steps=15, method="rpc,uno"), 1_000 * 0.7
    for trainings, per_step in ((1, 0.2), (2, 0.7), (3, 0.9), (4, 1.2)):
        assert training(trainings=trainings)[1] - shared == pytest.approx(15 * per_step)
    assert training(trainings=4, k=5)[1] - shared == pytest.approx(15 * 5 * 0.2)  # no new category for UNO+
    with pytest.raises(InputError, match="UNO\\+ needs a novel category"):
        seconds(method="uno", k=5)


def test_an_image_is_read_once_and_its_tokens_are_kept(seconds) -> None:
    """What is read for embedding is kept for training, unless a sample of the images trains."""

    def training_part(to_embed: int | None = None, **settings: object) -> float:
        return seconds(200, 1, to_embed, steps=10, method="rpc", **settings)[1]

    steps, of_image = training_part(0) - 200 * PACE.reading, 7 * PACE.trunk
    assert training_part() - steps == pytest.approx(200 * of_image)
    assert training_part(50) - steps == pytest.approx(50 * of_image + 150 * PACE.reading)
    of_sample = len(draw_sample(rows_of_files(200), 150, 0)) * of_image
    assert training_part(sample=150) - training_part(0, sample=150) == pytest.approx(of_sample)


class SlowClock:
    """An encoder and a training whose passes take 0.01 s by this clock, the first one of each longer, as on an unused
    GPU."""

    def __init__(self, first: float) -> None:
        self.now, self.first, self.position = 0.0, first, SimpleNamespace(stage=0)

    def monotonic(self) -> float:
        return self.now

    def passes(self) -> Iterator[None]:
        self.now += self.first
        yield
        while True:
            self.now += 0.01
            yield

    def training(self, stop: object) -> Iterator[None]:
        return self.passes()

    def encoder(self, *_: object) -> SimpleNamespace:
        passes = self.passes()
        return SimpleNamespace(inputs=lambda images: (next(passes), torch.zeros(len(images), 8))[1])


@pytest.mark.parametrize("first", [0.01, 60.0])
def test_a_slow_first_pass_does_not_count(first: float, tiny, squares_folder, monkeypatch) -> None:
    clock = SlowClock(first)
    timed = functools.partial(fastest_pass, clock=clock.monotonic)
    for name, value in {"Encoder": clock.encoder, "Loop": lambda *_, **named: clock, "time": clock}.items():
        monkeypatch.setattr(f"holotype.discovery.dry_run.{name}", value)
    monkeypatch.setattr("holotype.discovery.dry_run.fastest_pass", timed)
    table, cpu = load_table(squares_folder), Device.on("cpu")
    assert measure_throughput(table, tiny, cpu).trunk == pytest.approx(0.01 / 8)
    experiment = plan_training("rpc", table, 4, 10, "cpu", BackboneConfig())
    assert step_seconds(experiment, 0, RunData(table, 4), tiny, cpu) == pytest.approx(0.01)


@pytest.mark.parametrize("method", [*METHODS, "eagc+rpc"])
def test_every_method_can_be_tried(method: str, tiny: Backbone, squares_folder: Path, caplog) -> None:
    """Each stage as it is trained; nothing is said of blank images."""
    data, cpu = RunData(load_table(squares_folder), 4), Device.on("cpu")
    experiment = plan_training(method, data.table, data.k, 10, "cpu", BackboneConfig())
    for place, stage in enumerate(stages_of(experiment)):
        if stage.needs == "tokens":
            assert step_seconds(experiment, place, data, tiny, cpu) > 0
    assert caplog.messages == []


def test_measuring_changes_nothing(squares_folder: Path, tiny: Backbone) -> None:
    before = {name: value.clone() for name, value in tiny.tail.state_dict().items()}
    generator, table = torch.random.get_rng_state(), load_table(squares_folder)
    words = estimate_time(table, DiscoverConfig(device="cpu", steps=1), tiny, 3)
    assert torch.equal(generator, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in tiny.tail.state_dict().items())
    assert all(p.grad is None for p in tiny.tail.parameters())
    assert words.startswith("Time on this CPU, roughly: ")
    assert "3 trainings " in words
    assert "tiny at 32 pixels. 3 trainings vote" in words


def test_vectors_are_tried_too() -> None:
    """Nothing is read and nobody looks; the head in front of the method learns."""
    table, config = rows_of_files(40), DiscoverConfig(device="cpu", steps=1).with_network(vector_config(6))
    table = replace(table, features=np.random.default_rng(0).normal(size=(40, 6)))
    embedding, training = estimate_seconds(table, config, load_backbone(config.network), 1)
    assert embedding == 0 < training
