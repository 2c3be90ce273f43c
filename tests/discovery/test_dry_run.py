"""A look at what a discovery would go on with tells what the discovery then does, and writes nothing."""

from __future__ import annotations

import copy
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.collection import index_images
from holotype.discovery.dry_run import (
    DryRunReport,
    Throughput,
    duration_phrase,
    embedding_seconds,
    estimate_time,
    exif_summary,
    inspect_collection,
    log_report,
    measure_throughput,
    preview_plan,
    time_text,
    training_seconds,
)
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import Round, plan_round
from holotype.discovery.run_folder import stored_backbone
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.models.zoo import fastest_pass
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv, read_log
from holotype.utils.device import Device
from tests.data.cameras import photograph
from tests.data.test_duplicates import picture
from tests.discovery.made_round import edits_file


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


@pytest.fixture
def asked(small):
    return small(method="kmeans")


@pytest.fixture
def found(photos, asked, tmp_path) -> Discovery:
    return discover_table(load_table(photos), asked, tmp_path / "run", progress=False)


def state(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def test_edits_and_settings_are_told_as_they_then_take_part(
    found, photos, small, tmp_path, caplog, monkeypatch
) -> None:
    """Also where images were renamed and the folder was moved since: edits go with the content."""
    run, new = tmp_path / "run", next(c for c in found.categories if c.kind == "novel")
    one, two, three = found.images.path[(found.images.category_id == new.id)][:3]
    file = edits_file(
        run, ("confirm", one, new.id, new.id), ("reject", two, new.id, ""), ("move", three, "", "red"),
        ("merge", "", "new-77", new.id),
    )  # fmt: skip
    Path(one).rename(Path(one).with_name("renamed.png"))
    Path(three).unlink()
    photos.rename(tmp_path / "archive")
    table, other = load_table(tmp_path / "archive"), small(method="kmeans", k=5)
    before = state(run)
    plan = plan_round(run, table, other, file)
    told = preview_plan(plan)
    assert (plan.trains, plan.to_embed) == (True, 0)
    assert state(run) == before
    assert "Since round 1: 1 image gone, 1 renamed." in told
    assert "Settings that differ from round 1: --k 5 (was 4)." in told
    caplog.set_level("INFO", "holotype")
    discover_table(table, other, run, progress=False, edits=file)
    edits = [line for line in told if line.startswith(("Edits that", "1 edit of", "Merge of"))]
    assert len(edits) == 3
    assert "1 rejected, 1 confirmed. They give 1 label and keep 1 image out." in edits[0]
    assert all(line in caplog.messages for line in edits)


def test_what_would_be_refused_is(found, photos, small, asked, tmp_path) -> None:
    run, table = tmp_path / "run", load_table(photos)
    with pytest.raises(InputError, match="features of two networks"):
        stored_backbone(run, small(method="kmeans", image_size=48).network)
    foreign = tmp_path / "foreign.csv"
    foreign.write_text(edits_csv([Edit("somebody-1", "t", "rename", "", "new-01", "Boots")]))
    with pytest.raises(InputError, match="somebody-1"):
        plan_round(run, table, asked, foreign)
    with pytest.raises(InputError, match="without --edits first"):
        plan_round(tmp_path / "other", table, asked, foreign)
    free = found.images[found.images.label == ""]
    every = [("confirm", path, id, id) for path, id in zip(free.path, free.category_id, strict=True)]
    with pytest.raises(InputError, match="labelled or rejected"):
        preview_plan(plan_round(run, table, asked, edits_file(run, *every)))
    assert read_log(run) == []


@pytest.mark.parametrize(
    ("k", "so"), [(5, "--k 5 leaves room for 2 new categories."), (2, "--k 2 becomes 3.")]
)
def test_the_classes_of_edits_take_room(k, so, found, photos, small, tmp_path) -> None:
    image, id = found.images[found.images.kind == "novel"][["path", "category_id"]].iloc[0]
    file = edits_file(tmp_path / "run", ("confirm", image, id, id))
    told = preview_plan(plan_round(tmp_path / "run", load_table(photos), small(method="kmeans", k=k), file))
    assert told[-1] == f"With the labels from edits there are 3 known classes, so {so}"
    told = preview_plan(plan_round(tmp_path / "run", load_table(photos), small(method="kmeans", k=k)))
    assert "known classes" not in told[-1]


def test_how_many_categories_corrections_have_left_is_foreseen(
    found, photos, small, tmp_path, caplog
) -> None:
    """Nobody is told of an estimate that does not decide; renamed images are the same ones."""
    run, asked = tmp_path / "run", small(method="kmeans", k="auto")
    image, id = found.images[found.images.kind == "novel"][["path", "category_id"]].iloc[0]
    Path(image).rename(Path(image).with_name("renamed.png"))
    edits = edits_file(run, ("confirm", image, id, id))
    table = load_table(photos)
    told = preview_plan(plan_round(run, table, asked, edits))
    assert told[-1] == "Corrections have left 4 categories, and as many would be trained with (--k sets it)."
    caplog.set_level("INFO", "holotype")
    discover_table(table, asked, run, progress=False, edits=edits)
    assert "Corrections have left 4 categories. Training with 4." in caplog.text
    assert "How many categories there are follows from corrections (--k sets it)." in caplog.text
    next(photos.glob("unlabelled/*.png")).unlink()
    assert preview_plan(plan_round(run, load_table(photos), asked))[-1] == (
        "Corrections have left 4 categories; the images that have come or gone may change that number (--k sets it)."
    )


def test_a_dry_run_numbers_the_round_as_training_then_does(
    found, photos, small, tmp_path, monkeypatch
) -> None:
    """A round that was stopped is gone on with, and another number follows it where something has changed since."""
    run, table = tmp_path / "run", load_table(photos)
    path = found.images.path[found.images.kind == "novel"].iloc[0]

    def numbered(k: int) -> str:
        return next(
            line
            for line in preview_plan(plan_round(run, table, small(method="kmeans", k=k)))
            if "take part" in line
        )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    edits = edits_file(run, ("reject", path, "", ""))
    with monkeypatch.context() as patch:
        patch.setattr("holotype.discovery.pipeline.run_round", stop)
        with pytest.raises(KeyboardInterrupt):
            discover_table(table, small(method="kmeans", k=5), run, progress=False, edits=edits)
    assert numbered(k=5).startswith("Edits that take part in round 2:")
    assert numbered(k=6).startswith("Edits that take part in round 3:")
    again = discover_table(table, small(method="kmeans", k=6), run, progress=False)
    assert again.facts.round == 3


def test_names_alone_train_nothing(found, photos, asked, tmp_path) -> None:
    run = tmp_path / "run"
    file = edits_file(run, ("rename", "", found.categories[-1].id, "sky"))
    plan = plan_round(run, load_table(photos), asked, file)
    assert not plan.trains
    assert "its result stands" in preview_plan(plan)[-1]


def test_a_first_round_embeds_all(photos, asked, tmp_path) -> None:
    plan = plan_round(tmp_path / "run", load_table(photos), asked)
    assert (plan.trains, plan.to_embed, plan.lines()) == (True, None, [])
    assert not (tmp_path / "run").exists()


def test_labels_that_are_all_others_make_one_ask_for_the_list(
    squares_folder, small, tmp_path, caplog
) -> None:
    """A list was given; without it, the folders that the images lie in would be the labels."""
    photos = tmp_path / "photos"
    for number, file in enumerate(sorted(squares_folder.rglob("*.png"))):
        place = photos / ("camera-a", "camera-b", ".")[number % 3] / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    files = [file.relative_to(photos) for file in sorted(photos.rglob("*.png"))]
    rows = [f"{file},{file.name[:3]}" for file in files if file.name[:3] in ("red", "blu")][::2]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    listed, asked = load_table(photos, tmp_path / "labels.csv"), small(method="kmeans", k=4)
    caplog.set_level("INFO", "holotype")
    discover_table(listed, asked, tmp_path / "run", progress=False)
    hint = (
        "None of the images that had a label in round 1 keeps it. If a list of labels was forgotten, stop now"
    )
    assert any(hint in line for line in preview_plan(plan_round(tmp_path / "run", load_table(photos), asked)))
    discover_table(load_table(photos), asked, tmp_path / "run", progress=False)
    assert hint in caplog.text
    caplog.clear()
    discover_table(listed, asked, tmp_path / "run", progress=False)
    assert hint.replace("round 1", "round 2") in caplog.text  # to come back is as great a change
    rows[0] = rows[0].rpartition(",")[0] + ",other"
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    caplog.clear()
    discover_table(load_table(photos, tmp_path / "labels.csv"), asked, tmp_path / "run", progress=False)
    assert "1 label changed" in caplog.text
    assert "keeps it" not in caplog.text


# -- A messy folder, as people have it, at a first look: every line that is due, and none that is no


CLASSES = {"Canna Lily": 4, "canna_lily": 3, "red kite": 6, "unsorted": 5, "unlabelled": 9}


def paint(root: Path, classes: dict[str, int]) -> Path:
    """Pictures that are all different, in folders of these names and numbers."""
    seed = 0
    for name, n in classes.items():
        for number in range(n):
            seed += 1
            file = root / name / f"{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            picture(seed).save(file)
    return root


def inspected(table: Table, config: DiscoverConfig | None = None) -> DryRunReport:
    return inspect_collection(table, config or DiscoverConfig(), index_images(table))


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    root = paint(tmp_path / "photos", CLASSES)
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


def test_every_line_that_is_due(messy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(messy.parent)
    seen = inspected(load_table(messy), DiscoverConfig(k=9))
    assert seen.lines == [
        "32 images: 21 labelled in 5 classes, 11 unlabelled. --k 9 leaves room for 5 new categories.",
        "Classes by labelled images: red kite 6, Canna Lily 5, unsorted 5, canna_lily 4, hedgehog 1.",
        "Probably one class under 2 names, but treated as 2 classes: Canna Lily (5), canna_lily (4).",
        "Is unsorted a class, or a folder of unsorted images? --unlabelled unsorted treats its 5 images as unlabelled.",
        "photos/labels.csv says otherwise of the labels of 1 image; --labels photos/labels.csv takes what it says.",
        "The same file under different labels: 1 pair, Canna Lily/kite.jpg and red kite/1.jpg; "
        "check these labels first.",
        "The same file both labelled and unlabelled: 1 pair, unlabelled/copy.jpg and red kite/0.jpg.",
        "The same file twice in a class or among the unlabelled: 1 pair, unlabelled/1.jpg and unlabelled/again.jpg.",
        "Nearly the same picture under different labels: 1 pair, canna_lily/small.jpg and red kite/2.jpg; "
        "check these labels first.",
    ]
    assert [line.partition(":")[0] for line in seen.unread] == [
        "2 images cannot be read",
        "No labelled image of hedgehog can be read, so it is no class here.",
    ]
    assert "red kite/5.jpg is empty (0 bytes)." in seen.unread[0]
    assert seen.table.known == ("Canna Lily", "canna_lily", "red kite", "unsorted")
    assert int((~seen.table.usable).sum()) == 2


def test_a_tidy_folder_has_no_further_lines(squares_folder: Path) -> None:
    """squares.csv lies in it and says the same."""
    seen = inspected(load_table(squares_folder))
    assert seen.lines == [
        "64 images: 16 labelled in 2 classes, 48 unlabelled. How many categories there are is estimated (--k sets it).",
        "Classes by labelled images: green 8, red 8.",
    ]
    assert seen.unread == []


def test_a_list_that_is_used_is_no_news(messy: Path) -> None:
    seen = inspected(load_table(messy, messy / "labels.csv"))
    assert "32 images: 2 labelled in 2 classes, 30 unlabelled." in seen.lines[0]
    assert not any("labels.csv" in line for line in seen.lines)


def test_a_list_of_labels_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    root = paint(tmp_path / "photos", {"a": 3, "b": 3})
    (root / "labels.txt").write_text("1.jpg is a fox\n")
    (root / "readme.txt").write_text("hello\n")
    (root / "prices.csv").write_text("item,price\nfilm,3\n")
    told = [line for line in inspected(load_table(root)).lines if "not used" in line]
    assert len(told) == 1
    assert "labels.txt has no column 'path'" in told[0]


def test_examples_are_few(tmp_path: Path) -> None:
    names = {
        f"{name}{sign}{number:02d}": 1 for number in range(8) for name in ("finch", "Finch") for sign in "-_"
    }
    root = paint(tmp_path / "photos", names | {"unlabelled": 1})
    for number in range(5):
        shutil.copy(root / "finch-00" / "0.jpg", root / "unlabelled" / f"copy {number}.jpg")
    result, classes, *groups, copies, rest = inspected(load_table(root)).lines
    assert "32 labelled in 32 classes, 6 unlabelled" in result
    assert classes.endswith("and 20 more of 1 image.")
    assert len(groups) == 4
    assert groups[3].startswith("5 more groups of names like these: Finch-03, Finch_03")
    assert copies.startswith("The same file both labelled and unlabelled: 1 pair")
    assert "4 pairs, for example unlabelled/copy 0.jpg and unlabelled/copy 1.jpg;" in rest


def test_a_collection_of_nothing_readable(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(name.encode())
    seen = inspected(load_table(tmp_path))
    assert seen.table.known == ()
    assert "No labelled image of a, b can be read, so they are no classes here." in seen.unread


def test_a_discovery_begins_with_the_same_lines(
    messy: Path, round: Round, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = load_table(messy)
    round = Round.of(plan_round(tmp_path / "run", table, round.config), round.chosen)
    with caplog.at_level(logging.INFO, "holotype"):
        log_report(round, table)
    *lines, time = caplog.messages
    assert lines == inspected(table, round.config).lines
    assert time.startswith("Time on this CPU, roughly: ")


def test_a_class_that_cannot_be_read_is_none(squares_folder, small, tmp_path, caplog) -> None:
    shutil.copytree(squares_folder, tmp_path / "photos")
    (tmp_path / "photos" / "hedgehog").mkdir()
    (tmp_path / "photos" / "hedgehog" / "1.png").write_bytes(b"no picture")
    with caplog.at_level("INFO", "holotype"):
        found = discover_table(load_table(tmp_path / "photos"), small(), tmp_path / "run", progress=False)
    assert found.known == ("green", "red")
    assert "hedgehog" not in [category.name for category in found.categories]
    assert caplog.text.count("The known class 'hedgehog' takes no part in this round") == 1
    assert any(line.startswith("65 images: 17 labelled in 3 classes") for line in caplog.messages)


def test_a_later_round_begins_with_a_look_too(squares_folder, small, tmp_path, caplog) -> None:
    """Classes with the labels and the names that edits gave, near-equal names, lists that lie there, the time."""
    photos, run, asked = tmp_path / "photos", tmp_path / "run", small(method="kmeans")
    shutil.copytree(squares_folder, photos)
    (photos / "squares.csv").unlink()
    found = discover_table(load_table(photos), asked, run, progress=False)
    new = next(category for category in found.categories if category.kind == "novel")
    image = found.images.path[found.images.category_id == new.id].iloc[0]
    file = edits_file(run, ("rename", "", new.id, "Sky"), ("confirm", image, new.id, new.id))
    (photos / "sky").mkdir()
    for number in range(2):
        picture(number).save(photos / "sky" / f"{number}.jpg")
    (photos / "labels.csv").write_text("path,label\nunlabelled/red-15.png,red\n")
    with caplog.at_level("INFO", "holotype"):
        discover_table(load_table(photos), asked, run, progress=False, edits=file)
    told = caplog.messages
    first = "66 images: 19 labelled in 4 classes, 47 unlabelled. --k 4 leaves room for 0 new categories."
    assert told.index("Another round is needed.") < told.index(first)
    assert "Classes by labelled images: green 8, red 8, sky 2, Sky 1." in told
    assert "Probably one class under 2 names, but treated as 2 classes: Sky (1), sky (2)." in told
    assert any("labels.csv says otherwise of the labels of 1 image" in line for line in told)
    assert any(line.startswith("Time on this CPU, roughly: ") for line in told)


# -- Times and bursts before anything is embedded: what the heads of the files tell


@pytest.fixture
def trap_photos(tmp_path: Path) -> Path:
    """Three frames two seconds apart, one half a minute later, one of another camera at the same time."""
    for name, second, camera in (
        ("a", 0, "trap 1"),
        ("b", 2, "trap 1"),
        ("c", 4, "trap 1"),
        ("d", 34, "trap 1"),
        ("e", 4, "trap 2"),
    ):
        photograph(tmp_path / f"{name}.jpg", taken=f"2024:05:01 08:00:{second:02d}", model=camera)
    return tmp_path


def lines(trap_photos: Path, **settings: object) -> list[str]:
    table, config = load_table(trap_photos), DiscoverConfig(**settings)
    return exif_summary(table, config, inspected(table, config).shots)


def test_times_and_bursts_are_told(trap_photos: Path) -> None:
    said, bursts = lines(trap_photos)
    assert said.startswith("The files say when 5 of 5 images were taken (2024-05-01 to 2024-05-01)")
    assert bursts.startswith("3 frames of 1 burst of up to 3 (one camera, at most 10 seconds apart;")


def test_seconds_are_those_of_the_setting(trap_photos: Path) -> None:
    assert lines(trap_photos, bursts="30")[1].startswith("4 frames of 1 burst of up to 4")
    assert len(lines(trap_photos, bursts="1")) == 1
    assert len(lines(trap_photos, bursts="no")) == 1


def test_a_column_of_groups_decides(trap_photos: Path) -> None:
    listed = trap_photos / "list.csv"
    listed.write_text("path,label,group\na.jpg,,x\nd.jpg,,x\ne.jpg,,\n")
    told = lines(listed)[-1]
    assert told.startswith("2 frames of 1 burst of up to 2 (as the column group says).")


def test_files_that_say_nothing_have_no_line(tmp_path: Path) -> None:
    for name in "ab":
        photograph(tmp_path / f"{name}.jpg")
    assert lines(tmp_path) == []


# -- How long it will take: more for more images, more steps and slower networks; and nothing is cha


PACE = Throughput(reading=0.01, trunk=0.1, tail=0.02)


def training(n: int = 1_000, pace: Throughput = PACE, **settings) -> float:
    return sum(training_seconds(n, DiscoverConfig(device="cpu", **settings), pace, "cpu"))


def test_embedding_reads_and_computes() -> None:
    assert embedding_seconds(100, PACE, "cpu") == pytest.approx(11)
    assert embedding_seconds(100, PACE, "cuda") == pytest.approx(10)  # one behind the other


def test_training_is_the_sample_the_cache_and_the_steps() -> None:
    """1,000 images are read, seven views of each are kept, and 10 steps draw three views of 64 images."""
    assert training(steps=10, method="rpc") == pytest.approx(1_000 * (0.01 + 7 * 0.1) + 10 * 64 * 3 * 0.02)
    assert training(100_000, steps=10) == training(5_000, steps=10)  # the sample
    assert training(100_000, steps=10, sample=20_000) > training(100_000, steps=10)
    assert training(method="kmeans") == pytest.approx(10)  # nothing is trained
    assert training(steps=10, method="simgcd") < training(steps=10)  # fewer views, no strong ones


def test_a_training_of_methods_in_turn_is_the_mean_of_theirs() -> None:
    """RPC draws three views of an image, UNO+ two; the cache has the strong views that one of them needs."""
    each = {
        method: training_seconds(1_000, DiscoverConfig(device="cpu", steps=10, method=method), PACE, "cpu")
        for method in ("rpc", "uno", "rpc,uno")
    }
    assert each["rpc,uno"][1] == pytest.approx((each["rpc"][1] + each["uno"][1]) / 2)
    assert each["rpc,uno"][0] == each["rpc"][0] > each["uno"][0]


@pytest.mark.parametrize("first", [0.01, 60.0])
def test_a_slow_first_pass_does_not_count(first: float, squares_folder, monkeypatch) -> None:
    """As on a GPU that was not used yet."""
    clock = SlowClock(first)
    monkeypatch.setattr("holotype.discovery.dry_run.Encoder", lambda *_: clock)
    monkeypatch.setattr("holotype.discovery.dry_run.learn", clock.learn)
    monkeypatch.setattr(
        "holotype.discovery.dry_run.fastest_pass", lambda run, device: fastest_pass(run, device, clock)
    )
    backbone = SimpleNamespace(image_size=32, dim=8)
    pace = measure_throughput(load_table(squares_folder), backbone, Device.on("cpu"), views=12)
    assert pace.trunk == pytest.approx(0.01 / 8)
    assert pace.tail == pytest.approx(0.01 / 12)


class SlowClock:
    """An encoder whose passes take 0.01 s by its own clock, the first of each part longer."""

    def __init__(self, first: float) -> None:
        self.now, self.seconds = 0.0, {"inputs": first, "learn": first}

    def __call__(self) -> float:
        return self.now

    def inputs(self, images: torch.Tensor) -> torch.Tensor:
        self.now += self.seconds["inputs"]
        self.seconds["inputs"] = 0.01
        return torch.zeros(len(images), 1, 8)

    def learn(self, *_: object) -> None:
        self.now += self.seconds["learn"]
        self.seconds["learn"] = 0.01


def test_the_words_name_several_trainings() -> None:
    told = time_text(60.0, 240.0, "cpu", "embedded at 128 pixels", 5)
    assert "embedding a minute, 5 trainings 4 minutes" in told
    assert told.endswith("5 trainings vote; --seeds changes it.")


def test_a_network_that_learns_as_a_whole_takes_longer() -> None:
    assert training(steps=1_000, method="sptnet") > training(steps=1_000)


def test_measuring_changes_nothing(squares_folder: Path, tiny_backbone_file: Path) -> None:
    backbone = load_backbone(BackboneConfig(str(tiny_backbone_file)))
    before = {name: value.clone() for name, value in backbone.tail.state_dict().items()}
    state = torch.random.get_rng_state()
    table = load_table(squares_folder)
    pace = measure_throughput(table, backbone, Device.on("cpu"), views=12)
    assert min(pace.reading, pace.trunk, pace.tail) > 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in backbone.tail.state_dict().items())
    assert all(p.grad is None for p in backbone.tail.parameters())
    told = estimate_time(table, DiscoverConfig(device="cpu", steps=1), copy.deepcopy(backbone), 3)
    assert "tiny at 32 pixels. 3 trainings" in told


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3, "under a minute"),
        (70, "a minute"),
        (300, "5 minutes"),
        (9_000, "2.5 hours"),
        (200_000, "2.3 days"),
    ],
)
def test_time_in_words(seconds: float, words: str) -> None:
    assert duration_phrase(seconds) == words


def test_the_line() -> None:
    assert time_text(60, 600, "cpu", "embedded at 128 pixels") == (
        "Time on this CPU, roughly: 11 minutes (embedding a minute, training 10 minutes), "
        "with the network embedded at 128 pixels. One training, so there is no vote; --seeds changes it."
    )
    assert "roughly: under a minute, with" in time_text(3, 20, "cuda", "x at 32 pixels")
