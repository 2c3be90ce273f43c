"""What a line of `holotype bench` would run."""

from __future__ import annotations

from holotype.cli.bench import experiments_of, make_parser, read_studies
from holotype.runs.experiment import Experiment


def benched(*words: str) -> list[Experiment]:
    """All runs, study by study. words: of the command, without its name."""
    given = make_parser().parse_args(words)
    return [made for study in read_studies(given) for made in experiments_of(study, given)]
