"""Holotype: find the categories you know and the ones you don't.

The public names are imported when they are first used, so that `import holotype` stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    "Discoverer": "holotype.discovery.estimator",
    "Discovery": "holotype.categories.found",
    "METHODS": "holotype.methods",
    "Method": "holotype.methods",
    "Table": "holotype.data.table",
    "default_experiment": "holotype.runs.settings",
    "discover": "holotype.discovery.workflow",
    "load": "holotype.categories.found",
    "load_table": "holotype.data.sources",
    "run_experiment": "holotype.runs.run",
}
"""Name and the module that it lives in."""

__all__ = [
    "METHODS",
    "Discoverer",
    "Discovery",
    "Method",
    "Table",
    "__version__",
    "default_experiment",
    "discover",
    "load",
    "load_table",
    "run_experiment",
]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    raise AttributeError(f"module 'holotype' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
