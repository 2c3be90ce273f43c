"""Lists by path: what was written comes back, an older version's too, and damage is told by the name of the file."""

from __future__ import annotations

import json

import pytest

from holotype.discovery.given import read_given, write_given
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
    write_given(tmp_path / "new.json", content)
    (tmp_path / "old.json").write_text(json.dumps(content))
    for name in ("new.json", "old.json"):
        assert read_given(tmp_path / name, kind) == content


def test_what_something_has_changed_is_told(tmp_path):
    file = tmp_path / "labels.json"
    write_given(file, {"a.png": "cat"})
    file.write_text(file.read_text().replace("cat", "cap"))
    with pytest.raises(InputError, match=r"labels\.json cannot be read .*checksum.*restore it from a copy"):
        read_given(file, dict[str, str])


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "7", '{"format": 9, "by_path": {}}'])
def test_what_is_something_else_is_told(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    for kind in (dict[str, str], list[str]):
        with pytest.raises(InputError, match=r"labels\.json"):
            read_given(tmp_path / "labels.json", kind)
