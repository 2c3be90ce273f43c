"""Names for new categories out of a list of words, as proposals with scores: RUN/names.json.

The score of a word for a category is the mean over its typical images x of the share of that word,

    p(w | x) = softmax_w (s cos(x, w)),

s being the scale of the network (models/text_tower.py).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holotype.data.csv import text_encoding
from holotype.errors import InputError
from holotype.results.discovery import UNNAMED_PATTERN, Discovery
from holotype.results.lda import softmax
from holotype.utils.serialization import FileSchema
from holotype.utils.text import nfc

IMAGENET = "imagenet"
"""In place of a file: the names of the 1,000 classes of ImageNet."""
NAMES_FILE = "names.json"
NAMES_SCHEMA = FileSchema(1, "delete it, and run holotype report with --names again")
PROPOSALS = 3
"""Words for each category."""
MIN_SCORE = 0.2
"""Score from which a word is the suggested name."""
MARK = "; by words: "
"""Between what is said of a category and its proposals."""


@dataclass(frozen=True)
class NameProposals:
    """The content of the file."""

    run_id: str
    network: str
    names: dict[str, list[tuple[str, float]]]
    """Id of a category to words and scores, the best first."""


def read_words(file: Path) -> list[str]:
    """Return the words of a list, one a line, or the first column of a CSV file; for IMAGENET timm's names."""
    if str(file) == IMAGENET and not file.exists():
        from holotype.models.zoo import patch_torchvision  # brings torch

        patch_torchvision()
        from timm.data import ImageNetInfo

        names = ImageNetInfo().label_descriptions(detailed=False)
        return list(dict.fromkeys(name.partition(",")[0] for name in names))
    if not file.is_file():
        raise InputError(f"The file {file} does not exist; name a list with a word on each line.")
    try:
        with file.open(encoding=text_encoding(file) or "utf-8", newline="") as lines:
            words = [nfc(row[0].strip()) for row in csv.reader(lines) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} is no text; save the list as CSV UTF-8, a word on each line.") from error
    words = list(dict.fromkeys(word for word in words if word))
    if len(words) < 2:
        raise InputError(f"{file} holds {len(words)} words; a choice needs two.")
    return words


def rank_words(
    images: Mapping[str, np.ndarray], words: Sequence[str], text: np.ndarray, scale: float
) -> dict[str, list[tuple[str, float]]]:
    """Return the best words of each category with their scores.

    Args:
        images: Category to the unit features (n, D) of some of its images.
        words: The list.
        text: (W, D) unit features of the words.
        scale: s.
    """
    found = {}
    for id, features in images.items():
        share = softmax(scale * np.asarray(features @ text.T, np.float64)).mean(axis=0)
        best = np.argsort(-share, kind="stable")[:PROPOSALS]
        found[id] = [(words[at], round(float(share[at]), 3)) for at in best]
    return found


def save_names(run: Path, proposals: NameProposals) -> None:
    """Write the proposals into the folder of their run."""
    names = {id: [list(one) for one in best] for id, best in proposals.names.items()}
    NAMES_SCHEMA.write(
        run / NAMES_FILE, {"run_id": proposals.run_id, "network": proposals.network, "names": names}
    )


def with_names(run: Path, found: Discovery) -> Discovery:
    """Return a discovery whose unnamed new categories have the proposals of this very round, if there are any."""
    file = run / NAMES_FILE
    if not file.is_file():
        return found
    proposals = NAMES_SCHEMA.make(file, NameProposals)
    if proposals.run_id != found.run_id:
        return found
    categories = []
    for one in found.categories:
        best = proposals.names.get(one.id)
        if best and one.kind == "novel" and UNNAMED_PATTERN.fullmatch(one.name):
            told = ", ".join(f"{word} {score:.2f}" for word, score in best)
            one = replace(one, words=f"{one.words.partition(MARK)[0]}{MARK}{told}")
            if best[0][1] >= MIN_SCORE:
                one.suggested = best[0][0]
        categories.append(one)
    return replace(found, categories=categories)
