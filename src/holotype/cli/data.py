"""`holotype data`: the data sets, and whether a copy of one is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from holotype.cli.common import Dir, Parser, echo
from holotype.data.datasets.registry import BENCHMARKS, check_benchmark, read_dataset_info
from holotype.errors import InputError


@dataclass
class DataOptions:
    """Name the data sets and where they come from; or, with check NAME, say what is there, what is missing and where it
    comes from."""

    action: Annotated[Literal["list", "check"], "[COMMAND]"] = "list"
    """What to do."""
    name: Annotated[str, "[NAME]"] | None = None
    """With check: the data set."""
    root: Dir | None = None
    """With check: folder of the data set, in its official layout."""


def make_parser() -> Parser:
    return Parser("data", DataOptions)


def command(argv: Sequence[str]) -> int:
    options: DataOptions = make_parser().parse_args(argv)
    if options.action == "list":
        if options.name or options.root:
            raise InputError("A name and --root belong to check; write holotype data check NAME --root DIR.")
        echo(datasets_text())
        return 0
    if options.name is None:
        raise InputError(f"holotype data check needs a NAME: {', '.join(BENCHMARKS)}.")
    report = check_benchmark(options.name, options.root)
    echo(report)
    return 0 if report.ok else 2


def datasets_text() -> str:
    lines = []
    for name in BENCHMARKS:
        facts = read_dataset_info(name)
        lines.append(
            f"{name:<15} {facts.title}; {len(facts.split.known)} of {facts.classes} classes known; "
            f"{facts.origin}"
        )
    return "\n".join(lines)
