"""The tiny world of tests/training, for methods that need a tail."""

from tests.training.conftest import world

__all__ = ["world"]
