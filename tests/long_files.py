"""The files of tests that take longest. They begin first, so that no process is left alone with one in the end."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
SECONDS = {
    "torture/test_short.py": 60,
    "examples/test_notebooks.py": 60,
    "cli/test_every_method.py": 50,
    "machine/test_ray_engine.py": 50,
    "examples/test_ray_train.py": 45,
    "machine/test_launch.py": 40,
    "training/test_loop.py": 35,
    "discovery/test_year.py": 30,
    "discovery/test_going_on.py": 30,
    "cli/test_devices.py": 28,
    "report/test_browser.py": 25,
    "cluster/test_count.py": 25,
    "training/test_processes.py": 20,
    "discovery/test_workflow.py": 20,
    "docs/test_site_in_browser.py": 18,
    "training/test_restarts.py": 15,
    "training/test_peers.py": 15,
    "report/test_javascript.py": 15,
    "report/test_browser_selection.py": 15,
    "models/test_hub.py": 15,
    "report/test_browser_edits.py": 14,
    "methods/test_contract.py": 14,
    "benchmarks/test_method_parts.py": 14,
    "data/test_stores.py": 14,
    "data/test_large_images.py": 14,
    "discovery/test_three_rounds.py": 14,
    "training/test_golden_weights.py": 14,
    "training/test_every_method.py": 13,
    "training/test_killed.py": 12,
    "benchmarks/test_speed.py": 12,
    "docs/test_experiments.py": 12,
    "docs/test_bursts_and_boxes_page.py": 12,
    "models/test_backbone.py": 12,
    "discovery/test_several.py": 12,
    "report/test_browser_rounds.py": 12,
    "report/test_browser_find.py": 12,
    "discovery/test_demo.py": 11,
    "report/test_browser_print.py": 10,
    "discovery/test_estimator.py": 10,
    "data/test_scratch.py": 10,
    "benchmarks/test_exhibits.py": 10,
}
"""Roughly, on one core; a file that is not here takes fewer than ten."""


def turn(file: Path) -> int:
    """Where a file of tests stands in the queue: those with the smallest number begin."""
    return -SECONDS.get(file.relative_to(TESTS).as_posix(), 0)
