"""docs/trust.md: its table is that of the record, and every campaign is explained."""

from __future__ import annotations

import json

from tools.torture.__main__ import CAMPAIGNS
from tools.torture.page import BLOCK, PAGE, RECORD, block


def test_the_table_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    (shown,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert shown == block(record)


def test_every_campaign_is_explained() -> None:
    explained = {
        name
        for row in PAGE.read_text(encoding="utf-8").split("| campaign |")[1].splitlines()
        if row.startswith("| ")
        for name in row.split("|")[1].strip().split(", ")
    }
    assert {campaign.name for campaign in CAMPAIGNS} <= explained
