"""Where a run computes, and in which arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holotype.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from holotype.experiment import Experiment

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp64": "64-true"}
"""Our names and Fabric's."""


def pick_device(name: str) -> str:
    """auto: CUDA, else the CPU. A device that is asked for and absent is an error, not a silent CPU."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if not available[name]:
        raise InputError(f"--device {name} is not to be had on this machine; use --device cpu or auto.")
    return name


def pick_precision(experiment: Experiment) -> str:
    """auto: bf16 on CUDA, fp32 elsewhere (CPUs without bf16 units are ten times slower in it)."""
    if experiment.train.precision != "auto":
        return experiment.train.precision
    return "bf16" if pick_device(experiment.device) == "cuda" else "fp32"


def arithmetic(fabric: Fabric) -> str:
    """Fabric's name of the precision it runs in; Fabric has no public word for it."""
    return str(fabric._precision.precision)
