"""The studio: the report of a run, served on this machine, that saves at once and starts rounds."""

import sys
from collections.abc import Callable

from holotype.errors import InputError


def run_as_child(work: Callable[..., object]) -> None:
    """Do the work of a child process of the studio with the words of its command line.

    An InputError ends it with one sentence and exit code 2.
    """
    try:
        work(*sys.argv[1:])
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
