"""A discovery whose images were moved or replaced, or whose rounds were stopped: it goes on, or says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from holotype.categories.found import Discovery
from holotype.data.sources import load_table
from holotype.discovery.workflow import default_folder, discover_table
from holotype.errors import InputError, Stopped
from holotype.machine.locks import hold
from tests.cli.test_bad_input import pressed
from tests.discovery.made_round import edits_file


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos.v1"))


def test_folders_of_like_names_have_runs_of_their_own() -> None:
    names = {default_folder(Path(name)) for name in ("photos.v1", "photos.v2", "photos", "photos.csv")}
    assert len(names) == 4
    assert default_folder(Path("photos.v1")) == Path("runs") / "photos.v1-discover"


def test_a_discovery_goes_on_where_its_images_were_moved(photos, small, tmp_path, monkeypatch) -> None:
    run, table = tmp_path / "run", load_table(photos)
    novel = next(
        c for c in discover_table(table, small(), run, progress=False).categories if c.kind == "novel"
    )
    image = str(photos / "unlabelled" / "blue-03.png")
    file = edits_file(run, ("confirm", image, "", novel.id), ("rename", "", novel.id, "sky"))
    assert discover_table(table, small(), run, progress=False, edits=file).facts.round == 2
    elsewhere = tmp_path / "archive" / "photos"
    elsewhere.parent.mkdir()
    photos.rename(elsewhere)
    with monkeypatch.context() as patch:
        patch.setattr("holotype.discovery.workflow.run_round", lambda round: pytest.fail("trained again"))
        found = discover_table(load_table(elsewhere), small(), run, progress=False, edits=file)
    assert found.category(novel.id).name == "sky"
    assert all(Path(path).is_file() for path in found.images.path)
    now = str(elsewhere / "unlabelled" / "blue-03.png")
    assert list(found.images.set_index("path").loc[now, ["category", "label"]]) == ["sky", novel.id]
    kept = Discovery.load(run / "rounds" / "1" / "corrected")
    assert all(Path(path).is_file() for path in kept.images.path)
    assert list(kept.facts.edits.confirmed) == [now]
    assert all(Path(path).is_file() for category in found.categories for path in category.exemplars)
    # a file that was exported before the images were moved still counts
    blue = [str(photos / "unlabelled" / f"blue-{i:02d}.png") for i in range(8, 14)]
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    monkeypatch.setattr("holotype.runs.embed._embed_missing", lambda *_: pytest.fail("embedded again"))
    again = discover_table(load_table(elsewhere), small(), run, progress=False, edits=file)
    assert again.facts.confirmed_labels == 7
    assert "blue" in again.known


def test_images_that_were_replaced_lead_to_another_round(photos, small, tmp_path, caplog) -> None:
    """Once: the round after that keeps what it has."""
    run, image = tmp_path / "run", photos / "unlabelled" / "blue-00.png"
    before = discover_table(load_table(photos), small(), run, progress=False)
    Image.new("RGB", (40, 40), (200, 40, 40)).save(image)
    caplog.set_level("INFO", "holotype")
    found = discover_table(load_table(photos), small(), run, progress=False)
    assert "1 of the 64 images have changed since round 1" in caplog.text
    assert (found.facts.round, found.facts.earlier_runs) == (2, (before.run_id,))
    again = discover_table(load_table(photos), small(), run, progress=False)
    assert again.run_id == found.run_id


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
    (own / "state.json").write_text(json.dumps({"counter": 1, "tensors": "state-00000001.safetensors"}))
    with pytest.raises(InputError, match="training state of another run"):
        discover_table(table, small(), run, progress=False)
    (own / "state.json").unlink()
    again = discover_table(table, small(), run, progress=False)
    columns = ["path", "category_id", "probability"]
    pd.testing.assert_frame_equal(again.images[columns], found.images[columns])


def test_two_commands_do_not_work_in_one_folder(run, squares_folder, small) -> None:
    with hold(run), pytest.raises(InputError):
        discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)
