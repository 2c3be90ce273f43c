"""All campaigns, those that come to an end first, so that what they leave of the time goes to the others."""

from __future__ import annotations

from tests.torture.bombs import BOMBS
from tests.torture.disk import FULL, TORN
from tests.torture.edits import EDITS
from tests.torture.images import DISGUISED, IMAGES
from tests.torture.kills import ASKED, KILLS
from tests.torture.leaks import LEAKS
from tests.torture.links import INSIDE, LINKS
from tests.torture.names import NAMES_CAMPAIGN
from tests.torture.pairs import ORPHANS, PAIRS, WRITE
from tests.torture.rot import ROT
from tests.torture.runfiles import FILES, READ
from tests.torture.stops import FAULTS, STOPS
from tests.torture.tables import SETTINGS, TABLES
from tests.torture.tally import Campaign
from tests.torture.words import VALUES, WORDS

CAMPAIGNS: tuple[Campaign, ...] = (
    *(DISGUISED, INSIDE, BOMBS, LEAKS, TORN, FULL, STOPS, FAULTS, READ, LINKS),
    *(
        KILLS,
        ASKED,
        ORPHANS,
        PAIRS,
        WRITE,
        FILES,
        ROT,
        NAMES_CAMPAIGN,
        WORDS,
        VALUES,
        IMAGES,
        TABLES,
        SETTINGS,
        EDITS,
    ),
)
