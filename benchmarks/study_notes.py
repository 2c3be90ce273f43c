"""What stands below the table of a study: how to read it, what was not run, and how its runs were made."""

from __future__ import annotations

from collections.abc import Iterable

from progress import progress_notes
from study_page import FACTS, PLAIN, Page, commits_of, differing

from holotype.data.benchmarks import BENCHMARKS, EMBEDDED
from holotype.runs.tables import footnotes


def footer(facts: Page) -> list[str]:
    notes, name = [], facts.study.reference
    if facts.lines:
        shown = [line.found for line in facts.lines]
        notes += [note for note in footnotes(shown, caveats=facts.choice.kind not in PLAIN) if note]
    if facts.choice.kind == "each" and facts.lines:
        notes = [
            "All, Old, New: per cent of the unlabelled training images, one global assignment, last epoch; one number "
            "for each seed, in their order."
        ]
    elif facts.lines and facts.reference:
        notes.append(
            f"Δ: difference from {name} in points, paired by seed: mean ± standard deviation (ddof 1), and how many "
            "of the seeds that both have share the sign of the mean."
        )
    elif facts.lines and name:
        notes.append(f"Without differences: the reference {name} has no results here.")
    if facts.lines and facts.choice.kind == "progress":
        notes += progress_notes(facts)
    if absent := not_run(facts):
        notes.append(f"Not run: {'; '.join(absent)}.")
    return [*notes, provenance(facts)]


def not_run(facts: Page) -> list[str]:
    """Rows without results, and rows that lack seeds."""
    told = []
    for row in facts.rows:
        done = {seed for line in facts.lines if line.row.name == row.name for seed in line.found.seeds}
        missing = [str(seed) for seed in row.seeds if seed not in done]
        if not done:
            told.append(row.name)
        elif missing:
            told.append(f"{row.name}, seed{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
    return told


def provenance(facts: Page) -> str:
    """How the runs were made, where that is the same for all of them, and how to make them again."""
    runs = [line.found for line in facts.lines]
    how = []
    if runs:
        same, apart = runs[0].facts, differing(facts.lines)
        blocks = f"{same['train_blocks']} trained block{'' if same['train_blocks'] == 1 else 's'}"
        words = {"mode": f"{same['mode']} mode", "epochs": f"{same['epochs']} epochs"}
        words |= {"backbone": f"backbone {same['backbone']}", "train_blocks": blocks}
        how += [", ".join(words[key] for key in FACTS if key not in apart)]
        how += [f"commit {commits_of((*runs, *facts.reference))}"]
        how += [", ".join(union(run.hardware for run in (*runs, *facts.reference)))]
        how = ["; ".join(part for part in how if part) + "."]
        how[0] = how[0][0].upper() + how[0][1:]
    return " ".join([*how, *runs_again(facts), "Table: `python benchmarks/exhibits.py`."])


def runs_again(facts: Page) -> list[str]:
    """The command that makes the runs again, as far as this version can."""
    past = [row.name for row in facts.rows if row.record]
    told = [f"Runs: `{command(facts)}`."] if len(past) < len(facts.rows) else []
    if past:
        at = f" They belong to commit {facts.study.commit}." if facts.study.commit else ""
        told.append(f"This version does not make {', '.join(past)}: settings or revision are gone.{at}")
    return told


def command(facts: Page) -> str:
    words = ["holotype bench --study", f"experiments/{facts.study.name}.yaml"]
    words += (
        [f"--rows {','.join(row.name for row in facts.rows if not row.record)}"] if facts.choice.rows else []
    )
    if facts.choice.seeds:
        words.append(f"--seeds {','.join(map(str, facts.choice.seeds[0]))}")
    datasets = {dataset for row in facts.rows for dataset in row.datasets}
    if any(dataset in BENCHMARKS and dataset not in EMBEDDED for dataset in datasets):
        words.append("--root DIR")
    if any(line.found.facts["backbone"] != "embedded" for line in facts.lines):
        words.append("--set backbone.name=BACKBONE")
    return " ".join(words)


def union(sets: Iterable[Iterable[str]]) -> list[str]:
    return sorted({one for each in sets for one in each})
