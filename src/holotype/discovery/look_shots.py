"""What a first look says of times and bursts: by the heads of the files alone, since nothing has been embedded yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from holotype.categories.bursts import in_words
from holotype.data.bursts import SECONDS, find_bursts, with_groups
from holotype.data.exif import read_shots
from holotype.data.table import Table
from holotype.discovery.config import AUTO, NO, DiscoverConfig
from holotype.discovery.shots import Shots


def look_at_shots(table: Table, config: DiscoverConfig, progress: bool = False) -> list[str]:
    """A line about what the files say, and one about bursts, each where there is something to say."""
    shots = Shots(list(read_shots(list(table.path), progress)))
    said = shots.words()
    return ([said] if said else []) + _bursts(table, config, shots)


def _bursts(table: Table, config: DiscoverConfig, shots: Shots) -> list[str]:
    group: Sequence[str] | np.ndarray
    if config.bursts == NO:
        return []
    if table.group is not None and any(table.group):
        group, how = table.group, "as the column group says"
    else:
        seconds = SECONDS if config.bursts == AUTO else float(config.bursts)
        # every two frames are alike here: a discovery looks at the pictures as well, and finds as many or fewer
        group = find_bursts(table, shots.each, np.ones((len(table), 1)), seconds)
        how = f"one camera, at most {seconds:g} seconds apart; those that do not look alike are parted later"
    grouped = with_groups(table, group).group
    if grouped is None:
        return []
    used = grouped[table.usable]
    largest = Counter(name for name in used if name).most_common(1)[0][1]
    return [
        f"{in_words(used)} of up to {largest:,} ({how}). A burst counts once; --bursts no counts each image."
    ]
