"""A folder without a run: the first look, the start with its settings, and what is refused."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from holotype.discovery import folder_preview
from holotype.errors import InputError
from holotype.studio import app
from holotype.studio.jobs import JobContext, first_settings
from holotype.studio.page import unplaced
from studio.client import Client
from studio.conftest import serving


@pytest.fixture
def photos(squares_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


@pytest.fixture
def tiny_start(monkeypatch, tiny_backbone_file: Path) -> None:
    """Let first rounds take seconds."""
    flags = (f"--backbone={tiny_backbone_file}", "--steps=6", "--seeds=1", "--device=cpu")
    monkeypatch.setattr(app, "first_settings", lambda *asked: (*first_settings(*asked), *flags))


def waited(window: Client, key: str, wanted, seconds: float = 90):
    deadline = time.monotonic() + seconds
    while not wanted(found := window.state()[key]):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_the_first_look_groups_images_of_one_colour(photos, tmp_path, capsys) -> None:
    folder_preview.look(str(photos), str(tmp_path / "run"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [Path(path).name.partition("-")[0] for path in unplaced(str(photos)).images["path"]]
    groups = lines[0]["groups"]
    assert sum(len(group) for group in groups) == len(names) == 64
    assert all(len({names[row] for row in group}) == 1 for group in groups)
    assert lines[-1]["lines"][0].startswith("64 images: 16 labelled in 2 classes")
    assert not (tmp_path / "run").exists()


def test_from_a_folder_to_its_first_round(photos, tmp_path, tiny_start) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with serving(JobContext(run, str(photos))) as server:
        window = Client(server.link).enter()
        page = window.get("/data.js").body.decode()
        assert '"first":{"green":8,"red":8}' in page
        assert str(photos) not in page
        assert window.get("/thumb/3?run=first-look").headers["content-type"] == "image/jpeg"
        edit = {"id": "1", "run": "first-look", "time": "2026-01-01T00:00:00Z", "action": "reject", "row": 1}
        assert "1" in window.post("/api/edits", {"edits": [edit]}).json()["refused"]
        settings = {"k": 4, "unlabelled": ["green"]}
        assert window.post("/api/job", {"start": "discover", "settings": settings}).status == 200
        waited(window, "run_id", lambda run_id: run_id != "first-look")
        assert waited(window, "job", lambda job: job["state"] != "running")["state"] == "done"
        assert waited(window, "look", lambda look: "lines" in look)["groups"]
    source = json.loads((run / "source.json").read_text())
    assert (source["images"], source["unlabelled"]) == (str(photos), ["green"])
    assert not (run / "edits.csv").exists()


@pytest.mark.parametrize(
    "wish",
    [
        {"k": "4 --out=x"},
        {"k": 0},
        {"k": True},
        {"seeds": 10},
        {"unlabelled": ["no such"]},
        {"unlabelled": "red"},
    ],
)
def test_a_page_can_ask_for_numbers_and_classes_alone(wish) -> None:
    with pytest.raises(InputError):
        first_settings(wish, ["red", "green"])
    assert first_settings({"out": "/tmp/x", "k": 7, "seeds": 1}, []) == ("--k=7", "--seeds=1")
    assert first_settings(["--k"], []) == ()


def test_a_folder_that_cannot_be_read_is_a_sentence_in_the_page(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    with serving(JobContext(tmp_path / "run", str(tmp_path / "empty"))) as server:
        answer = Client(server.link).enter().get("/")
        assert answer.status == 409
        assert b"empty" in answer.body
