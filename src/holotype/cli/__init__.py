"""The command line: `holotype COMMAND ...`.

Nothing heavy is imported here, so that --help and --version answer at once; each command imports what
it needs. The flags of FLAGS go with every command and are taken off here; EXIT_CODES says how a command can end.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Sequence

from holotype import __version__
from holotype.errors import InputError, Stopped, signal_of
from holotype.utils.console import best_effort_streams, console_options, plain_characters
from holotype.utils.processes import interrupting, last_signal
from holotype.utils.text import did_you_mean

DONE, FAULT, BAD_INPUT, NOT_WELL, STOPPED = 0, 1, 2, 3, 128
"""The last one and the number of the signal."""
EXIT_CODES = {
    "0": "done",
    "1": "a bug in the program, with a traceback: please report it, with the output of `holotype doctor`",
    "2": "wrong input: one sentence on stderr says what, where and what to do",
    "3": "finished with a failure: the self-test of `holotype doctor` failed, or slices of `embed` or `assign` "
    "failed; the same command tries them again",
    "128+n": "stopped by signal n: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP; the same command continues. "
    "137 is a kill, often because memory ran out",
}
FLAGS = {
    "--quiet": "show only warnings and results: no progress bars, no messages",
    "--verbose": "show every message with time and origin, and the traceback of an error",
    "--no-color": "no colours (the same as setting NO_COLOR)",
}
"""Flags that every command takes, wherever they stand."""

COMMANDS = {
    "demo": "try it: find categories in the embedded sample; needs no data and no network",
    "discover": "find the categories in a folder of images and write a report",
    "report": "build the report of a run, or apply corrections to it",
    "studio": "correct the result and train further rounds in the browser, live",
    "cut": "show what another number of categories would merge or split, without training",
    "assign": "place new images in the categories of a run",
    "write": "write the results of a run for other programs: folders, labels, COCO, Label Studio and more",
    "estimate-k": "estimate how many categories there are",
    "embed": "write the backbone's features of every image",
    "sample": "draw a sample that covers a large collection, with weights",
    "export": "write the trained model of a run as ONNX",
    "status": "show the progress of a run, a sweep or a discovery, also after a crash",
    "train": "train one method on one data set and score it",
    "bench": "compare methods on data sets over seeds, in one table",
    "compare": "compare runs of two settings: pairs, intervals, classes",
    "plot": "draw curves, scores over seeds and confusion of runs",
    "features": "write the trained features of a run as a table",
    "methods": "list the methods, or explain one of them",
    "backbones": "list backbones for each kind of image, with size, licence and speed",
    "data": "list the benchmarks, or check that a copy is complete",
    "cache": "list the files in the cache folder, or delete them",
    "doctor": "check the installation; paste the output into a bug report",
    "completion": "print a script that completes commands and flags in bash, zsh or fish",
}
"""Name and one line of help."""
MODULES = {"sample": "embed", "write": "export", "plot": "compare", "features": "compare"} | dict.fromkeys(
    ("methods", "backbones", "data"), "info"
)
"""Where the code of a command lies, if not in the module of its name."""

AT_ONCE = "Stopped at once; the same command continues from what was saved, if anything was."


def options_type(name: str) -> type:
    """Return the dataclass of the options of a command: EstimateKOptions for estimate-k."""
    from holotype.cli import options

    kind: type = getattr(options, f"{name.title().replace('-', '')}Options")
    return kind


def run_command(name: str, argv: Sequence[str]) -> int:
    """Parse the words of a command and run it; of estimate-k, that is estimate_k_command.

    Raises:
        InputError: for wrong input.
    """
    from holotype.cli.common import Parser

    given = Parser(name, options_type(name)).parse_args(argv)
    word = name.replace("-", "_")
    module = importlib.import_module(f"holotype.cli.{MODULES.get(name, word)}")
    command = getattr(module, f"{word}_command")
    with contextlib.ExitStack() as stack:
        if getattr(given, "allow_code", False):
            from holotype.methods.registry import allow_code

            stack.enter_context(allow_code())
        return command(given) or DONE


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    asked = {flag for flag in FLAGS if flag in map(_dashed, words)}
    words = [word for word in words if _dashed(word) not in asked]
    plain_characters()
    quiet, no_color = "--quiet" in asked, "--no-color" in asked
    with best_effort_streams() as out, console_options(quiet=quiet, no_color=no_color):
        code = _run(words, asked)
        out.flush()
        # a reader that is gone, such as `head`, has seen enough
        if code == DONE and out.problem and not isinstance(out.problem, BrokenPipeError):
            reason = out.problem.strerror or out.problem
            sentence = f"Not all could be written to stdout ({reason}); free some space, and run it again."
            return _print_error(sentence, BAD_INPUT)
        return code


def _run(words: list[str], asked: set[str]) -> int:
    """Turn what can end a command into an exit code."""
    try:
        with interrupting():
            return _dispatch(words, asked)
    except InputError as error:
        return _print_error(str(error), BAD_INPUT, error if "--verbose" in asked else None)
    except Stopped as stopped:
        sentence = f"Stopped at {stopped}; the state is saved, and the same command continues from it."
        return _print_error(sentence, STOPPED + signal_of(stopped))
    except KeyboardInterrupt as stop:
        return _print_error(AT_ONCE, STOPPED + signal_of(stop))
    except SystemExit as leaving:  # --help leaves this way
        return leaving.code if isinstance(leaving.code, int) else DONE
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:  # about a file that somebody named
            sentence = f"{error.filename} cannot be used: {error.strerror}."
            return _print_error(sentence, BAD_INPUT, error if "--verbose" in asked else None)
        # a signal may have come while a library was at work, which then has failed in its own words
        if signalled := last_signal():
            return _print_error(AT_ONCE, STOPPED + signal_of(signalled))
        raise


def _dashed(word: str) -> str:
    return word.replace("_", "-") if word.startswith("--") else word


def _dispatch(words: list[str], asked: set[str]) -> int:
    if {"--quiet", "--verbose"} <= asked:
        raise InputError("--quiet and --verbose contradict each other; leave out one.")
    name = words[0] if words else "--help"
    if name in ("--help", "-h", "help"):
        if words[1:] and words[1] in COMMANDS:
            return run_command(words[1], ["--help"])
        print(help_text())
        return DONE
    if "--version" in words or name == "-V":  # of the program, whichever command stands before it
        print(f"holotype {__version__}")
        return DONE
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS, "holotype --help lists those there are.")
        raise InputError(f"There is no command {name!r}; {hint}")
    from holotype.cli.common import logged_to_stderr

    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("The folder that you are in was deleted; change to one that is there.") from error
    levels = {"--quiet": logging.WARNING, "--verbose": logging.DEBUG}
    with logged_to_stderr(next((levels[flag] for flag in levels if flag in asked), logging.INFO)):
        return run_command(name, words[1:])


def help_text() -> str:
    """Return what `holotype --help` prints."""
    width = max(map(len, COMMANDS))
    lines = ["Holotype finds the categories you know and the ones you don't.", ""]
    lines += [f"  holotype {name:<{width}} {line}" for name, line in COMMANDS.items()]
    lines += [
        "",
        "  holotype COMMAND --help   what a command takes",
        "  holotype --version        the version",
    ]
    lines += ["", "With every command:", *(f"  {flag:<10} {line}" for flag, line in FLAGS.items())]
    lines += ["", "Exit codes:", *(f"  {code:<6} {line}" for code, line in EXIT_CODES.items())]
    return "\n".join(lines)


def _print_error(sentence: str, code: int, cause: BaseException | None = None) -> int:
    """Print one line on stderr; before it, where the error comes from, if `cause` is given."""
    from holotype.cli.common import echo

    if cause is not None:
        import traceback

        echo("".join(traceback.format_exception(cause)), end="", error=True)
    echo(" ".join(sentence.split()), error=True)
    return code
