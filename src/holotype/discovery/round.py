"""What a round of a discovery starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.best_backbone import Chosen
from holotype.discovery.constraints import Constraints
from holotype.discovery.corrected_number import as_drawn
from holotype.discovery.timing import Clock
from holotype.embeddings.store import EmbeddingParts
from holotype.results.apply_edits import REJECTED_NOTE
from holotype.results.discovery import Discovery


@dataclass
class Round:
    """One way from a table to categories."""

    table: Table
    config: DiscoverConfig
    chosen: Chosen
    folder: Path
    """Of the discovery: embeddings and the estimate of the number of categories serve all rounds."""
    own: Path
    """Of the round."""
    number: int
    seeds: tuple[int, ...] = (0,)
    """Of its trainings."""
    before: Discovery | None = None
    """What was known before, with edits."""
    withdrawn: frozenset[str] = frozenset()
    """Classes of then whose labels were taken away, as of a heap that was named, and that nobody has named by edits."""
    earlier_runs: tuple[str, ...] = ()
    given: Constraints = field(default_factory=Constraints)
    """What edits say; the labels are in the table already."""
    came: np.ndarray | None = None
    """(N,) the labels that images came with, where those of the table are others."""
    taken: frozenset[str] = frozenset()
    """Ids and names of the categories of the rounds before."""
    words: frozenset[str] = frozenset()
    """Labels that images came with, whatever they mean and edits have made of them: folders of these names."""
    digests: tuple[str, ...] = ()
    """(N,) of the contents of the images (data/hashing.py)."""
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """(N,) what else is known of the images, for their table: from the heads of the files, for one."""
    embedded: EmbeddingParts | None = None
    """Features that are there already, of these images and perhaps of many more."""
    progress: bool = False
    clock: Clock = field(default_factory=Clock)
    long_tail: bool = False
    """Whether categories of very different sizes are expected."""
    sizes: str = ""
    """Why, in a sentence."""

    @cached_property
    def out(self) -> np.ndarray:
        """(N,) bool: images that people have rejected."""
        return self.given.out(self.table)

    @property
    def corrected(self) -> bool:
        """Have people corrected what was known before, so that its categories are as many as they left?"""
        return self.before is not None and self.given.binds

    @property
    def active(self) -> Table:
        """The table in which only those images are usable that the round is made of."""
        problem = np.where(self.out & self.table.usable, REJECTED_NOTE, self.table.problem)
        return self.table.with_problems(problem)

    @property
    def drawn(self) -> Table:
        """`active` less the labels from edits: people picked those where something was wrong, and what is estimated
        from labels supposes that they were drawn."""
        return self.active if self.came is None else as_drawn(self.active, self.came)
