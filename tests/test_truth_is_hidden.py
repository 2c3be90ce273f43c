"""Only the scores may know the hidden classes: nothing else in the package reads `.truth`."""

import re
from pathlib import Path

import holotype

PACKAGE = Path(holotype.__file__).parent
MAY_READ = {
    "clustering/metrics.py",
    "data/table.py",
}  # the table defines it, and takes it along when rows are chosen


def test_only_evaluate_reads_the_truth() -> None:
    readers = {
        str(file.relative_to(PACKAGE).as_posix())
        for file in PACKAGE.rglob("*.py")
        if re.search(r"\.truth\b", file.read_text(encoding="utf-8"))
    }
    assert readers <= MAY_READ
    assert "clustering/metrics.py" in readers  # else this test looks for the wrong thing
