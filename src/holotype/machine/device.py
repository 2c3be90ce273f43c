"""Where a run computes, and in which arithmetic."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holotype.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from holotype.runs.experiment import Experiment

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
    return usual_precision(pick_device(experiment.device))


def usual_precision(where: str) -> str:
    """bf16 on CUDA, fp32 elsewhere."""
    return "bf16" if where == "cuda" else "fp32"


def open_fabric(where: str, precision: str, processes: int = 1) -> Fabric:
    """Lightning Fabric on a device that `pick_device` gave, in one of our precisions; not launched yet."""
    from lightning_fabric import Fabric

    # its notices (precision, process group) stand in provenance.json, where they can be found again
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    return Fabric(
        accelerator=where,
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        precision=PRECISIONS[precision],
    )


def fresh_fabric(device: str) -> Fabric:
    """One process on `device`, in the precision of training."""
    where = pick_device(device)
    fabric = open_fabric(where, usual_precision(where))
    fabric.launch()
    return fabric


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def arithmetic(fabric: Fabric) -> str:
    """Fabric's name of the precision it runs in; Fabric has no public word for it."""
    return str(fabric._precision.precision)
