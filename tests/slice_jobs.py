"""Jobs for the tests of engines: light to import, and able to fail, to wait and to fall."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from holotype.errors import InputError


@dataclass(frozen=True)
class WriteSlice:
    """Writes `slice NUMBER` to its part, and leaves a line in log.txt."""

    folder: str
    seconds: float = 0.0
    fails: tuple[int, ...] = ()  # slices that raise
    falls: tuple[int, ...] = ()  # slices over which their process dies, each time

    def ready(self) -> None:
        if not Path(self.folder).is_dir():
            raise InputError(f"{self.folder} is not there.")

    def __call__(self, number: int) -> int:
        with open(Path(self.folder) / "log.txt", "a") as log:
            log.write(f"{number} {os.getpid()} {os.environ.get('RAY_RAYLET_PID', '')}\n")
        time.sleep(self.seconds)
        if number in self.fails:
            raise ValueError(f"slice {number} does not want to")
        if number in self.falls:
            os._exit(1)
        beside = Path(self.folder) / f".{number}.{os.getpid()}"
        beside.write_text(f"slice {number}")
        os.replace(beside, Path(self.folder) / f"part-{number:06d}.parquet")
        return number * 10


def tried(folder: Path) -> list[tuple[int, int]]:
    """Number and process of every try, in order."""
    lines = (folder / "log.txt").read_text().splitlines() if (folder / "log.txt").exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]
