"""The number of categories that a round is trained with."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.discovery.choose_k import COUNT_FILE, choose_k, count_categories
from holotype.discovery.constraints import Constraints
from holotype.discovery.round_runner import Round
from tests.discovery.made_round import with_edits
from tests.discovery.test_corrected_k import PLACES, found
from tests.discovery.test_corrected_k import estimate as estimate_of


def change(round: Round, **settings: object) -> Round:
    config = dataclasses.replace(round.config, **settings)
    return dataclasses.replace(round, plan=dataclasses.replace(round.plan, config=config))


def test_an_estimate_is_kept_and_made_anew_for_other_labels(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    first = count_categories(round, features)
    stored = json.loads((round.folder / COUNT_FILE).read_text())
    assert stored["best"] == first.best
    monkeypatch.setattr(
        "holotype.discovery.choose_k.estimate_table", lambda *_, **__: pytest.fail("counted again")
    )
    assert count_categories(round, features) == first
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(change(round, seed=1), features)
    (round.folder / COUNT_FILE).write_text("{")
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(round, features)


def test_a_given_k_counts_at_least_the_known_classes(round: Round, caplog) -> None:
    assert choose_k(change(round, k=4), torch.zeros(64, 8).numpy()) == (4, None)
    assert choose_k(change(round, k=1), torch.zeros(64, 8).numpy()) == (2, None)
    assert "--k 1 becomes 2" in caplog.text


def test_rejected_images_are_neither_counted_nor_trained_on(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    count_categories(round, features)
    out = frozenset(
        Path(str(path)).relative_to(round.table.root).as_posix() for path in round.table.path[:10]
    )
    less = with_edits(round, Constraints(rejected=out))
    assert less.out.tolist() == [True] * 10 + [False] * 54
    assert list(np.flatnonzero(less.active.usable)) == [*range(10, 64)]
    seen = []
    monkeypatch.setattr(
        "holotype.discovery.choose_k.estimate_table",
        lambda table, rows, *_, **__: seen.append((len(table), len(rows))),
    )
    monkeypatch.setattr("holotype.discovery.choose_k.write_count", lambda *_: None)
    count_categories(less, features)  # what was counted with them does not serve
    assert seen == [(54, 54)]


def test_corrections_decide_instead_of_the_count(round: Round, monkeypatch, caplog) -> None:
    """Twelve were counted and five are left: five are trained with."""
    seen = []

    def estimate(table, *_, **__):
        seen.append(int(table.labelled.sum()))
        return estimate_of(12)

    monkeypatch.setattr("holotype.discovery.choose_k.estimate_table", estimate)
    monkeypatch.setattr("holotype.discovery.choose_k.write_count", lambda *_: None)
    came, picked = round.table.label, round.table.label.copy()
    free = np.flatnonzero(came == "")[:3]
    picked[free] = round.table.known[0]
    paths = [Path(str(path)).relative_to(round.table.root).as_posix() for path in round.table.path]
    places = [dict(zip(("cat", "dog"), round.table.known, strict=True)).get(place, place) for place in PLACES]
    before = found([*places, *["new-01"] * (len(paths) - len(places))], round.table.known, counted=12)
    before.images["path"] = paths
    table = dataclasses.replace(round.table, label=picked)
    given = Constraints(labels={paths[row]: round.table.known[0] for row in free})
    corrected = with_edits(dataclasses.replace(round, table=table), given, before)
    with caplog.at_level(logging.INFO):
        k, _ = choose_k(corrected, np.zeros((len(paths), 2), np.float32))
    assert k == 5
    assert seen == [int((came != "").sum())]
    assert "Corrections have left 5 categories. Training with 5." in caplog.text
    k, _ = choose_k(with_edits(corrected, Constraints(), before), np.zeros((len(paths), 2), np.float32))
    assert k == 12
