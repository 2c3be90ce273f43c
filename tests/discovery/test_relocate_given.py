"""Lists by path: what was written comes back, and damage is told by the name of the file."""

from __future__ import annotations

import pytest

from holotype.discovery.relocate import read_path_map, write_path_map
from holotype.errors import InputError


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (dict[str, str], {"a/Käfer.png": "=boots", "format": "a label"}),
        (dict[str, str], {}),
        (list[str], ["b.png", "ö.png"]),
        (dict[str, list[str]], {"a.png": ["b.png", "c.png"]}),
    ],
)
def test_what_was_written_comes_back(tmp_path, kind, content):
    write_path_map(tmp_path / "new.json", content)
    assert read_path_map(tmp_path / "new.json", kind) == content


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "7", '{"format": 9, "by_path": {}}'])
def test_what_is_something_else_is_told(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    for kind in (dict[str, str], list[str]):
        with pytest.raises(InputError, match=r"labels\.json"):
            read_path_map(tmp_path / "labels.json", kind)
