"""Edits are saved once and in order, windows hear of everything, and pictures are nothing but pixels."""

from __future__ import annotations

import base64
import io
import json
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import EDIT_LOG, Edit, EditLog, append_edits, in_effect, read_log
from holotype.studio import app, live
from holotype.studio.live import encode_picture, nearest_rows
from holotype.studio.serve import claimed_run
from report.made import make_discovery
from studio.client import Client
from studio.conftest import N

RUN = "run-made-1"


def item(number: int, action: str = "move", **more) -> dict:
    """An edit as the page sends it."""
    time = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000Z"
    edit = {"id": f"id-{number}", "run": RUN, "time": time, "action": action, "row": None}
    return edit | {"digest": f"{number % N:032x}", "category": "new-01", "value": "new-02"} | more


@pytest.fixture
def window(run: Path, serve) -> Client:
    found = Client(serve(run).link).enter()
    assert found.get("/").status == 200
    return found


def test_an_edit_is_in_the_log_when_it_counts_as_saved(window: Client, run: Path) -> None:
    answer = window.post(
        "/api/edits", {"edits": [item(3), item(4, "rename", digest="", value="Käfer, =x\n")]}
    )
    assert answer.json() == {"saved": ["id-3", "id-4"], "refused": {}, "revision": 2}
    moved, renamed = read_log(run)
    assert (moved.digest, moved.category, moved.value) == (f"{3:032x}", "new-01", "new-02")
    assert moved.image.endswith("=cmd().png")  # of the table: the page has sent no path
    assert (renamed.image, renamed.value) == ("", "Käfer, =x\n")
    told = window.state()["edits"]
    assert [(edit["action"], edit["row"]) for edit in told] == [("move", 3), ("rename", None)]
    assert str(run.parent) not in json.dumps(told)


def test_what_is_sent_twice_counts_once(window: Client, run: Path) -> None:
    batch = [item(number) for number in range(20)]
    for sent in (batch, batch, batch[5:], [one | {"id": f"again-{one['id']}"} for one in batch]):
        assert len(window.post("/api/edits", {"edits": sent}).json()["saved"]) == len(sent)
    assert len(read_log(run)) == 20


REFUSED = {
    "another run": {"run": "run-other-1"},
    "no run": {"run": None},
    "no such action": {"action": "delete"},
    "no time": {"time": "yesterday"},
    "a formula as time": {"time": "=1+1"},
    "an unknown image": {"digest": "f" * 32},
    "a path": {"digest": "/etc/passwd"},
    "a row outside": {"digest": "", "row": N},
    "a row below": {"digest": "", "row": -1},
    "a path as row": {"digest": "", "row": "../../etc/passwd"},
    "a long name": {"value": "x" * 3000},
    "a list": {"category": ["new-01"] * 900},
}


def test_what_is_no_edit_is_refused_alone(window: Client, run: Path) -> None:
    for name, wrong in REFUSED.items():
        answer = window.post("/api/edits", {"edits": [item(1), item(2) | wrong]}).json()
        assert (answer["saved"], list(answer["refused"])) == (["id-1"], ["id-2"]), name
    assert window.post("/api/edits", {"edits": [None, 1, "x", []]}).json()["saved"] == []
    assert len(read_log(run)) == 1
    for body in ({}, {"edits": 1}, {"edits": [{}] * 3000}, [], "x"):
        assert window.post("/api/edits", body).status == 409


def test_an_image_without_a_digest_is_known_by_its_row(made: Path, tmp_path: Path, serve) -> None:
    found = make_discovery(tmp_path / "pictures", 30)
    found.save(tmp_path / "run")
    window = Client(serve(tmp_path / "run").link).enter()
    assert window.get("/").status == 200
    assert window.post("/api/edits", {"edits": [item(7, digest="", row=7)]}).json()["saved"] == ["id-7"]
    (edit,) = read_log(tmp_path / "run")
    assert edit.image == str(found.images["path"][7])
    assert window.state()["edits"][0]["row"] == 7


def test_an_undo_takes_back_what_was_said_of_one_image(window: Client, run: Path) -> None:
    window.post("/api/edits", {"edits": [item(1), item(2), item(3, "rename", digest="", value="x")]})
    undo = [
        item(10, "undo", digest=item(1)["digest"], value=item(1)["time"]),
        item(11, "undo", digest="", value=item(3)["time"]),
    ]
    assert len(window.post("/api/edits", {"edits": undo}).json()["saved"]) == 2
    log = read_log(run)
    assert len(log) == 5  # lines are only added
    assert [edit.digest for edit in in_effect(log)] == [item(2)["digest"]]


def test_every_window_hears_of_edits_wherever_they_come_from(window: Client, run: Path) -> None:
    with window.events() as one, window.events() as other:
        window.post("/api/edits", {"edits": [item(1)]})
        append_edits(run, [Edit(RUN, "2026-01-01T00:00:02Z", "rename", "", "new-01", "by a terminal")])
        for window_ in (one, other):
            heard = list(islice((event for event in window_ if event["type"] == "edits"), 2))
            assert [(event["from"], event["revision"]) for event in heard] == [(0, 1), (1, 2)]
            assert heard[1]["edits"][0]["value"] == "by a terminal"


@pytest.mark.parametrize("how", ["after", "last_id"])
def test_a_window_that_comes_back_has_missed_nothing(window: Client, how: str) -> None:
    window.post("/api/edits", {"edits": [item(number) for number in range(6)]})
    with window.events(**{how: 4}) as events:
        event = next(events)
    assert (event["type"], event["from"], event["revision"], event["id"]) == ("edits", 4, 6, 6)
    assert [edit["row"] for edit in event["edits"]] == [4, 5]
    with window.events(**{how: 6}) as events:
        assert next(events)["type"] != "edits"
    with window.events(**{how: 99}) as events:  # of a log that is no longer there
        assert next(events)["from"] == 0


def test_a_log_that_was_rewritten_is_told_as_a_whole(window: Client, run: Path) -> None:
    window.post("/api/edits", {"edits": [item(1), item(2)]})
    with window.events(after=2) as events:
        lines = (run / EDIT_LOG).read_text().splitlines(keepends=True)
        (run / "beside.csv").write_text("".join([lines[0], lines[2]]))
        os.replace(run / "beside.csv", run / EDIT_LOG)
        event = next(event for event in events if event["type"] == "edits")
    assert (event["from"], [edit["row"] for edit in event["edits"]]) == (0, [2])


def test_there_is_an_end_to_streams(window: Client, monkeypatch) -> None:
    monkeypatch.setattr(app, "MAX_STREAMS", 1)
    with window.events():
        assert window.get("/events").status == 503


def problems(events):
    return (event["words"] for event in events if event["type"] == "problem" and "words" in event)


def test_a_folder_that_vanishes_is_said_and_comes_back(window: Client, run: Path) -> None:
    with window.events() as events:
        told = problems(events)
        assert next(told) == ""
        os.rename(run, run.with_name("elsewhere"))
        assert "is gone" in next(told)
        assert window.post("/api/edits", {"edits": [item(1)]}).status == 409
        assert window.get("/").status == 200  # what was there is still shown
        os.rename(run.with_name("elsewhere"), run)
        assert next(told) == ""
    assert window.post("/api/edits", {"edits": [item(1)]}).json()["saved"] == ["id-1"]


def test_images_that_vanish_are_said_and_edits_go_on(run: Path, tmp_path: Path, serve) -> None:
    (tmp_path / "photos").mkdir()
    window = Client(serve(run, context={"images": str(tmp_path / "photos")}).link).enter()
    with window.events() as events:
        told = problems(events)
        assert next(told) == ""
        os.rename(tmp_path / "photos", tmp_path / "elsewhere")
        assert f"{tmp_path / 'photos'} are gone" in next(told)
        assert window.post("/api/edits", {"edits": [item(1)]}).json()["saved"] == ["id-1"]
        os.rename(tmp_path / "elsewhere", tmp_path / "photos")
        assert next(told) == ""


def test_a_disk_that_is_full_is_said_and_the_edit_can_be_sent_again(
    window: Client, run: Path, monkeypatch
) -> None:
    def full(log, edits):
        raise InputError("edits.csv could not be written (No space left on device); free some space.")

    monkeypatch.setattr(EditLog, "append", full)
    answer = window.post("/api/edits", {"edits": [item(1)]})
    assert (answer.status, "No space left" in answer.json()["words"]) == (409, True)
    monkeypatch.undo()
    assert window.post("/api/edits", {"edits": [item(1)]}).status == 200
    with window.events() as events:
        told = problems(events)
        assert next(told) == ""
        monkeypatch.setattr(app, "LEAST_FREE", 1 << 60)
        assert "is full" in next(told)
        monkeypatch.setattr(app, "LEAST_FREE", 0)
        assert next(told) == ""


def test_a_run_of_another_version_is_said(window: Client, run: Path) -> None:
    file = run / "discovery.json"
    with window.events() as events:
        told = problems(events)
        assert next(told) == ""
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"format": 99, "run_id": "run-made-2"}))
        assert "another version (format 99" in next(told)
        assert window.get("/data.js").status == 200
        file.write_text(json.dumps(content))
        assert next(told) == ""


def test_a_run_that_cannot_be_read_at_the_start_is_said_in_the_page(run: Path, serve) -> None:
    (run / "assignments.parquet").write_bytes(b"x")
    window = Client(serve(run).link).enter()
    answer = window.get("/")
    assert (answer.status, b"cannot be read" in answer.body) == (409, True)


def test_a_second_studio_only_shows_and_says_who_has_the_run(run: Path, serve) -> None:
    with claimed_run(run, read_only=False) as first, claimed_run(run, read_only=False) as second:
        assert first == ""
        assert second.startswith("The studio of this run is in use by")
        window = Client(serve(run, read_only=second).link).enter()
        assert window.get("/").status == 200
        for path, body in (("/api/edits", {"edits": [item(1)]}), ("/api/job", {"start": "write"})):
            assert window.post(path, body).json()["words"] == second
    assert not (run / EDIT_LOG).exists()
    assert not (run / "studio").exists()
    with claimed_run(run, read_only=True) as asked:
        assert asked


def test_a_folder_that_others_own_is_only_shown(run: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with claimed_run(run, read_only=False) as why:
        assert "cannot be written" in why


def test_the_page_has_every_image_and_no_path_of_this_machine(client: Client, made: Path) -> None:
    text = client.get("/data.js").body.decode()
    data = json.loads(text.partition(" = ")[2].partition(";\nwindow.")[0])
    assert len(data["images"]["path"]) == data["total"]["shown"] == N
    assert data["log"] == data["earlier_log"] == []
    for told in (text, client.get("/").body.decode(), client.get("/api/state").body.decode()):
        assert str(made.parent) not in told
        assert "my pictures/" not in told.replace("my pictures/picture", "")


def test_pictures_are_asked_for_by_row(client: Client, made: Path) -> None:
    assert client.get("/").status == 200
    small, again, large = (client.get(f"/{kind}/5?run={RUN}") for kind in ("thumb", "thumb", "image"))
    assert (small.status, small.headers["content-type"]) == (200, "image/jpeg")
    assert small.body == again.body
    assert Image.open(io.BytesIO(large.body)).format == "JPEG"
    for path in ("/thumb/0", "/thumb/0?run=x", f"/thumb/{N}?run={RUN}", f"/image/99999999999?run={RUN}"):
        assert client.get(path).status == 404


def test_a_picture_that_is_gone_is_not_found(made: Path, tmp_path: Path, serve) -> None:
    make_discovery(tmp_path / "pictures", 12).save(tmp_path / "run")
    os.rename(tmp_path / "pictures", tmp_path / "moved")
    window = Client(serve(tmp_path / "run").link).enter()
    assert window.get("/").status == 200
    assert window.get(f"/thumb/3?run={RUN}").status == 404


def test_what_a_file_says_beside_its_pixels_goes_no_further(tmp_path: Path) -> None:
    """Place, camera, owner, comments and profiles; the picture stands upright."""
    file, picture = tmp_path / "a.jpg", Image.new("RGB", (300, 200), (200, 30, 30))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E], exif[0x013B] = 6, "SECRET description", "SECRET artist"
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 30.0, 0.0), 29: "SECRET date"})
    picture.save(
        file, exif=exif, comment=b"SECRET comment", icc_profile=b"SECRET profile", xmp=b"<x>SECRET</x>"
    )
    assert file.read_bytes().count(b"SECRET") >= 5
    for side in (live.THUMB_SIDE, live.IMAGE_SIDE):
        content = encode_picture(str(file), side)
        made = Image.open(io.BytesIO(content))
        assert b"SECRET" not in content
        assert not made.getexif()
        assert made.size[0] < made.size[1] <= side


def test_the_nearest_are_those_of_a_slow_loop(run: Path, monkeypatch) -> None:
    monkeypatch.setattr(live, "BLOCK", 7)
    features = np.load(run / "features.npy").astype(np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    likeness = features @ features[4]
    slow = sorted((row for row in range(N) if row != 4), key=lambda row: -likeness[row])[:12]
    found = nearest_rows(run / "features.npy", 4)
    assert [*found] == slow
    np.testing.assert_allclose([*found.values()], likeness[slow], atol=1e-3)


def test_likeness_is_asked_by_row(client: Client) -> None:
    assert len(client.get(f"/api/alike/4?run={RUN}").json()["rows"]) == 12
    assert client.get(f"/api/alike/{N}?run={RUN}").status == 404
    assert client.get("/api/alike/4").status == 404


def test_a_picture_that_is_not_in_the_run_finds_those_like_it(
    discovery: Path, squares_folder: Path, serve
) -> None:
    window = Client(serve(discovery).link).enter()
    file = next((squares_folder / "red").iterdir())
    answer = window.post("/api/picture", {"picture": base64.b64encode(file.read_bytes()).decode()})
    found = answer.json()
    assert answer.status == 200, found
    paths = Discovery.load(discovery).images["path"]
    assert Path(paths.iloc[found["rows"][0]]).name == file.name
    assert found["likeness"][0] == pytest.approx(1, abs=1e-3)
    assert found["likeness"] == sorted(found["likeness"], reverse=True)
    for picture in ("bm8gcGljdHVyZQ==", "?"):
        assert window.post("/api/picture", {"picture": picture}).status == 409
