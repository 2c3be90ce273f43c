"""`model.json`: which backbone and which method the weights of a run belong to, and its categories by index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.methods import Task
from holotype.utils.serialization import from_dict, read_json, to_dict
from holotype.utils.text import suggest_path

FORMAT = 1
"""Raised when a file of an older version can no longer be read."""
FILE, WEIGHTS = "model.json", "model.safetensors"


@dataclass(frozen=True)
class Sheet:
    """The content of model.json."""

    run_id: str
    known: tuple[str, ...]
    ids: tuple[str, ...]
    """Of the method's categories by index, all task.k of them."""
    method_name: str
    method: dict[str, Any]
    """Settings of the method."""
    task: Task
    backbone: BackboneConfig
    digest: str
    """Of the backbone's weights."""
    double: bool
    """Whether it was trained in fp64."""
    weights: str
    """sha256 of model.safetensors; a kill between the two files leaves a pair that does not match."""
    licence: str = ""
    """Of the backbone's weights, which the trained ones come from."""
    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        return to_dict(self)

    @classmethod
    def from_dict(cls, content: Any) -> Sheet:
        """Raises NotPlain, which says what is missing or of another type."""
        return from_dict(cls, content)

    @classmethod
    def read(cls, folder: Path) -> Sheet:
        """That of a run folder."""
        path = folder / FILE
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}{suggest_path(folder)}; give the folder of a run.")
        if not path.is_file() or not (folder / WEIGHTS).is_file():
            raise InputError(
                f"{folder} holds no trained model (no {FILE} with {WEIGHTS}); give the folder of a finished "
                "holotype discover or holotype train."
            )
        try:
            content = read_json(path)
            version = content["format"]
            if version == FORMAT:
                return cls.from_dict(content)
        except (ValueError, KeyError, TypeError, OSError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            raise InputError(
                f"{path} cannot be read ({reason}); restore it from a copy, or make the run again in another folder."
            ) from error
        raise InputError(
            f"{path} was written by another version (format {version}, not {FORMAT}); make the run again in another "
            "folder."
        )
