"""The command line: `holotype COMMAND ...`.

Nothing heavy is imported here, so that --help and --version answer at once; each command imports what
it needs. Exit codes: 0 done, 2 bad input (one sentence on stderr), 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from holotype import __version__
from holotype.errors import InputError, Stopped

DONE, BAD_INPUT, STOPPED = 0, 2, 130

COMMANDS = {
    "demo": "discover categories in the embedded sample, with no data and no network",
    "discover": "find the categories in a folder of images, and write a report",
    "report": "build the report of a run, with corrections",
    "assign": "place new images in the categories of a run",
    "write": "write the results of a run as folders, labels, COCO or Camtrap DP",
    "estimate-k": "say how many categories there may be",
    "embed": "write the backbone's features of every image",
    "export": "write the trained model of a run as ONNX",
    "train": "train one method on one data set and score it",
    "bench": "methods x data sets x seeds, collected in one table",
    "methods": "list the methods, or say what one of them does",
    "data": "say which data sets there are, and whether a copy is complete",
}
"""Name and one line of help; the code is `command` in the module of the same name."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        return _dispatch(words)
    except InputError as error:
        return _say(str(error), BAD_INPUT)
    except Stopped as stopped:
        return _say(
            f"Stopped at {stopped}; the state is saved, and the same command goes on from it.", STOPPED
        )
    except KeyboardInterrupt:
        return _say(
            "Stopped at once; the same command goes on from what was saved before, if anything was.", STOPPED
        )
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if error.filename is None:  # not about a file that somebody named
            raise
        return _say(f"{error.filename} cannot be used: {error.strerror}.", BAD_INPUT)
    except SystemExit as leaving:  # --help and --print_config leave this way
        return leaving.code if isinstance(leaving.code, int) else DONE


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else "--help"
    if name in ("--help", "-h"):
        print(help_text())
        return DONE
    if name == "--version":
        print(f"holotype {__version__}")
        return DONE
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}" if close else f"the commands are {', '.join(COMMANDS)}"
        raise InputError(f"There is no command {name!r}; {hint} (holotype --help)?")
    from holotype.cli.words import allows_code, messages
    from holotype.machine.imports import importing
    from holotype.machine.named_code import allowing_code

    with importing():
        module = importlib.import_module(f"holotype.cli.{name.replace('-', '_')}")
    with messages(), allowing_code(allows_code(words)):
        code: int = module.command(words[1:])
    return code


def help_text() -> str:
    lines = [f"  holotype {name:<10} {line}" for name, line in COMMANDS.items()]
    return "\n".join(
        [
            "Holotype finds the categories you know and the ones you don't.",
            "",
            *lines,
            "",
            "  holotype COMMAND --help   what a command takes",
            "  holotype --version        the version",
        ]
    )


def _say(sentence: str, code: int) -> int:
    """One line on stderr."""
    from holotype.cli.words import say, speaks

    if speaks():
        say(" ".join(sentence.split()), error=True)
    return code
