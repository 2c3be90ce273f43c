"""Holotype: find the categories you know and the ones you don't.

The public names are imported when they are first used, so that `import holotype` stays light. Type checkers and
editors see them as plain imports.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if "HOLOTYPE_PARENT" in os.environ:  # one of several processes, which must not outlive the first
    import_module("holotype.utils.processes").watch_parent()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holotype.data.load import load_table as load_table
    from holotype.data.table import Table as Table
    from holotype.discovery.estimator import Discoverer as Discoverer
    from holotype.discovery.pipeline import discover as discover
    from holotype.errors import InputError as InputError
    from holotype.methods import METHODS as METHODS
    from holotype.methods import Batch as Batch
    from holotype.methods import Method as Method
    from holotype.methods import Stage as Stage
    from holotype.methods import Task as Task
    from holotype.methods import Views as Views
    from holotype.results.discovery import Category as Category
    from holotype.results.discovery import Discovery as Discovery
    from holotype.results.review_queue import Question as Question
    from holotype.results.review_queue import questions as questions
    from holotype.runs.compare import Comparison as Comparison
    from holotype.runs.compare import compare as compare
    from holotype.runs.experiment import Experiment as Experiment
    from holotype.runs.experiment import default_experiment as default_experiment
    from holotype.runs.experiment import resolve as resolve
    from holotype.runs.record import Record as Record
    from holotype.runs.run import run_experiment as run_experiment
    from holotype.runs.run import train as train
    from holotype.runs.run_result import RunResult as RunResult
    from holotype.runs.run_result import load as load
    from holotype.runs.sweep import Sweep as Sweep
    from holotype.runs.sweep import bench as bench
    from holotype.training.callbacks import Callback as Callback

_MODULES = {
    "results.discovery": ("Category", "Discovery"),
    "results.review_queue": ("Question", "questions"),
    "data.load": ("load_table",),
    "data.table": ("Table",),
    "discovery.estimator": ("Discoverer",),
    "discovery.pipeline": ("discover",),
    "errors": ("InputError",),
    "methods": ("METHODS", "Batch", "Method", "Stage", "Task", "Views"),
    "runs.sweep": ("Sweep", "bench"),
    "runs.experiment": ("Experiment", "default_experiment", "resolve"),
    "runs.compare": ("Comparison", "compare"),
    "runs.run_result": ("RunResult", "load"),
    "runs.record": ("Record",),
    "training.callbacks": ("Callback",),
    "runs.run": ("run_experiment", "train"),
}
"""The same imports for run time (tests/test_public.py compares the two)."""

_HOME = {name: f"holotype.{module}" for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOME]

if not TYPE_CHECKING:  # else a checker would take any name for public

    def __getattr__(name):
        if name in _HOME:
            return getattr(import_module(_HOME[name]), name)
        raise AttributeError(f"module 'holotype' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
