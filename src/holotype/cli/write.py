"""`holotype write`: the results of a run in one of the forms of export/registry.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated

from holotype.cli.common import Parser, ProgressOptions, RunDir, echo, is_rank0_output
from holotype.errors import InputError
from holotype.export.registry import EXPORTERS, ExporterOptions
from holotype.utils.text import join_or


@dataclass(kw_only=True)
class WriteOptions(ExporterOptions, ProgressOptions):
    """Write the results of a run, with its corrections, for other programs or the next run."""

    run: RunDir
    """Folder of a finished run."""
    overwrite: bool = False
    """Replace a file that exists, or a folder that Holotype wrote, unless something of yours would be lost."""


def make_parser() -> Parser:
    flags = [
        (one.name, Annotated[Path, one.metavar] | None, field(default=None, metadata={"help": one.help}))
        for one in EXPORTERS
    ]
    doc = {"__doc__": WriteOptions.__doc__}
    return Parser(
        "write", make_dataclass("WriteFlags", flags, bases=(WriteOptions,), namespace=doc, kw_only=True)
    )


def command(argv: Sequence[str]) -> int:
    options: WriteOptions = make_parser().parse_args(argv)
    chosen = [one for one in EXPORTERS if getattr(options, one.name) is not None]
    if len(chosen) != 1:
        names = ", ".join(_flag(one.name) for one in EXPORTERS)
        raise InputError(f"holotype write needs one of {names}, and only one.")
    (exporter,) = chosen
    for option in fields(ExporterOptions):
        if getattr(options, option.name) and option.name not in exporter.options:
            fitting = join_or(_flag(one.name) for one in EXPORTERS if option.name in one.options)
            raise InputError(
                f"{_flag(option.name)} says nothing about {_flag(exporter.name)}; it goes with {fitting}."
            )
    out, how = getattr(options, exporter.name), {name: getattr(options, name) for name in exporter.options}
    how |= {"overwrite": options.overwrite, "progress": not options.no_progress}
    result = exporter.write(options.run, out, **how)
    if is_rank0_output():
        echo(result.summary(out))
    return 0


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
