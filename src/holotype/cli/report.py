"""`holotype report`: build the report of a run, with the corrections that people made in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import Parser, add_running_flags

if TYPE_CHECKING:
    from holotype.categories.corrections import Applied
    from holotype.categories.edits import Edit


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.categories.corrections import apply_log
    from holotype.categories.edits import LOG, append_edits, read_edits
    from holotype.categories.found import Discovery
    from holotype.discovery.moved import settle
    from holotype.discovery.rounds import edits_at_home, how_many, play
    from holotype.machine.locks import hold
    from holotype.report import build_report
    from holotype.report.points import with_map

    folder, progress = Path(given.run), not given.no_progress
    Discovery.load(folder)  # before anything is touched: is it a run at all?
    with hold(folder):
        settle(folder)
        with_map(folder, device=given.device, progress=progress)
        new = None
        if given.edits:
            edits = edits_at_home(folder, read_edits(given.edits))
            new = append_edits(folder, edits)
            print(f"{given.edits}: {how_many(len(edits), len(new))}; all are kept in {folder / LOG}.")
        outcome = apply_log(folder, play(folder).before.names)
        print(told(outcome, new))
        for problem in outcome.problems:
            print(f"- {problem}")
        for line in next_round(folder, outcome):
            print(line)
        print(f"Report: {build_report(outcome.discovery, folder, progress=progress)}")
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype report",
        description="Build the report of a run, be it of holotype discover or of holotype train, with corrections. The "
        "first report of a run computes its map, which takes a while.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a finished run")
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report")
    add_running_flags(parser)
    return parser


def told(outcome: Applied, new: Sequence[Edit] | None) -> str:
    """What was done, in a line. new: edits that were not in the log before; None where no file was given."""
    held = {*outcome.discovery.facts.edits.applied}
    if new is None:
        return f"{_edits(len(held))} of the log applied." if held else "No edits to apply."
    count = sum(edit.digest in held for edit in new)
    late = sum(edit.run_id in outcome.discovery.facts.earlier_runs for edit in new)
    done = f"{_edits(count)} applied." if count else "No new edits to apply."
    return f"{done} {_edits(late)} of earlier rounds: see below what they still say." if late else done


def _edits(n: int) -> str:
    return f"{n:,} {'edit' if n == 1 else 'edits'}"


def next_round(folder: Path, outcome: Applied) -> list[str]:
    """What the edits say to another round, where there can be one and it would be told something new."""
    from holotype.discovery.rounds import waiting

    if not outcome.discovery.facts.round:
        if not outcome.confirmed:
            return []
        return ["Nothing learns from confirmed labels here: only a run of holotype discover has rounds."]
    labels, out = waiting(folder)
    words = [
        f"{n:,} {one if n == 1 else more}"
        for n, one, more in ((labels, "label", "labels"), (out, "rejected image", "rejected images"))
        if n
    ]
    if not words:
        return []
    counts = "counts" if labels + out == 1 else "count"
    return [f"{' and '.join(words)} {counts} in the next round: run the holotype discover command again."]
