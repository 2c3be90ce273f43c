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
    if options.read_only and not run.is_dir():
        raise InputError(f"There is no run of {images} to look at; start the studio without --read-only.")
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
    """Return the run folder, and the images where these were named; InputError where there is nothing to begin with.

    The run of images that have none yet is empty.
    """
    from holotype.data.load import folder_name, stream_paths
    from holotype.results.discovery import DISCOVERY_FILE, check_discovery

    run, images = Path(named), ""
    default = Path("runs") / f"{folder_name(named)}-discover"
    if run.exists() and not any((run / name).exists() for name in (DISCOVERY_FILE, "identity.json")):
        stream_paths(named)  # says it where there are no images
        run, images = default, str(run.resolve())
    if not images or (run / DISCOVERY_FILE).is_file():
        check_discovery(run)
    return run.resolve(), images
