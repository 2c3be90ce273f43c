"""Learning at once: answers move other images, and never one that somebody has answered for."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.discovery.rounds import apply_log, round_folder
from holotype.errors import InputError
from holotype.report.build import DATA_END, DATA_START
from holotype.results.discovery import Discovery
from holotype.results.edits import PLACED_NOTE, Edit, append_edits, read_placement
from holotype.results.review_queue import question_features, rank_by_gain
from holotype.studio import app
from holotype.studio.jobs import JobContext
from holotype.studio.learn import learn_placement, place
from holotype.studio.page import build_page
from studio.client import Client
from studio.conftest import serving


def test_answers_put_others_right() -> None:
    """Two clouds lie in one category; a few images of one of them are moved to another, and the rest follows."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 100)
    x = (np.eye(3, 16)[truth] + rng.normal(scale=0.15, size=(300, 16))).astype(np.float32)
    category = np.where(truth == 2, 1, truth)
    answered = np.zeros(300, dtype=bool)
    answered[[0, 1, 100, 101, 200, 201, 202, 203]] = True
    category[200:204] = 2
    category[0] = 1  # somebody says so
    after, probability = place(x, category, ~answered, 3, np.full(300, 0.8))
    assert (after[answered] == category[answered]).all()
    assert (after[~answered] == truth[~answered]).mean() > 0.97
    assert abs(probability[~answered].mean() - 0.8) < 0.05
    assert (probability[answered] == 0.8).all()
    none, _ = place(x, category, np.zeros(300, dtype=bool), 3, np.full(300, np.nan))
    assert (none == category).all()


def answer(window: Client, run: Path, count: int, first: int = 0) -> set[int]:
    """Move images of the largest category to a new one; returns the rows."""
    found = Discovery.load(round_folder(run, 1))
    free = found.images["label"].fillna("") == ""
    largest = Counter(found.images["category_id"][free]).most_common(1)[0][0]
    rows = np.flatnonzero(free & (found.images["category_id"] == largest))[first : first + count]
    edits = [
        {"id": f"{row}", "run": found.run_id, "time": f"2026-01-01T00:00:{row:02d}.000Z", "action": "move"}
        | {"row": int(row), "category": largest, "value": "Sky"}
        for row in rows
    ]
    assert len(window.post("/api/edits", {"edits": edits}).json()["saved"]) == count
    return set(rows.tolist())


def test_the_studio_learns_after_a_few_answers(discovery: Path, monkeypatch) -> None:
    monkeypatch.setattr(app, "ANSWERS", 4)
    with serving(JobContext(discovery)) as server:
        window = Client(server.link).enter()
        assert window.get("/").status == 200
        with window.events() as events:
            time.sleep(2 * app.POLL_SECONDS)
            rows = answer(window, discovery, 4)
            placement = next(event["placement"] for event in events if event["type"] == "placement")
    assert placement["edits"] == 4
    assert placement["rows"]
    assert not rows & set(placement["rows"])
    before = Discovery.load(round_folder(discovery, 1))
    after = apply_log(discovery).discovery
    assert set(np.flatnonzero(after.images["note"] == PLACED_NOTE)) == set(placement["rows"])
    assert {after.images["category_id"][row] for row in rows} == {"Sky"}
    told = (before.images["label"].fillna("") != "").to_numpy()
    assert (before.images["category_id"][told] == after.images["category_id"][told]).all()
    assert Discovery.load(discovery).images["category_id"].equals(after.images["category_id"])


def test_what_was_answered_stays_and_other_images_move(discovery: Path) -> None:
    """Half of a category is another thing: its other half follows. Ten answers that the features contradict stay."""
    found = Discovery.load(round_folder(discovery, 1))
    images = found.images
    labelled = (images["label"].fillna("") != "").to_numpy()
    count = Counter(images["category_id"][~labelled])
    largest, *others = [id for id, _ in count.most_common() if id not in found.known]
    inside = np.flatnonzero(~labelled & (images["category_id"] == largest))
    half = inside[: len(inside) // 2]
    wrong = np.random.default_rng(0).permutation(np.setdiff1d(np.flatnonzero(~labelled), inside))[:10]
    said = [(row, "move", "Sky") for row in half] + [(row, "move", "red") for row in wrong[:4]]
    said += [(row, "confirm", "green") for row in wrong[4:8]] + [(row, "reject", "") for row in wrong[8:]]
    edits = [
        Edit(found.run_id, f"2026-01-01T00:00:{n:02d}Z", action, "", "", value, images["digest"][row])
        for n, (row, action, value) in enumerate(said)
    ]
    edits.append(Edit(found.run_id, "2026-01-01T00:01:00Z", "merge", "", others[0], "green"))
    append_edits(discovery, edits)
    before = apply_log(discovery).discovery.images["category_id"].to_numpy()
    learned = learn_placement(discovery)
    learned.save(discovery)
    assert not {*learned.queue} & {*np.flatnonzero(labelled), *half, *wrong}
    assert len(learned.queue) == len(learned.gains) > 5
    assert learned.gains == sorted(learned.gains, reverse=True)
    moved = apply_log(discovery).discovery.images["category_id"].to_numpy() != before
    answered = labelled | np.isin(np.arange(len(moved)), [*half, *wrong])
    assert answered.sum() > 30
    assert (moved[answered].sum(), moved[~answered].sum() > 0) == (0, True)


def test_the_page_begins_with_the_answers_that_gain_most(discovery: Path, tmp_path: Path) -> None:
    build_page(discovery, tmp_path)
    text = (tmp_path / "data.js").read_text().removeprefix(DATA_START).removesuffix(DATA_END)
    queue, gains = (json.loads(text)["queue"][name] for name in ("queue", "gains"))
    images = Discovery.load(round_folder(discovery, 1)).images
    features = question_features(discovery, round_folder(discovery, 1), list(images["digest"]))
    labelled = (images["label"].fillna("") != "").to_numpy()
    doubt = 1 - images["probability"].to_numpy(float)
    rows, best = rank_by_gain(features, doubt, np.flatnonzero(~labelled), np.array([], dtype=int), 1)
    assert (queue[0], gains[0]) == (rows[0], pytest.approx(best[0]))
    assert gains == sorted(gains, reverse=True)
    assert not labelled[queue].any()


def test_what_is_not_of_this_round_says_nothing(discovery: Path) -> None:
    found = learn_placement(discovery)
    found.save(discovery)
    n = len(found.probability)
    assert read_placement(discovery, found.run_id, n) == found
    assert read_placement(discovery, "another", n) is None
    assert read_placement(discovery, found.run_id, n - 1) is None
    replace(found, rows=[n], ids=["red"]).save(discovery)
    assert read_placement(discovery, found.run_id, n) is None
    (discovery / "placement.json").write_text("x")
    assert read_placement(discovery, found.run_id, n) is None
    for file in [*discovery.glob("rounds/1/features.npy"), *discovery.glob("embeddings/*.parquet")]:
        file.unlink()
    with pytest.raises(InputError, match="no features"):
        learn_placement(discovery)
