"""What a first look says of times and bursts: by the heads of the files alone, since nothing has been embedded yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holotype.config.schema import DiscoverConfig
from holotype.data.bursts import with_groups
from holotype.data.exif import ExifData
from holotype.data.table import Table
from holotype.discovery.bursting import counted, groups_of
from holotype.discovery.shots import Shots


def look_at_shots(table: Table, config: DiscoverConfig, heads: Sequence[ExifData]) -> list[str]:
    """A line about what the files say, and one about bursts, each where there is something to say. heads: of each
    image."""
    shots = Shots(list(heads))
    said = shots.words()
    return ([said] if said else []) + _bursts(table, config, shots)


def _bursts(table: Table, config: DiscoverConfig, shots: Shots) -> list[str]:
    # every two frames are alike here: a discovery looks at the pictures as well, and finds as many or fewer
    alike, later = np.ones((len(table), 1)), "; those that do not look alike are parted later"
    group, how = groups_of(table, config.bursts, shots.each, alike, found=later)
    grouped = with_groups(table, group).group
    if grouped is None:
        return []
    told = counted(grouped[table.usable])
    return [f"{told} ({how}). A burst counts once; --bursts no counts each image."]
