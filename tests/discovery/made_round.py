"""A small discovery made by hand, and edits of one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from holotype.discovery.constraints import Constraints
from holotype.discovery.plan import Round
from holotype.discovery.rounds import EditHistory
from holotype.results.discovery import Category, Discovery, RunFacts
from holotype.results.edits import AppliedEdits, Edit, edits_csv

PATHS = [f"photos/{i:02d}.png" for i in range(12)]


def made_discovery(
    run: str, groups: dict[str, list[int]], known: tuple[str, ...] = ("a",), paths: Sequence[str] = PATHS
) -> Discovery:
    """groups: category id and the numbers of its images."""
    id_of = {i: id for id, rows in groups.items() for i in rows}
    ids = [id_of[i] for i in range(len(paths))]
    frame = pd.DataFrame({"path": list(paths), "label": "", "category": ids, "category_id": ids})
    frame["kind"] = ["known" if id in known else "novel" for id in ids]
    frame = frame.assign(
        probability=0.9, known_score=0.5, typicality=0.5, doubtful=False, x=0.0, y=0.0, problem="", note=""
    )
    categories = [
        Category(id, id, "known" if id in known else "novel", len(rows), signature=[0.5] * len(known))
        for id, rows in groups.items()
    ]
    return Discovery(run, known, frame, categories, None, RunFacts(round=1))


def with_edits(round: Round, given: Constraints, before: Discovery | None = None) -> Round:
    """A round to which edits say something. before: the round before, as corrected."""
    history = EditHistory(given=given, applied=AppliedEdits(before) if before else None)
    return replace(round, history=history)


def edits_file(run: Path, *rows: tuple[str, str, str, str]) -> Path:
    run_id = Discovery.load(run).run_id
    edits = [Edit(run_id, f"2026-01-01T00:00:{i:02d}Z", *row) for i, row in enumerate(rows)]
    path = run.parent / "edits.csv"
    path.write_text(edits_csv(edits), encoding="utf-8")
    return path
