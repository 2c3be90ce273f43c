"""Methods of Generalized Category Discovery: the contract, and the methods by name."""

from holotype.methods.base import (
    Batch,
    Card,
    Images,
    LRSchedule,
    Method,
    Now,
    ParamGroup,
    Prediction,
    Progress,
    Stage,
    Task,
    Views,
    Wrapper,
)
from holotype.methods.registry import (
    METHODS,
    WRAPPERS,
    allow_code,
    check_code_allowed,
    find_method,
    method_name,
    plugin_names,
)

__all__ = [
    "METHODS",
    "WRAPPERS",
    "Batch",
    "Card",
    "Images",
    "LRSchedule",
    "Method",
    "Now",
    "ParamGroup",
    "Prediction",
    "Progress",
    "Stage",
    "Task",
    "Views",
    "Wrapper",
    "allow_code",
    "check_code_allowed",
    "find_method",
    "method_name",
    "plugin_names",
]
