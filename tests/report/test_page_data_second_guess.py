"""The second guess of an image is the nearest category that is not its own."""

from __future__ import annotations

import numpy as np

from holotype.report.page_data import runner_up
from report.made import make_discovery


def test_the_second_guess_is_the_nearest_other_centre(tmp_path):
    """Three groups on a line: the middle one is the second guess of both others."""
    found = make_discovery(tmp_path, 30, known=1, novel=2)
    angle = {"Sneaker": 0.0, "new-01": 0.5, "new-02": 1.2}
    turn = np.array([angle[id] for id in found.images["category_id"]])
    features = np.stack([np.cos(turn), np.sin(turn)], axis=1).astype(np.float16)
    rows = np.arange(30)
    guess = runner_up(found, rows, features)
    names = [found.categories[g].id for g in guess]
    expected = {"Sneaker": "new-01", "new-01": "Sneaker", "new-02": "new-01"}
    assert names == [expected[id] for id in found.images["category_id"]]
    assert runner_up(found, rows, None) == [-1] * 30
