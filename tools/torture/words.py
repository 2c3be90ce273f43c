"""Command lines that nobody would type: 0 or 2, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.torture.child import Ended
from tools.torture.compare import differences
from tools.torture.harness import Campaign, Case
from tools.torture.mutate import TEXTS
from tools.torture.world import World, untouched

# fmt: off
NUMBERS = (
    "0", "-0", "-1", "1", "2", "1e9", "1e308", "1e309", "-1e309", "nan", "inf", "-inf", "1e-320", "0.1",
    "0.5", "9" * 30, "2147483648", "-9223372036854775809", "0x10", "1_000", "１", "١", "1,5", "1/2", "+3",
    "true", "null",
)
COMMANDS = (
    "discover", "report", "assign", "write", "estimate-k", "embed", "export", "train", "bench", "methods",
    "data", "--version", "--help", "demo!", "", "-", "--",
)
# fmt: on
QUICK = {"discover": ("--no-progress", "--steps", "2"), "report": ("--no-progress",)}
"""What comes first, so that a line in which nothing is odd takes no minutes; what the line itself says counts."""


def _flags(command: str) -> list[str]:
    """Those that a command has, from its own help."""
    import importlib
    import re

    if command == "train":
        from holotype.runs.experiment import default_experiment, setting_values

        keys = [key for key, _, _ in setting_values(default_experiment("simgcd", "images"))]
        return [
            *(f"--{key}" for key in keys),
            "--config",
            "--preset",
            "--no_progress",
            "--help",
            "--print_config",
        ]
    try:
        module = importlib.import_module(f"holotype.cli.{command.replace('-', '_')}")
        text = module.make_parser().format_help()
    except (ImportError, AttributeError):
        return ["--help"]
    return sorted(set(re.findall(r"--[a-z][\w.-]*", text)))


def _places(world: World) -> list[str]:
    """What words may name: things that are there, and things that are not what they should be."""
    own = world.trial
    return [
        *(
            str(world.images),
            str(world.listed),
            str(own / "run"),
            str(world.backbone),
            str(own / "out" / "new"),
        ),
        *(
            str(own),
            str(own / "nowhere"),
            "/dev/null",
            "/proc/self/mem",
            str(own / "empty"),
            ".",
            "run",
            "out/x.csv",
        ),
    ]


def _lines(world: World, seed: int) -> Iterator[Case]:
    dice = random.Random(f"words {seed}")
    flags = {command: _flags(command) for command in COMMANDS}
    for number in range(1_000_000):
        command = dice.choice(COMMANDS)
        words = [command]
        for _ in range(dice.randrange(0, 3)):
            words.append(
                dice.choice([*_places(world), *_places(world), dice.choice(TEXTS), "simgcd", "rpc", "check"])
            )
        for _ in range(dice.randrange(0, 5)):
            flag = dice.choice(flags[command])
            words.append(flag if dice.random() < 0.9 else flag[: dice.randrange(2, len(flag) + 1)])
            if dice.random() < 0.8:
                words.append(
                    dice.choice(
                        [*NUMBERS, *TEXTS, *_places(world), "simgcd", "cpu", "cuda", "auto", "embedded"]
                    )
                )
        words = [word.replace("\x00", "") for word in words]  # no system passes these on
        yield Case(
            str(number),
            [word for word in words if word.isprintable() or "\x1b" in word or dice.random() < 0.5],
        )


def _line(world: World, case: Case) -> list[str]:
    world.fresh("run")
    (world.trial / "empty").mkdir()
    before = untouched(world)
    first, rest = case.what[:1], case.what[1:]
    ended = world.run([*first, *QUICK.get("".join(first), ()), *rest])
    told = f"holotype {' '.join(map(repr, case.what))}"
    problems = unclean(ended)
    # then it was asked where the error comes from; a fault ends with 1
    if "--verbose" in rest and ended.code == 2:
        ended.err = ended.err.rpartition("Traceback (most recent call last)")[2]
    problems += ended.troubles(0, 2)
    return [f"{told}: {problem}" for problem in [*problems, *differences(before, untouched(world))]]


def unclean(ended: Ended) -> list[str]:
    """Signs that a terminal would obey."""
    said = ended.out + ended.err
    signs = sorted({sign for sign in said if (sign < " " and sign not in "\n\t") or "\x7f" <= sign <= "\x9f"})
    return [f"sent {signs!r} to the terminal"] if signs else []


WORDS = Campaign("words", "odd command lines", _lines, _line, kind="command lines", weight=1)
