"""`holotype report`: build the report of a run again, with the corrections that people made in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.words import Parser


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.categories.corrections import apply_log
    from holotype.categories.edits import LOG, append_edits, read_edits
    from holotype.categories.found import Discovery
    from holotype.report import build_report

    folder = Path(given.run)
    Discovery.load(folder)  # before the log is touched: is it a run at all?
    if given.edits:
        edits = read_edits(given.edits)
        new = append_edits(folder, edits)
        print(f"{given.edits}: {len(edits)} edits, {len(new)} of them new; all are kept in {folder / LOG}.")
    outcome = apply_log(folder)
    print(told(outcome.count, len(outcome.confirmed)))
    for problem in outcome.problems:
        print(f"- {problem}")
    print(f"Report: {build_report(outcome.discovery, folder, progress=given.progress)}")
    return 0


def make_parser() -> Parser:
    parser = Parser(prog="holotype report", description="Build the report of a run again, with corrections.")
    parser.add_argument("run", metavar="RUN", help="folder that holotype discover wrote")
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report")
    parser.add_argument("--no-progress", dest="progress", action="store_false", help="show no bars")
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
