"""`holotype doctor`: what there is here and whether it works, to be pasted into a report of a fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holotype.cli.words import Parser, say, say_json


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.cli import DONE, NOT_WELL
    from holotype.discovery.checkup import examine

    facts = examine(paths=given.paths)
    if given.json:
        say_json(facts)
    else:
        say(in_words(facts))
    return DONE if facts["self-test"]["passed"] else NOT_WELL


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype doctor",
        description="Check the installation: versions, hardware, whether the Hugging Face hub answers, what auto means "
        "here, and whether embedding a few images works (5 seconds at most). The output contains neither your name nor "
        "your folders. Exit code 3: the self-test failed.",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--paths", action="store_true", help="show the full paths of folders")
    return parser


def in_words(facts: Mapping[str, Any]) -> str:
    """A chapter for each kind of fact."""
    lines = []
    for chapter, content in facts.items():
        lines.append(chapter)
        if chapter == "gpus":
            lines += [f"  {gpu['name']}, {gpu['memory']}, {gpu['free']} free" for gpu in content] or [
                "  none"
            ]
        else:
            lines += [f"  {name}: {_told(value)}" for name, value in content.items()]
    return "\n".join(lines)


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_told(one)}" for name, one in value.items())
    return str(value)
