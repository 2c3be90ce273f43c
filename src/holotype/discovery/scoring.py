"""Scores of a round whose images get a truth only after it was trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from holotype.clustering.metrics import has_truth, score
from holotype.data.table import Table
from holotype.results.discovery import Discovery
from holotype.runs.model_io import ModelConfig
from holotype.runs.record import SCORES_FILE, RunFolder, Scores, headline_scores


def score_round(own: Path, table: Table) -> None:
    """Score a finished round against the truth of the table, if it has one. own: folder of the round."""
    record = RunFolder(own).finished()
    if record is None or not has_truth(table):
        return
    found, index = Discovery.load(own), {id: i for i, id in enumerate(ModelConfig.read(own).ids)}
    images = found.images.set_index("path")
    table = table.take(np.isin(table.path, images.index))
    images = images.loc[table.path]
    id = images["category_id"].to_numpy(dtype=object)
    judged = dataclasses.replace(
        table,
        label=np.where(images["label"] != "", id, ""),  # a labelled image lies in its class
        known=found.known,
        problem=np.where(id == "", "in no category", ""),
    )
    scores = score(judged, [index.get(one, -1) for one in id], images["known_score"])
    if (now := Scores(**headline_scores(scores))) != record.scores:
        RunFolder(own).write_per_class(scores["per_class"])
        RunFolder(own).write_json(SCORES_FILE, dataclasses.replace(record, scores=now).as_dict())
