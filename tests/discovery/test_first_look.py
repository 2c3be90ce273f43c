"""The gallery before training: classes keep their images, the others lie in clusters that are there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holotype.data.table import Table
from holotype.discovery import first_look
from holotype.discovery.first_look import FIRST_LOOK_FILE, write_first_look


@pytest.mark.parametrize("clustered", [20_000, 60])
def test_clusters_are_found_and_named_by_size(tmp_path, monkeypatch, clustered) -> None:
    monkeypatch.setattr(first_look, "CLUSTERED", clustered)
    truth = np.repeat([0, 1, 2, 3], [30, 20, 25, 40])
    rng = np.random.default_rng(0)
    features = (np.eye(8)[truth] + 0.05 * rng.normal(size=(len(truth), 8))).astype(np.float32)
    label = np.where((np.arange(len(truth)) % 3 == 0) & (truth < 2), np.array(list("abcd"))[truth], "")
    path = np.array([f"{i}.png" for i in range(len(truth))], dtype=object)
    table = Table(path, label.astype(object), ("a", "b"), name="made")
    problem = np.full(len(truth), "", dtype=object)
    problem[7] = "is gone"
    file = write_first_look(tmp_path / "new", table.with_problems(problem), features, 4, seed=0)
    assert file.name == FIRST_LOOK_FILE
    frame = pd.read_parquet(file)
    rows = np.delete(np.arange(len(truth)), 7)
    assert list(frame.path) == list(path[rows])
    names = np.array(["a", "b", "look-02", "look-01"])
    assert list(frame.category) == list(names[truth[rows]])
    assert list(frame.kind) == ["known" if t < 2 else "novel" for t in truth[rows]]
    assert frame.cosine.between(0.8, 1.001).all()
