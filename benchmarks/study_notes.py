"""What stands around the table of a study: above it how its runs were made, below it how to read it."""

from __future__ import annotations

from collections.abc import Iterable

from progress import progress_notes
from study_page import FACTS, PLAIN, Page, commits_of, differing

from holotype.data.benchmarks import BENCHMARKS, EMBEDDED


def footer(facts: Page) -> list[str]:
    """One paragraph; what is true of every table stands once, on the page that it links to."""
    if not facts.lines:
        return [f"Not run: {'; '.join(not_run(facts))}."]
    notes, name, reading = [], facts.study.reference, facts.choice.reading
    if facts.choice.kind == "each":
        notes.append("One number for each seed, in their order.")
    elif facts.reference:
        notes.append(f"Δ: minus {name}, paired by seed.")
    elif name:
        notes.append(f"Without differences: the reference {name} has no results here.")
    notes += published_notes(facts)
    if facts.choice.kind == "progress":
        notes += progress_notes(facts)
    if absent := not_run(facts):
        notes.append(f"Not run: {'; '.join(absent)}.")
    return [" ".join([*notes, how_to_read(reading)])]


def how_to_read(reading: str) -> str:
    return f"[How to read this table]({reading})."


def published_notes(facts: Page) -> list[str]:
    """Whose the published scores are, which of them cannot be right, and why ours do not compare with them."""
    printed = [line.found.published for line in facts.lines if line.found.published]
    if facts.choice.kind in PLAIN or not printed:
        return []
    told = [f"[Published scores]({facts.choice.reading}#published-scores) are of another backbone."]
    if any(line.found.caveat for line in facts.lines):
        told = [
            f"[Published scores]({facts.choice.reading}#published-scores) do not compare with ours: "
            f"[this backbone]({facts.choice.reading}#the-backbone) is another."
        ]
    if not all(published.lawful for published in printed):
        told.append(r"\* cannot be right as printed.")
    return told


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


def provenance(facts: Page, dataset: str) -> str:
    """How the runs were made, where that is the same for all of them, and how to make them again."""
    runs = [line.found for line in facts.lines]
    how = []
    if runs:
        same, apart = runs[0].facts, differing(facts.lines)
        blocks = f"{same['train_blocks']} trained block{'' if same['train_blocks'] == 1 else 's'}"
        words = {"mode": f"{same['mode']} mode", "epochs": f"{same['epochs']} epochs"}
        words |= {"backbone": f"backbone {same['backbone']}", "train_blocks": blocks}
        how += [", ".join([f"Data set {dataset}", *(words[key] for key in FACTS if key not in apart)])]
        how += [f"commit {commits_of((*runs, *facts.reference))}"]
        how += [", ".join(union(run.hardware for run in (*runs, *facts.reference)))]
        how = ["; ".join(how) + "."]
    return " ".join([*how, *runs_again(facts)])


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
