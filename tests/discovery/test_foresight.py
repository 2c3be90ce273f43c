"""A look at what a discovery would go on with tells what the discovery then does, and writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holotype.categories.edits import Edit, read_log, to_csv
from holotype.categories.found import Discovery
from holotype.data.sources import load_table
from holotype.discovery.foresight import Foreseen, foresee
from holotype.discovery.workflow import discover_table
from holotype.errors import InputError
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
    seen = foresee(run, table, other, file)
    told = seen.lines
    assert (seen.trains, seen.to_embed) == (True, 0)
    assert state(run) == before
    assert told[0] == f"Since round 1 in {run}: 1 image gone, 1 renamed."
    assert "Another round would be trained." in told
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
        foresee(run, table, small(method="kmeans", image_size=48))
    foreign = tmp_path / "foreign.csv"
    foreign.write_text(to_csv([Edit("somebody-1", "t", "rename", "", "new-01", "Boots")]))
    with pytest.raises(InputError, match="somebody-1"):
        foresee(run, table, asked, foreign)
    with pytest.raises(InputError, match="without --edits first"):
        foresee(tmp_path / "other", table, asked, foreign)
    free = found.images[found.images.label == ""]
    every = [("confirm", path, id, id) for path, id in zip(free.path, free.category_id, strict=True)]
    with pytest.raises(InputError, match="labelled or rejected"):
        foresee(run, table, asked, edits_file(run, *every))
    assert read_log(run) == []


@pytest.mark.parametrize(
    ("k", "so"), [(5, "--k 5 leaves room for 2 new categories."), (2, "--k 2 becomes 3.")]
)
def test_the_classes_of_edits_take_room(k, so, found, photos, small, tmp_path) -> None:
    image, id = found.images[found.images.kind == "novel"][["path", "category_id"]].iloc[0]
    file = edits_file(tmp_path / "run", ("confirm", image, id, id))
    told = foresee(tmp_path / "run", load_table(photos), small(method="kmeans", k=k), file).lines
    assert told[-1] == f"With the labels from edits there are 3 known classes, so {so}"
    told = foresee(tmp_path / "run", load_table(photos), small(method="kmeans", k=k)).lines
    assert "known classes" not in told[-1]


def test_names_alone_train_nothing(found, photos, asked, tmp_path) -> None:
    run = tmp_path / "run"
    file = edits_file(run, ("rename", "", found.categories[-1].id, "sky"))
    seen = foresee(run, load_table(photos), asked, file)
    assert seen.lines[1:] == ["No other round would be trained: the result of round 1 stands."]
    assert not seen.trains


def test_a_first_round_embeds_all(photos, asked, tmp_path) -> None:
    assert foresee(tmp_path / "run", load_table(photos), asked) == Foreseen([])
