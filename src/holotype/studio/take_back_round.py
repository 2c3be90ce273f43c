"""Take back the last round of a discovery: `python -m holotype.studio.take_back_round RUN`.

Its folder moves to studio/taken-back/N, and the run folder shows the round before with the edits of that. Edits that
were made in the report of the round stay in the log and say nothing. A kill on the way is mended by the same command.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holotype.discovery.rounds import finished_rounds, round_folder
from holotype.errors import InputError
from holotype.results.edits import run_ids
from holotype.studio import run_as_child
from holotype.utils.atomic import refuse_links
from holotype.utils.locks import lock_folder

TAKEN_BACK = "studio/taken-back"


def round_before(run: Path) -> int:
    """Return the number of the round that is the last one afterwards; InputError where there is none."""
    rounds = finished_rounds(run)
    if rounds and not _is_shown(run, rounds[-1]):
        return rounds[-1]
    if len(rounds) < 2:
        raise InputError("There is no round before this one.")
    return rounds[-2]


def _is_shown(run: Path, number: int) -> bool:
    """Does the run folder show this round? After a kill on the way it shows one that is no longer there."""
    return run_ids(run)[:1] == run_ids(round_folder(run, number))[:1]


def take_back(run: Path) -> None:
    """Do it, and write model, discovery, assignments and report of the round before."""
    from holotype.discovery.collection import Collection, read_collection
    from holotype.discovery.pipeline import write_round_result

    with lock_folder(run):
        refuse_links(run)
        before, last = round_before(run), finished_rounds(run)[-1]
        if before != last:
            place = run / TAKEN_BACK / str(last)
            shutil.rmtree(place, ignore_errors=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(round_folder(run, last), place)
        write_round_result(run, read_collection(run) or Collection(), progress=False)
        print(f"Round {last} was taken back; round {before} counts again.")


if __name__ == "__main__":
    run_as_child(lambda run: take_back(Path(run)))
