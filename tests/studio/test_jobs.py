"""Jobs: a fixed list, one at a time, stopped and killed, with progress from what the child itself writes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from discovery.made_round import made_discovery
from holotype.discovery.source import Source
from holotype.errors import InputError
from holotype.studio import jobs
from holotype.studio.jobs import JOBS, Job, JobContext, loss_curve
from holotype.studio.page import difference
from holotype.utils.heartbeat import Heartbeat
from holotype.utils.locks import lock_folder
from studio.client import Client

PATIENT = """
import sys, time
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("saved", flush=True)
    sys.exit(130)
"""


@pytest.fixture
def script(monkeypatch, tmp_path: Path):
    """Let the job `write` be a script."""

    def use(*texts: str) -> None:
        files = [tmp_path / f"{number}.py" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        monkeypatch.setattr(jobs, "PYTHON", [sys.executable])
        monkeypatch.setitem(JOBS, "write", Job("Write", lambda site: [[str(file)] for file in files], "x"))

    return use


@pytest.fixture
def window(run: Path, serve) -> Client:
    return Client(serve(run).link).enter()


def waited(window: Client, wanted, seconds: float = 30) -> dict:
    """The job, once something is true of it."""
    deadline = time.monotonic() + seconds
    while not wanted(job := window.state()["job"]):
        assert time.monotonic() < deadline, job
        time.sleep(0.02)
    return job


def ended(window: Client) -> dict:
    return waited(window, lambda job: job["state"] not in ("running", "stopping"))


def test_only_the_jobs_of_the_list_can_be_started(window: Client) -> None:
    assert set(JOBS) == {"discover", "learn", "write", "export", "assign", "take-back"}
    for wish in ({"start": "rm"}, {"start": ["write"]}, {"start": {"name": "write"}}, {}, {"stop": True}):
        assert window.post("/api/job", wish).status == 409
    assert window.post("/api/job", {"start": "discover"}).json()["words"].startswith("Only a run of")
    assert "--assign" in window.post("/api/job", {"start": "assign"}).json()["words"]
    assert window.state()["job"] is None


def test_a_job_ends_with_what_it_has_said_and_written(window: Client, script) -> None:
    script("print('first')", "import sys; print('second', file=sys.stderr)")
    with window.events() as events:
        assert window.post("/api/job", {"start": "write"}).json()["job"]["state"] == "running"
        assert window.post("/api/job", {"start": "write"}).status == 409
        told = next(
            event
            for event in events
            if event["type"] == "job" and event["job"] and event["job"]["state"] == "done"
        )
    assert (told["job"]["lines"], told["job"]["result"]) == (["first", "second"], "x")


def test_stop_is_ctrl_c(window: Client, script) -> None:
    script(PATIENT, "print('never')")
    window.post("/api/job", {"start": "write"})
    waited(window, lambda job: job["lines"] == ["begun"])
    assert window.post("/api/job", {"stop": True}).json()["job"]["state"] == "stopping"
    job = ended(window)
    assert (job["state"], job["lines"], job["result"]) == ("stopped", ["begun", "saved"], "")


def test_learning_gives_way_to_a_job(window: Client, script, monkeypatch, tmp_path: Path) -> None:
    script("print('first')")
    (tmp_path / "patient.py").write_text(PATIENT)
    monkeypatch.setitem(JOBS, "learn", Job("Learn", lambda site: [[str(tmp_path / "patient.py")]]))
    window.post("/api/job", {"start": "learn"})
    waited(window, lambda job: job["lines"] == ["begun"])
    assert window.post("/api/job", {"start": "learn"}).status == 409
    assert window.post("/api/job", {"start": "write"}).json()["job"]["name"] == "write"
    job = ended(window)
    assert (job["name"], job["state"], job["lines"]) == ("write", "done", ["first"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "memory ran out"),
        ("import os; os.abort()", "died (signal 6)"),
        ("import sys; sys.exit('The disk is full; free some space.')", "The disk is full"),
    ],
)
def test_a_child_that_dies_leaves_the_studio_alive(
    window: Client, script, text: str, words: str, caplog
) -> None:
    """The page and the terminal say why."""
    script(text)
    window.post("/api/job", {"start": "write"})
    job = ended(window)
    assert (job["state"], words in job["lines"][-1]) == ("failed", True)
    assert words in caplog.messages[-1]
    assert window.post("/api/job", {"start": "write"}).status == 200
    ended(window)


def test_the_end_of_the_studio_stops_its_job(run: Path, script, tmp_path: Path) -> None:
    from studio.conftest import serving

    script(PATIENT)
    with serving(JobContext(run)) as server:
        window = Client(server.link).enter()
        window.post("/api/job", {"start": "write"})
        waited(window, lambda job: job["lines"] == ["begun"])
    assert (run / "studio" / "job.log").read_text().split() == ["begun", "saved"]


def test_a_program_that_is_not_there_is_said(window: Client, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "PYTHON", ["/no/such/program"])
    window.post("/api/job", {"start": "write"})
    assert "could not be started" in ended(window)["lines"][0]


def test_progress_is_what_the_process_writes(discovery: Path, serve) -> None:
    """Also of one that somebody else has started; it can be watched, and not stopped."""
    window = Client(serve(discovery).link).enter()
    heart, lock = Heartbeat(discovery), lock_folder(discovery)
    folder = discovery / "rounds" / "2" / "trainings" / "0"
    folder.mkdir(parents=True)
    lines = [{"kind": "epoch", "counter": 4 * n, "loss": 1 / n} for n in range(1, 4)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"kind": "ep')
    with lock:
        heart.tell(phase="training", step=12, steps=48, seconds_left=30.0, loss=0.5)
        job = waited(window, lambda job: job and job["curve"])
        assert (job["own"], job["phase"], job["step"], job["steps"]) == (False, "training", 12, 48)
        assert (job["seconds_left"], job["curve"]) == (30.0, [[4, 1.0], [8, 0.5], [12, 1 / 3]])
        assert window.post("/api/job", {"start": "discover"}).status == 409
        assert window.post("/api/job", {"stop": True}).status == 409
        heart.end("")
    waited(window, lambda job: job is None)


def test_an_old_curve_is_not_shown(discovery: Path) -> None:
    file = next(discovery.glob("rounds/1/metrics.jsonl"))
    assert loss_curve(discovery, file.stat().st_mtime)
    assert loss_curve(discovery, file.stat().st_mtime + 10) == []


def next_round(run: Path, images: str = "") -> list[str]:
    ((module, *words),) = JOBS["discover"].commands(JobContext(run, images))
    assert module == "holotype"
    return words


def test_a_next_round_is_the_command_of_the_last_one(discovery: Path, squares_folder: Path) -> None:
    words = next_round(discovery)
    assert words[:4] == ["discover", str(squares_folder), "--out", str(discovery)]
    assert {"--k=4", "--steps=60", "--seeds=1", "--device=cpu"} <= set(words)
    assert next_round(discovery, str(squares_folder)) == words
    other = next_round(discovery, "/elsewhere")
    assert other[1] == "/elsewhere"


def test_a_strangers_folder_starts_nothing_else(discovery: Path) -> None:
    """Neither code that it names, nor a flag instead of a folder."""
    config, source = discovery / "config.yaml", discovery / "source.json"
    text, told = config.read_text(), json.loads(source.read_text())
    config.write_text(text.replace("method: null", "method: os:system"))
    with pytest.raises(InputError, match="a method of your own"):
        next_round(discovery)
    config.write_text("- [")
    with pytest.raises(InputError, match="cannot be read"):
        next_round(discovery)
    config.write_text(text.replace("k: 4", "k: 4 --allow-code") + "allow_code: true\n")
    assert "--allow-code" not in next_round(discovery)
    source.write_text(json.dumps(told | {"images": "--allow-code"}))
    with pytest.raises(InputError, match="names no folder"):
        next_round(discovery)
    source.unlink()
    with pytest.raises(InputError, match="holotype studio PHOTOS"):
        next_round(discovery)


def test_a_source_is_read_as_it_was_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Source.of(
        "photos", labels="a b.csv", boxes="boxes.json", unlabelled=("x", "--y"), box_confidence=0.5
    )
    made.save(tmp_path)
    before = (tmp_path / "source.json").stat().st_mtime_ns
    made.save(tmp_path)
    assert Source.load(tmp_path) == made
    assert (tmp_path / "source.json").stat().st_mtime_ns == before
    assert made.arguments() == [
        f"{tmp_path}/photos", f"--labels={tmp_path}/a b.csv", f"--boxes={tmp_path}/boxes.json",
        "--unlabelled=x", "--unlabelled=--y", "--box-confidence=0.5",
    ]  # fmt: skip
    assert Source.of("s3://bucket/photos", skip_missing=True).arguments() == [
        "s3://bucket/photos",
        "--skip-missing",
    ]
    (tmp_path / "source.json").write_text("x")
    made.save(tmp_path)
    assert Source.load(tmp_path) == made


def test_a_difference_counts_images_and_categories() -> None:
    before = made_discovery(
        "r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6], "new-02": [7, 8], "new-03": [9, 10, 11]}
    )
    after = made_discovery(
        "r-2", {"a": [0, 1, 2], "new-01": [3, 4, 5, 6, 7, 8], "new-03": [9, 10], "new-04": [11]}
    )
    found = difference(before, after)
    assert found["words"] == "4 images moved, 1 category joined, 1 category split, 1 category new"
    assert (found["moved"], found["from"]) == ([3, 7, 8, 11], ["a", "new-02", "new-02", "new-03"])
    assert difference(before, before)["words"] == "nothing moved"
