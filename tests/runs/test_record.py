"""What a run says of itself: scores made by hand, a record that survives a file, and nothing less for one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holotype.clustering.metrics import SCORES, clustering_accuracy, score
from holotype.data.image_store import ImageStore
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.methods import Prediction
from holotype.runs.record import (
    AssignedCounts,
    Record,
    Scores,
    check_law,
    count_assigned,
    score_held_out,
    score_table,
)
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from holotype.runs.run import Run, begin_run, finish_run
from holotype.training.views import evaluation_features
from holotype.utils.serialization import read_json
from tests.training.conftest import N_KNOWN
from tests.training.conftest import world as world  # the fixture of the folder train


def small_table(label: str = "a") -> Table:
    columns = [["0.png", "1.png", "2.png"], [label, "b", ""]]
    return Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name="three")


# -- scores -------------------------------------------------------------------------------------------


def test_without_truth_every_score_is_none():
    nowhere = torch.full((3,), float("nan"))
    found = score_table(small_table(), Prediction(torch.tensor([0, 1, 2]), nowhere, nowhere))
    assert {key: found[key] for key in SCORES} == dict.fromkeys(SCORES)
    assert (found["n"], found["per_class"]) == (0, [])


@pytest.fixture(scope="module")
def trained(world):
    loop = world.loop("kmeans", k=5)
    return loop, loop.fit()


def test_with_truth_the_scores_are_those_of_evaluate(world, trained):
    _, prediction = trained
    assert score_table(world.table, prediction) == score(
        world.table, prediction.category.numpy(), prediction.known_score.numpy()
    )


@pytest.fixture
def held_out_table(world, tmp_path) -> Table:
    """21 of the training images without their labels, and a file among them that is no image."""
    (tmp_path / "broken.png").write_text("no image")
    rows = np.arange(1, 43, 2)
    path = np.array([*world.table.path[rows[:9]], str(tmp_path / "broken.png"), *world.table.path[rows[9:]]])
    truth = [f"colour {row // 12}" for row in rows]
    truth.insert(9, "colour 1")
    blank = np.full(len(path), "", dtype=object)
    return Table(path, blank, world.table.known, truth=np.array(truth, dtype=object), name="held out")


def test_held_out_images_are_scored_as_by_hand(world, trained, held_out_table):
    loop, _ = trained
    source = loop.source
    found = score_held_out(loop, *readable(held_out_table))
    rows = torch.arange(1, 43, 2)
    features = evaluation_features(source, rows)
    true = rows.numpy() // 12
    category = [int(loop.method.predict(feature[None]).category) for feature in features]
    accuracy = clustering_accuracy(true, category, N_KNOWN)
    assert found.n == 21  # all but the broken one
    assert (found.all, found.old, found.new) == (accuracy.all, accuracy.old, accuracy.new)
    known = true < N_KNOWN
    assert found.share_old == known.mean()
    assert found.known_accuracy == (np.array(category)[known] == true[known]).mean()
    assert loop.source is source  # the loop goes on with its own images


def readable(table: Table) -> tuple[Table, ImageStore]:
    store = ImageStore.decode(list(table.path), 32, progress=False)
    return table.with_problems(store.problem), store


def test_held_out_images_that_cannot_be_read_at_all(trained, tmp_path):
    loop, _ = trained
    (tmp_path / "broken.png").write_text("no image")
    columns = [[str(tmp_path / "broken.png")], [""]]
    test = Table(
        *(np.array(x, dtype=object) for x in columns),
        known=loop.table.known,
        truth=np.array(["colour 0"], dtype=object),
    )
    found = score_held_out(loop, *readable(test))
    assert (found.n, found.all) == (0, None)


# -- the record of a run ------------------------------------------------------------------------------


@pytest.fixture
def made(squares_folder, tiny_backbone_file, tmp_path):
    """The record of a short run."""

    def make(
        method: str = "simgcd", dataset: Path = squares_folder / "squares.csv", **settings: Any
    ) -> Record:
        overrides: dict[str, Any] = {"k": 4, "device": "cpu", "progress": False, "out": str(tmp_path / "run")}
        overrides |= {"backbone.name": str(tiny_backbone_file), "train.batch_size": 16, "cache_views": "off"}
        overrides |= {"train.epochs": 1}
        overrides |= {key.replace("__", "."): value for key, value in settings.items()}
        run = begin_run(resolve(method, str(dataset), overrides=overrides), ResourceCache())
        assert isinstance(run, Run)
        return finish_run(run, run.loop.fit(), 1.25, parallel=1)

    return make


@pytest.mark.parametrize(
    ("method", "train_epochs", "epochs"),
    [("kmeans", 2, 0), ("simgcd", 3, 3), ("tests.training.stubs:TwoStages", 9, 2 + 1)],
)
def test_epochs_are_those_of_all_stages(made, method, train_epochs, epochs):
    assert made(method, train__epochs=train_epochs).made.epochs == epochs


def test_a_record_says_what_was_run_and_how_it_was_scored(made, tmp_path):
    found = made(seed=3, out=str(tmp_path / "one"))
    identity = found.identity
    assert (identity.method["name"], identity.data["name"], identity.seed) == ("simgcd", "squares", 3)
    assert (identity.backbone["name"], identity.backbone["train_blocks"]) == ("tiny", 1)
    assert (identity.train["precision"], identity.views, identity.data["k"]) == ("fp32", "off", 4)
    how = found.made
    assert (how.variant, how.mode, how.captured, how.processes, how.parallel) == (
        "default",
        "exact",
        {"train": False},
        1,
        1,
    )
    assert (how.seconds, how.cache_seconds) == (1.2, 0.0)
    r = found.scores.share_old
    assert (found.scores.n, r) == (48, 1 / 3)
    assert found.scores.all == pytest.approx(r * found.scores.old + (1 - r) * found.scores.new, abs=1e-12)
    assert found.placed is not None
    assert found.placed.known + found.placed.novel == 48
    assert found.test is None
    assert found.key == (identity.hash, 3)
    assert read_json(tmp_path / "one" / "scores.json") == found.as_dict()
    other_seed, other_rate = (
        made(seed=4, out=str(tmp_path / "two")),
        made(seed=3, train__lr=0.7, out=str(tmp_path / "three")),
    )
    assert other_seed.identity.hash == identity.hash
    assert other_rate.identity.hash != identity.hash


def test_a_label_names_the_variant_and_changes_nothing_else(made, tmp_path):
    plain, labelled = (made(label=label, out=str(tmp_path / str(label))) for label in (None, "no-new"))
    assert (plain.made.variant, labelled.made.variant) == ("default", "no-new")
    assert timeless(plain, variant="no-new") == timeless(labelled)


def timeless(record: Record, **made: Any) -> Record:
    clocks = dict.fromkeys(("seconds", "wall_seconds", "decode_seconds", "cache_seconds"), 0.0)
    return dataclasses.replace(record, made=dataclasses.replace(record.made, **clocks, **made))


def test_where_the_unlabelled_images_went():
    """Two known classes; images 0 and 7 do not count, since they are labelled; 5 and 7 cannot be read."""
    label, problem = ["a", *[""] * 6, "b"], ["", "", "", "", "", "cut short", "", "cut short"]
    path = [f"{i}.png" for i in range(8)]
    columns = (np.array(x, dtype=object) for x in (path, label))
    table = Table(*columns, ("a", "b"), problem=np.array(problem, dtype=object))
    category = torch.tensor([0, 1, 0, 5, 5, -1, 2, -1])
    found = count_assigned(table, Prediction(category, torch.ones(8), torch.ones(8)))
    assert found == AssignedCounts(known=2, novel=3, novel_categories=2, unreadable=1)


def test_a_folder_without_truth_gives_a_record_without_scores(made, squares_folder):
    assert load_table(squares_folder).truth is None
    found = made(dataset=squares_folder)
    assert found.scores == Scores(None, None, None, None, 0)
    assert found.placed is not None
    check_law(found.scores, "")
