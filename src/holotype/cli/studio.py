"""`holotype studio`: the report of a run, live in a browser: correct, train another round, write the result."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holotype.cli.common import Parser, echo
from holotype.config.types import Port
from holotype.errors import InputError


@dataclass(kw_only=True)
class StudioOptions:
    """Open the report of a run in the browser, where edits are saved at once and rounds can be started. Needs the extra
    studio: pip install 'holotype[studio]'."""

    run: Annotated[str, "RUN"]
    """Folder of a finished run, or the folder of images of one in runs/."""
    port: Annotated[Port, "N"] | None = None
    """Port of this computer (default: 8321, or the next one that is free)."""
    assign: Annotated[Path, "NEW"] | None = None
    """Folder of new images that the studio may place in the categories."""
    read_only: bool = False
    """Only show: save no edits and start nothing."""
    no_browser: bool = False
    """Print the link and open no browser."""


def make_parser() -> Parser:
    return Parser("studio", StudioOptions)


def command(argv: Sequence[str]) -> int:
    options: StudioOptions = make_parser().parse_args(argv)
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The studio needs {package}; install it with pip install 'holotype[studio]'.")
    run, images = find_run(options.run)
    if options.assign is not None and not options.assign.exists():
        raise InputError(f"There is no {options.assign}; name the folder of new images with --assign.")
    from holotype.studio.jobs import Site
    from holotype.studio.serve import serve

    new = str(options.assign.resolve()) if options.assign else ""
    try:
        serve(
            Site(run, images, new),
            options.port,
            read_only=options.read_only,
            browser=not options.no_browser,
            say=lambda words: echo(words, flush=True),
        )
    except KeyboardInterrupt:
        echo("The studio is closed; what was saved is in the run folder.")
    return 0


def find_run(named: str) -> tuple[Path, str]:
    """Return the run folder, and the images where these were named; InputError where there is no run to read."""
    from holotype.data.load import folder_name
    from holotype.results.discovery import DISCOVERY_FILE, check_discovery

    run, images = Path(named), ""
    default = Path("runs") / f"{folder_name(named)}-discover"
    if not (run / DISCOVERY_FILE).is_file() and (default / DISCOVERY_FILE).is_file() and run.exists():
        run, images = default, named
    elif run.exists() and not any((run / name).exists() for name in (DISCOVERY_FILE, "identity.json")):
        raise InputError(
            f"{named} holds no run, and nor does {default}; make one: holotype discover {named}."
        )
    check_discovery(run)
    return run.resolve(), images
