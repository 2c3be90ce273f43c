"""`holotype studio`: the report of a run, live in a browser: correct, train another round, write the result."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.options import StudioOptions
from holotype.errors import InputError


def studio_command(options: StudioOptions) -> None:
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The studio needs {package}; install it with pip install 'holotype[studio]'.")
    run, images = find_run(options.run)
    if options.assign is not None and not options.assign.exists():
        raise InputError(f"There is no {options.assign}; name the folder of new images with --assign.")
    from holotype.studio.jobs import JobContext
    from holotype.studio.serve import serve

    new = str(options.assign.resolve()) if options.assign else ""
    try:
        serve(
            JobContext(run, images, new),
            options.port,
            read_only=options.read_only,
            browser=not options.no_browser,
            say=echo,
        )
    except KeyboardInterrupt:
        echo("The studio is closed; what was saved is in the run folder.")


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
