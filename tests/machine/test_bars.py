"""The bar counts on a terminal and keeps silent elsewhere."""

from __future__ import annotations

from holotype.machine.bars import counting


def test_counting_shows_nothing_unless_asked_to(capfd):
    with counting("Caching views", 10, False) as advance:
        advance(10)
    assert capfd.readouterr() == ("", "")
    with counting("Caching views", 10, True) as advance:
        advance(4)
