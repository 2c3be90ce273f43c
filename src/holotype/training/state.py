"""The resume state on disk: tensors as safetensors, facts as JSON, nothing pickled.

`state.json` is the point of commitment: it names the tensor file that belongs to it. The tensors are
written first under a new name, then `state.json` is replaced, then older tensor files are removed.
A kill between any two of these steps leaves a pair that loads. Both bear the identity of the run, and `state.json` the
checksum of the tensors, so that a state of another run or a damaged one is never gone on from.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from holotype.errors import InputError
from holotype.utils.atomic import write_bytes
from holotype.utils.serialization import FileSchema

FACTS = "state.json"
STATE = FileSchema(2, "restore it from a copy, or delete it to train from the start")


def save_state(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write a state; the one before it stays loadable until this one is whole."""
    on_cpu = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    # `save` + our own write, because safetensors' own writer hides the system's error (a full disk)
    content = save(on_cpu, {"identity": str(facts.get("identity", ""))})
    digest = digest_of(content)
    # the same counter comes again at the end of a stage, and after a restart: by its counter alone a file would be
    # replaced that the state before still names
    name = f"state-{facts['counter']:08d}-{digest}.safetensors"
    write_bytes(folder / name, content)
    STATE.write(folder / FACTS, {**facts, "tensors": name, "digest": digest})
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
    facts = STATE.read(path)
    for key, kind in {"counter": int, "tensors": str, "digest": str}.items():
        if type(facts.get(key)) is not kind:
            raise STATE.broken(path, f"it is no training state: {key} is {facts.get(key)!r}")
    if Path(facts["tensors"]).name != facts["tensors"]:
        raise STATE.broken(path, f"its tensors {facts['tensors']!r} lie in another folder")
    if identity is not None and facts.get("identity") != identity:
        raise InputError(
            f"{path} is the training state of another run or version, which this one cannot go on from; "
            "choose another --out, or delete it to train from the start."
        )
    return facts


def digest_of(content: bytes) -> str:
    """Of a file of tensors: against damage, so that it may be quick (2 GB in a second)."""
    return f"{zlib.crc32(content):08x}"


def clear_state(folder: Path) -> None:
    """Remove the state of a run that is finished; what says that there is one goes first."""
    (folder / FACTS).unlink(missing_ok=True)
    for tensors in folder.glob("state-*.safetensors"):
        tensors.unlink(missing_ok=True)


def load_tensors(folder: Path, facts: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that belong to `facts`."""
    path = folder / facts["tensors"]
    try:
        content = path.read_bytes()
        if digest_of(content) != facts["digest"]:
            raise ValueError(f"it is not the file that {FACTS} was written with")
        tensors: dict[str, Tensor] = load(content)
    except Exception as error:  # safetensors raises its own error class for damaged files
        raise InputError(
            f"{path} is missing or damaged ({error}); restore it from a copy, or delete {folder / FACTS} to train from "
            "the start."
        ) from error
    return tensors
