"""A run in which nothing was learned is told by its losses and by where its images are."""

import json

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.methods.simgcd import SimGCD
from holotype.runs.predict import Predictions
from holotype.runs.run import collapse_signs, run_experiment
from holotype.utils.serialization import read_json

TABLE = Table.from_columns({"path": list("abcdef"), "label": ["x", "y", "", "", "", ""]})


def signs(category, losses=(), k=4, folder=None, terms=("a", "b")):
    said = Predictions(np.array(category), np.ones(6, np.float32), np.ones(6, np.float32))
    lines = [{"kind": "epoch", "stage": "train", "loss": a + b, "a": a, "b": b} for a, b in losses]
    file = folder / "metrics.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return collapse_signs(TABLE, said, k, file, terms)


@pytest.mark.parametrize(
    ("category", "k", "word"),
    [
        ([0, 1, 2, 3, 0, 1], 4, None),
        ([0, 1, 2, -1, 0, 1], 4, None),
        ([0, 1, 0, 1, 0, 1], 4, "known classes"),
        ([0, 1, 0, 1, 0, 1], 2, None),
        ([0, 1, 2, 2, 2, 2], 4, "in one category"),
        ([0, 1, 2, 3, 2, 3], 4, "in new categories"),
    ],
)
def test_images_in_one_place(tmp_path, category, k, word):
    found = signs(category, k=k, folder=tmp_path)
    assert [word in sign for sign in found] == ([True] if word else [])


def test_a_term_that_stands_still_is_named_but_not_one_that_is_off(tmp_path):
    spread, falling = [0, 1, 2, 3, 0, 1], [5.0, 4.0, 3.5]
    flat = signs(spread, [(4.8, value) for value in falling], folder=tmp_path)
    assert len(flat) == 1
    assert "term a" in flat[0]
    assert signs(spread, [(0.0, value) for value in falling], folder=tmp_path) == []
    assert signs(spread, [(4.8, value) for value in falling[:2]], folder=tmp_path) == []
    assert "The loss stayed" in signs(spread, [(4.8, 0.0)] * 3, folder=tmp_path)[0]


def test_the_record_of_a_collapsed_run_says_so(tiny, monkeypatch):
    """The classifier's bias to the known classes is all that counts."""
    monkeypatch.setattr(SimGCD, "logits", lambda self, f: -f.new_tensor([0.0, 1, 2, 3]).expand(len(f), 4))
    experiment = tiny("simgcd")
    record = run_experiment(experiment)
    assert ["in one category" in warning for warning in record.warnings] == [True]
    assert tuple(read_json(experiment.folder / "scores.json")["warnings"]) == record.warnings
    assert run_experiment(experiment) == record
