"""A look at what a discovery would go on with tells what the discovery then does, and writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holotype.data.load import load_table
from holotype.discovery.dry_run import preview_plan
from holotype.discovery.ownership import stored_backbone
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import plan_round
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv, read_log
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
