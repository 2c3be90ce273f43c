"""`holotype data`: the data sets, and whether a copy of one is complete."""

from __future__ import annotations

from collections.abc import Sequence

from holotype.cli.common import Parser, echo
from holotype.data.datasets.registry import BENCHMARKS, check_benchmark, read_dataset_info


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    if given.command == "check":
        report = check_benchmark(given.name, given.root)
        echo(report)
        return 0 if report.ok else 2
    echo(datasets_text())
    return 0


def make_parser() -> Parser:
    parser = Parser(prog="holotype data", description="The data sets, and whether a copy of one is complete.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    checked = "say what is there, what is missing and where it comes from"
    checker = commands.add_parser("check", help=checked, description=_sentence(checked))
    checker.add_argument("name", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    checker.add_argument("--root", metavar="DIR", help="folder of the data set, in its official layout")
    listed = "name the data sets and where they come from (also without COMMAND)"
    commands.add_parser("list", help=listed, description=_sentence(listed))
    return parser


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def datasets_text() -> str:
    lines = []
    for name in BENCHMARKS:
        facts = read_dataset_info(name)
        lines.append(
            f"{name:<15} {facts.title}; {len(facts.split.known)} of {facts.classes} classes known; "
            f"{facts.origin}"
        )
    return "\n".join(lines)
