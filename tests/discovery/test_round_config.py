"""What was asked of a round, and how it differs from what was asked before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.round_config import ROUND_FILE, RoundConfig, read_round_config, stated_groups
from holotype.errors import InputError


def asked(**settings) -> RoundConfig:
    return RoundConfig.of(DiscoverConfig(device="cpu", **settings), "photos")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_round_config(tmp_path) is None
    one = asked(k=7, long_tail=True)
    one.save(tmp_path)
    assert read_round_config(tmp_path) == one
    for content in ("{", "[]", '{"settings": 1}'):
        (tmp_path / ROUND_FILE).write_text(content)
        with pytest.raises(InputError, match=r"begun\.json"):
            read_round_config(tmp_path)


def test_settings_that_differ_are_told_as_flags() -> None:
    before = asked(k=10)
    assert asked(k=10).others(before) == []
    assert asked(k=12, seed=1).others(before) == ["--k 12 (was 10)", "--seed 1 (was 0)"]
    assert asked(long_tail=True).others(before) == ["--k auto (was 10)", "--long-tail yes (was auto)"]
    assert before.others(asked(k=10, long_tail=True, steps=7)) == [
        "--steps as usual (was 7)",
        "--long-tail auto (was yes)",
    ]


def test_what_comes_to_the_same_is_no_difference() -> None:
    """The usual number of steps said aloud, and the usual number on another device."""
    assert asked(steps=1000).others(asked()) == []
    elsewhere = replace(asked(), taken={**asked().taken, "steps": 6000}, device="cuda")
    assert asked().others(elsewhere) == []


def test_groups_are_known_by_the_content_of_their_images(tmp_path: Path) -> None:
    """Names of groups, of files and their order make no difference, nor does a group of one."""

    def told(group: list[str] | None, content: str = "abcde") -> str:
        paths, label = np.array(list("12345"), dtype=object), np.array([""] * 5, dtype=object)
        table = Table(paths, label, (), group=None if group is None else np.array(group, dtype=object))
        return stated_groups(table, list(content))

    assert told(None) == told([""] * 5) == told([*"vwxyz"]) == ""
    first = told(["x", "x", "y", "y", ""])
    assert first == told(["n", "n", "m", "m", "o"]) == told(["", "y", "y", "x", "x"], "edcba") != ""
    assert first != told(["x", "x", "y", "", "y"])
    one = replace(asked(), groups=first)
    assert one.others(asked()) == asked().others(one) == ["other groups"]
    assert asked(bursts="no").others(one) == ["--bursts no (was auto)"]
    one.save(tmp_path)
    assert read_round_config(tmp_path) == one
