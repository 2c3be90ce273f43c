"""docs/trust.md: its table is that of the record."""

from __future__ import annotations

import json

from tools.torture.page import BLOCK, PAGE, RECORD, block


def test_the_table_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    (shown,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert shown == block(record)
