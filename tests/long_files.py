"""The files of tests that take longest. They begin first, so that no process is left alone with one in the end."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
SECONDS = {
    "utils/test_processes.py": 60,
    "examples/test_notebooks.py": 40,
    "test_torture.py": 35,
    "cli/test_every_method.py": 34,
    "training/test_loop.py": 28,
    "clustering/test_estimate_k.py": 27,
    "training/test_processes.py": 26,
    "report/test_browser.py": 26,
    "discovery/test_year.py": 22,
    "docs/test_pages.py": 20,
    "discovery/test_plan.py": 18,
    "cli/test_devices.py": 17,
    "benchmarks/test_speed.py": 17,
    "report/test_browser_keyboard.py": 21,
    "report/test_browser_edits.py": 16,
    "models/test_hub.py": 13,
    "discovery/test_pipeline.py": 13,
    "docs/test_site_in_browser.py": 9,
    "data/test_storage.py": 12,
    "runs/test_settings.py": 11,
    "training/test_every_method.py": 10,
    "models/test_backbone.py": 10,
}
"""Roughly, on one core; a file that is not here takes fewer than ten."""


def turn(file: Path) -> int:
    """Where a file of tests stands in the queue: those with the smallest number begin."""
    return -SECONDS.get(file.relative_to(TESTS).as_posix(), 0)
