"""`holotype report`: build the report of a run, with the corrections that people made in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.words import Parser, add_running_flags


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.categories.corrections import apply_log
    from holotype.categories.edits import LOG, append_edits, read_edits
    from holotype.categories.found import Discovery
    from holotype.discovery.moved import at_home
    from holotype.machine.locks import hold
    from holotype.report import build_report
    from holotype.report.points import with_map

    folder, progress = Path(given.run), not given.no_progress
    found = Discovery.load(folder)  # before anything is touched: is it a run at all?
    with hold(folder):
        with_map(folder, device=given.device, progress=progress)
        if given.edits:
            edits = at_home(read_edits(given.edits), found)
            new = append_edits(folder, edits)
            print(
                f"{given.edits}: {len(edits)} edits, {len(new)} of them new; all are kept in {folder / LOG}."
            )
        outcome = apply_log(folder)
        print(told(outcome.count, len(outcome.confirmed)))
        for problem in outcome.problems:
            print(f"- {problem}")
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


def told(count: int, confirmed: int) -> str:
    """What was done, in a line or two."""
    lines = [f"{count} {'edit' if count == 1 else 'edits'} applied." if count else "No edits to apply."]
    if confirmed:
        lines.append(
            f"{confirmed} confirmed {'label counts' if confirmed == 1 else 'labels count'} in the next round: "
            "run the holotype discover command again."
        )
    return "\n".join(lines)
