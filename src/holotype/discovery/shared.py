"""What the run folder has of its last round: model, features and scores, looked at before they are shared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holotype.discovery.rounds import round_folder
from holotype.errors import InputError
from holotype.models.weights_io import weights_digest
from holotype.results.features import FEATURES, checked_features
from holotype.runs.model_io import MODEL_CONFIG_FILE as MODEL
from holotype.runs.model_io import MODEL_WEIGHTS_FILE
from holotype.runs.run_folder import SCORES_FILE, RunFolder
from holotype.utils.atomic import atomic_write

SHARED = (MODEL_WEIGHTS_FILE, MODEL, FEATURES, "provenance.json", SCORES_FILE)
"""What the run folder has of its last round."""


def share_round(folder: Path, number: int) -> None:
    """Let the run folder have the model and the features of a round: as hard links, or else as copies.

    They are looked at before, since nothing else of a discovery reads all of them: damage is not to spread. Features
    can be done without, so that damaged ones are told and stay where they are.
    """
    check_whole(round_folder(folder, number))
    for name in SHARED:
        source, target = round_folder(folder, number) / name, folder / name
        if not source.is_file() or (target.is_file() and os.path.samefile(source, target)):
            continue
        if name != FEATURES or checked_features(source) is not None:
            _link(source, target)


def check_whole(own: Path) -> None:
    """Raise InputError where scores or model of a round were changed since they were written."""
    told = {name: RunFolder(own).read_json(name) for name in (SCORES_FILE, MODEL) if (own / name).is_file()}
    model, weights = told.get(MODEL), own / MODEL_WEIGHTS_FILE
    wanted = model.get("weights") if isinstance(model, dict) else None
    if wanted and weights.is_file() and weights_digest(weights) != wanted:
        raise InputError(
            f"{weights} is not the one that {MODEL} was written with; restore both from a copy, or choose another "
            "--out."
        )


def _link(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.link")
    try:
        beside.unlink(missing_ok=True)
        os.link(source, beside)
    except OSError:  # another disk, or one without hard links

        def copy(part: Path) -> None:
            shutil.copyfile(source, part)

        atomic_write(target, copy)
    else:
        os.replace(beside, target)
