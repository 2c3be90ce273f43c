"""A further process of a run ends when the one that started it is gone, from its first moment on.

It is `import holotype` that begins to watch, long before torch is there: a process that was killed right after it had
started others leaves none of them behind.
"""

from __future__ import annotations

import os
import threading
import time

PARENT = "HOLOTYPE_PARENT"
"""Process that started this one; without it there is nothing to do."""
SECONDS_BETWEEN_LOOKS = 1.0

_watched = ""


def watch_parent() -> bool:
    """Watch from now on, where there is somebody to watch; once is enough. Whether there is."""
    global _watched
    parent = os.environ.pop(PARENT, "")  # what this process starts itself is not the parent's
    if parent.isdecimal() and not _watched:
        _watched = parent
        threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    return bool(_watched)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
