"""Edits applied to a discovery: names, merges, moves and rejections count at once. What they say to the next round
is told by discovery/constraints.py.

Pure, and safe to repeat: facts.edits of a discovery says which edits it has dealt with. Where two edits
contradict each other the later one counts, and both are told; what cannot be applied is told and stays in the log.
The report does the same in the browser (report/corrections.js); tests/categories/golden_edits.json binds the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holotype.categories.edits import Edit, log_locked, read_log, run_ids
from holotype.categories.found import Discovery
from holotype.categories.standing import CannotApply, Standing
from holotype.categories.wording import named_since


@dataclass
class Applied:
    """What came of applying edits."""

    discovery: Discovery
    """As corrected. facts.edits says which edits it holds, and what was merged, rejected and confirmed."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Path to the id of the category, or to the label, that was confirmed."""
    problems: list[str] = field(default_factory=list)
    """A sentence for each edit that could not be applied, or that another one contradicts."""
    left: list[str] = field(default_factory=list)
    """Those of them that say why an edit could not be applied."""
    count: int = 0
    """Edits that were applied this time."""
    refused: list[int] = field(default_factory=list)
    """Positions, in the edits given, of those that could not be applied."""


def apply_edits(discovery: Discovery, edits: Sequence[Edit]) -> Applied:
    """The discovery as corrected by the edits in their order, each only once; the given one is not changed."""
    standing = Standing(discovery)
    earlier = set(discovery.facts.earlier_runs)
    foreign = _of_other_runs(discovery, edits)
    outcome = Applied(discovery, problems=list(foreign), left=list(foreign))
    for position, edit in enumerate(edits):
        if edit.run_id in earlier or standing.knows(edit):
            continue
        if edit.run_id != discovery.run_id:
            outcome.refused.append(position)
            continue
        try:
            remark = standing.apply(edit)
        except CannotApply as reason:
            outcome.refused.append(position)
            outcome.left.append(f"{said(edit)} was not applied: {reason}.")
            outcome.problems.append(outcome.left[-1])
            continue
        outcome.count += 1
        if remark:
            outcome.problems.append(f"{said(edit)} was applied, but {remark}.")
    outcome.confirmed = standing.labels()
    outcome.discovery = standing.result()
    return outcome


def apply_log(folder: Path, names: Mapping[str, str] | None = None) -> Applied:
    """Apply the log of a run folder to what its last round found, and save the outcome in the folder.

    What a round found lies untouched in rounds/N; without that, the discovery in the folder is corrected further.
    names: by id, those that edits of the rounds before have given.
    """
    with log_locked(folder):  # else the outcome of an older log could be written over that of a newer one
        found = Discovery.load(folder)
        kept = folder / "rounds" / str(found.facts.round)
        if run_ids(kept)[:1] == [found.run_id]:
            found = named_since(Discovery.load(kept), names or {})
        outcome = apply_edits(found, read_log(folder))
        if outcome.count or outcome.refused:
            outcome.discovery.save(folder)
    return outcome


def said(edit: Edit) -> str:
    """An edit as the beginning of a sentence."""
    what = f"{edit.action.capitalize()} of {edit.image or edit.category!r}"
    joint = {"rename": "to", "merge": "into", "move": "to", "confirm": "as"}.get(edit.action)
    return f"{what} {joint} {edit.value!r}" if joint else what


def _of_other_runs(discovery: Discovery, edits: Sequence[Edit]) -> list[str]:
    """A sentence for every run unheard of."""
    own = {discovery.run_id, *discovery.facts.earlier_runs}
    foreign = Counter(edit.run_id for edit in edits if edit.run_id not in own)
    return [
        f"{n} {'edit' if n == 1 else 'edits'} of run {run!r} cannot be applied: there is no such run here."
        for run, n in foreign.items()
    ]
