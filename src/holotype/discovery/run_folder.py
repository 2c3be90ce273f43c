"""Ownership of a run folder: that it belongs to this discovery, and its backbone.

Images, labels and settings belong to a round; rounds with other ones go on in the same folder.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.hashing import file_stamps
from holotype.data.paths import is_address, relative
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice, choose_backbone
from holotype.discovery.collection import Collection, read_collection
from holotype.discovery.ensemble_training import applicable_methods
from holotype.discovery.rounds import round_folder
from holotype.discovery.training_plan import methods_of
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.runs.record import IDENTITY_FILE, RunFolder
from holotype.runs.resources import RunData
from holotype.utils.device import pick_device
from holotype.utils.serialization import SchemaError, from_dict, to_dict

CLAIM_FORMAT = 4
"""Of the run folder as a whole."""

SAME_KEYS = 0.5
"""Share of the images of a discovery, by path and size, that make a folder of another name the one that it was of."""

log = logging.getLogger(__name__)


def find_folder(own: Path, table: Table) -> Path:
    """The run folder of a collection where nobody has named one: `own`, or that of a collection of the same images
    which is no longer where it was; once it has gone on with this one, it is that of this one."""
    if own.exists():
        return own
    places = relative([str(path) for path in table.path], table.root)
    size = {
        path: _file_size(stamp) for path, stamp in zip(places, file_stamps(list(table.path)), strict=True)
    }
    best, share = own, SAME_KEYS
    for folder in sorted(own.parent.glob("*-discover")):
        try:
            seen = read_collection(folder)
        except InputError:  # nobody has asked for that one
            continue
        if seen is None or not seen.root or is_address(seen.root):
            continue
        if Path(seen.root).exists() and not (seen.root == table.root and _has_moved(folder, seen)):
            continue
        same = sum(size.get(path) == _file_size(entry.stamp) for path, entry in seen.images.items())
        if same > share * len(seen.images):
            best, share = folder, same / len(seen.images)
    if best != own:
        log.info(f"{best} holds a discovery of these images and is continued; --out begins another one.")
    return best


def check_labels_remain(folder: Path, table: Table) -> None:
    """Raise InputError where the images of the discovery in a folder had labels and come without any: mostly a list was
    forgotten."""
    if table.labelled.any() or (seen := read_collection(folder)) is None:
        return
    if had := sum(bool(entry.label) for entry in seen.images.values()):
        raise InputError(
            f"No image of {table.name} comes with a label, and in {folder} {had:,} did; name their list again with "
            "--labels, or choose another folder with --out."
        )


def _has_moved(folder: Path, seen: Collection) -> bool:
    """Did the images of the discovery in a folder lie elsewhere when it began?"""
    try:
        first = read_collection(round_folder(folder, 1))
    except InputError:  # nobody has asked for that one
        return False
    return first is not None and first.root != seen.root


def _file_size(stamp: str) -> str:
    """Bytes of a file. A copy has another time."""
    return stamp.partition("-")[0]


def claim_folder(
    folder: Path, table: Table, config: DiscoverConfig, embedded: EmbeddingParts | None = None
) -> tuple[DiscoverConfig, BackboneChoice | None]:
    """Make sure that the folder is new or of a discovery with this backbone. embedded: features that it must have made.

    Returns the settings with the backbone by its name (where `auto` was asked for, the one that was taken when the
    discovery began), and the backbone where it had to be chosen now.
    """
    if (begun := stored_backbone(folder, config.network)) is not None:
        return config.with_network(begun), None
    chosen = choose_backbone(config.network, pick_device(config.device))
    check_method(table, config, chosen)
    if embedded is not None:
        embedded.check_network(chosen.backbone)
    log.info(chosen.words)
    content = {"format": CLAIM_FORMAT, "backbone": to_dict(chosen.config), "choice_of_backbone": chosen.words}
    RunFolder(folder).write_json(IDENTITY_FILE, content)
    return config.with_network(chosen.config), chosen


def reload_backbone(folder: Path, config: DiscoverConfig) -> BackboneChoice:
    """Load the backbone of a discovery that goes on, with the sentence of when it was chosen."""
    chosen = choose_backbone(config.network, pick_device(config.device))
    words = str(RunFolder(folder).read_json(IDENTITY_FILE).get("choice_of_backbone", ""))
    log.info(words)
    return replace(chosen, words=words)


def stored_backbone(folder: Path, wanted: BackboneConfig) -> BackboneConfig | None:
    """The backbone that the discovery in a folder was begun with, None where there is none; InputError where another
    one is wanted, or where the folder holds something else."""
    begun = RunFolder(folder).read_json(IDENTITY_FILE) if (folder / IDENTITY_FILE).is_file() else {}
    if begun and (not isinstance(begun, dict) or begun.get("format") != CLAIM_FORMAT):
        raise InputError(
            f"{folder} holds a run of another kind or version (no discovery of format {CLAIM_FORMAT}); "
            "choose another folder with --out, or delete this one to start anew."
        )
    return check_backbone(folder, wanted, read_backbone(folder, begun)) if begun else None


def check_method(table: Table, config: DiscoverConfig, chosen: BackboneChoice) -> None:
    """Refuse what cannot be trained before anything is written; a k that is estimated is looked at then."""
    k = max(len(table.known) + 1 if config.k == "auto" else config.k, len(table.known))
    applicable_methods(methods_of(config), RunData(table, k), chosen.backbone)


def check_backbone(folder: Path, wanted: BackboneConfig, begun: BackboneConfig) -> BackboneConfig:
    """The backbone of the discovery; raises InputError where another one was asked for. What is not said stays."""
    mine, theirs = (json.loads(json.dumps(to_dict(one))) for one in (wanted, begun))
    for key, value in mine.items():
        if value not in (None, theirs.get(key)) and (key, value) not in (("name", "auto"), ("pool", "auto")):
            what = "backbone" if key == "name" else key
            raise InputError(
                f"{folder} was begun with {what} = {theirs.get(key)!r}, not {value!r}, and features of two networks "
                "cannot be compared; leave it as it was, or choose another folder with --out."
            )
    return begun


def read_backbone(folder: Path, identity: dict[str, Any]) -> BackboneConfig:
    """The backbone that a discovery began with."""
    try:
        return from_dict(BackboneConfig, identity.get("backbone"))
    except SchemaError as problem:
        raise InputError(
            f"{folder / IDENTITY_FILE} cannot be read (backbone: {problem}); choose another folder with --out."
        ) from problem
