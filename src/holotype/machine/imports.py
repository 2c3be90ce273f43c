"""Importing heavy packages a fifth faster, and without their remarks."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Around imports of many modules: what these make stays, and looking for garbage in it takes its time.

    In a notebook without ipywidgets the bars of other packages complain of that; none of theirs is shown here.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="IProgress not found")
            yield
    finally:
        if collects:
            gc.enable()
