"""Groups without labels: what a discovery does where fewer than two classes have labelled images.

There is nothing to train on then. The round proposes groups of the frozen features instead (clustering/groups.py),
and is a round like any other. Images that people confirm, and the most typical images of the groups that they name
(constraints.py), are the labels that the next round learns from.
"""

from __future__ import annotations

from dataclasses import replace

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table

LEAST_CLASSES = 2
"""Known classes that a training needs."""
METHOD = "kmeans"


def lacks_classes(table: Table) -> bool:
    """Do the usable images carry too few classes to train on?"""
    return len(set(table.label[table.labelled & table.usable])) < LEAST_CLASSES


def round_config(table: Table, config: DiscoverConfig) -> DiscoverConfig:
    """Return the settings that a round on this table has: those asked for, or those of groups."""
    if not lacks_classes(table):
        return config
    return replace(config, method=METHOD, seeds=1)


def groups_line(table: Table) -> str:
    """Say what happens on a table without classes; "" for others."""
    if not lacks_classes(table):
        return ""
    none = "Only one class has labelled images" if table.known else "No image has a label"
    return (
        f"{none}, so this round proposes groups of images that look alike, without training. Name at least two in the "
        "report or the studio; the next round learns from the names."
    )
