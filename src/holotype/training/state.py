"""The resume state on disk: tensors as safetensors, facts as JSON, nothing pickled.

`state.json` is the point of commitment: it names the tensor file that belongs to it. The tensors are
written first under a new name, then `state.json` is replaced, then older tensor files are removed.
A kill between any two of these steps leaves a pair that loads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from holotype.errors import InputError
from holotype.machine.files import write_bytes, write_text

FACTS = "state.json"


def save_state(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write a state; the one before it stays loadable until this one is whole."""
    restarts = facts.get("guard", {}).get("restarts")  # after one the same counters come again
    name = f"state-{facts['counter']:08d}{f'-{len(restarts)}' if restarts else ''}.safetensors"
    on_cpu = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    # `save` + our own write, because safetensors' own writer hides the system's error (a full disk)
    write_bytes(folder / name, save(on_cpu))
    write_text(folder / FACTS, json.dumps({**facts, "tensors": name}, indent=1))
    for old in folder.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_facts(folder: Path, identity: str | None = None) -> dict[str, Any] | None:
    """The facts of the state in `folder`, or None where there is none.

    identity: digest of the run that goes on; a state of another run is refused.
    """
    path = folder / FACTS
    if not path.exists():
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        facts["tensors"], facts["counter"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a training state ({error}); "
            "restore it from a copy, or delete it to train from the start."
        ) from error
    if identity is not None and facts.get("identity") != identity:
        raise InputError(
            f"{path} is the training state of another run or version, which this one cannot go on from; "
            "choose another --out, or delete it to train from the start."
        )
    return facts


def clear_state(folder: Path) -> None:
    """Remove the state of a run that is finished; what says that there is one goes first."""
    (folder / FACTS).unlink(missing_ok=True)
    for tensors in folder.glob("state-*.safetensors"):
        tensors.unlink(missing_ok=True)


def load_tensors(folder: Path, facts: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that belong to `facts`."""
    path = folder / facts["tensors"]
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except Exception as error:  # safetensors raises its own error class for damaged files
        raise InputError(
            f"{path} is missing or damaged ({error}); delete {folder / FACTS} to train from the start."
        ) from error
    return tensors
