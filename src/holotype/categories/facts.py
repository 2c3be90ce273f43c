"""What a reader should know of a run: how it was made, and what people have corrected since.

Scores are no part of it: they say what only the truth can say, and stand in scores.json alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holotype.utils.serialization import from_dict, to_dict


@dataclass(frozen=True)
class Edited:
    """What edits have done to a discovery; empty before the first."""

    applied: tuple[str, ...] = ()
    """Digests of the edits that it holds."""
    refused: tuple[str, ...] = ()
    """Digests of those that could not be applied."""
    merged: dict[str, str] = field(default_factory=dict)
    """Id of a category that is gone to the id of the one that it joined."""
    rejected: tuple[str, ...] = ()
    """Ids of the categories that were rejected."""
    asleep: dict[str, dict[str, str]] = field(default_factory=dict)
    """Id of a category that lost its images to its name and suggested name, should one come back."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Path of an image to the id of the category, or to the label, that was confirmed."""
    came_from: dict[str, str] = field(default_factory=dict)
    """Path of an image that was moved or confirmed to the id of the category that the run had put it in, "" = none."""


@dataclass(frozen=True)
class Facts:
    """How a run was made. What does not apply is empty."""

    title: str = ""
    """Name of the collection."""
    root: str = ""
    """Folder of the images."""
    earlier_roots: tuple[str, ...] = ()
    """Folders that the images lay in before they were moved."""
    method: str = ""
    k: int = 0
    """Categories that were trained for, known and novel; some may have stayed empty."""
    in_use: int = 0
    """Those of them that hold an image, before any edit; 0 where nobody has counted."""
    seed: int = 0
    steps: int = 0
    """Training steps."""
    epochs: int = 0
    batch_size: int = 0
    mode: str = ""
    """exact, or cached 4+2."""
    trained_on: int = 0
    """Images that were trained on; the others were placed afterwards."""
    round: int = 0
    """Of a discovery, from 1; 0 for a run of holotype train."""
    earlier_runs: tuple[str, ...] = ()
    """Run ids of the rounds before."""
    confirmed_labels: int = 0
    """Labels that edits have given: of confirmed and moved images, and of the parts of merged categories."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By step."""
    calibration: str = ""
    """What the probabilities of the images were learned from, or why they are none, in a sentence; "" = they are the
    method's own scores."""
    calibration_curve: tuple[tuple[float, float], ...] = ()
    """The score of an image that comes later and the probability that goes with it, rising."""
    trainings: tuple[int, ...] = ()
    """Seeds of the trainings that have placed the images together; `seed` is that of the one whose model is kept. Empty
    where there was one training."""
    methods: tuple[str, ...] = ()
    """Methods that they took in turn; `method` is that of the one whose model is kept."""
    agreement: tuple[float, ...] = ()
    """Share of the images that each of them places where all together do."""
    sizes: str = ""
    """Whether categories of equal or of different sizes were expected, and why, in a sentence."""
    choice_of_backbone: str = ""
    """Why this one, in a sentence."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """What provenance.json says: versions, hardware, backbone, table."""
    edits: Edited = field(default_factory=Edited)

    @property
    def training_size(self) -> str:
        """How many categories were trained for, and how many are in use where some stayed empty."""
        return f"trained with {self.k}" + (f", {self.in_use} in use" if 0 < self.in_use < self.k else "")

    @property
    def backbone(self) -> Mapping[str, Any]:
        """name, digest and caveat."""
        found = self.provenance.get("backbone", {})
        return found if isinstance(found, Mapping) else {}

    def as_dict(self) -> dict[str, Any]:
        return to_dict(self)

    @classmethod
    def from_dict(cls, content: Any) -> Facts:
        """Raises NotPlain, which says what is missing or of another type."""
        return from_dict(cls, content)
