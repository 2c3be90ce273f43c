"""Heads that cost little in a tiny world: 64 hidden units instead of 2,048, which are most of its work."""

from holotype.models import heads

HIDDEN = 64


def narrow() -> None:
    """For good: what a process calls that a test started, where no fixture reaches."""
    heads.HIDDEN = HIDDEN
