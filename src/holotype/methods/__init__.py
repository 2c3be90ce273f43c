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
)
from holotype.methods.registry import METHODS, allow_code, check_code_allowed, find_method, plugin_names

__all__ = [
    "METHODS",
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
    "allow_code",
    "check_code_allowed",
    "find_method",
    "plugin_names",
]
